"""Why a choice ended, as replies tell it."""

from __future__ import annotations

import msgspec

from llmdsim.engine.sequence import Sequence
from llmdsim.web.transfer import PrefillAnswer

json = msgspec.json.encode

#: Takes the reason, and what was matched as JSON.
FINISH_MEMBERS = b'"finish_reason":"%b","stop_reason":%b'


def chat_finish_reason(sequence: Sequence) -> str:
    """`tool_calls` for complete calls, but for one that the client named, which is `stop` (vLLM)."""
    reason = sequence.finish_reason
    assert reason is not None
    plan = sequence.ask.plan
    if reason == "stop" and plan is not None and plan.calls in ("auto", "required"):
        reply = sequence.reply
        assert reply is not None
        if any(part.kind == "call" for part in reply.parts):
            return "tool_calls"
    return reason


def finish_members(
    sequence: Sequence, reason: str | None = None, prefill: PrefillAnswer | None = None
) -> bytes:
    """`"finish_reason":…,"stop_reason":…`; `reason`, where given, is told in place of the engine's."""
    reply = sequence.reply
    told = reason or sequence.finish_reason or ""
    if prefill is not None:
        told = prefill.finish_reason(told)
    matched = b"null"
    if reply is not None and reply.stop_reason is not None and sequence.finish_reason == reply.finish_reason:
        matched = json(reply.stop_reason)
    return FINISH_MEMBERS % (told.encode(), matched)
