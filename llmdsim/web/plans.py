"""From a chat request to what its answer is to be made of."""

from __future__ import annotations

from llmdsim.reply.plan import Plan
from llmdsim.web.chat_request import ChatRequest
from llmdsim.web.context import Context


def plan_of(context: Context, chat: ChatRequest) -> Plan | None:
    """The plan of a chat; None for plain text, as nearly every one is."""
    return None
