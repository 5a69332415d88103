"""What goes with a rendered chat, so that whoever gets the answer can take it apart."""

from __future__ import annotations

from typing import Any

from llmdsim.web.chat_request import ChatRequest, ToolChoice
from llmdsim.web.context import Context
from llmdsim.web.conversation import Conversation
from llmdsim.web.template_kwargs import template_kwargs, tool_dict


def context_of_chat(context: Context, chat: ChatRequest, conversation: Conversation) -> dict[str, Any]:
    """The keys that a chat adds to what is rendered."""
    kwargs = template_kwargs(chat, context.config.default_chat_template_kwargs)
    plan = conversation.plan
    parses = bool(context.config.reasoning_parser)
    return {
        "features": conversation.features,
        # Null leaves it to whoever generates to find out.
        "reasoning_ended": (
            True
            if not chat.include_reasoning
            else (plan is None or plan.reasoning == "none")
            if parses
            else None
        ),
        "reasoning_parser_kwargs": {"chat_template_kwargs": kwargs} if parses else None,
        "parse_context": _parse_context(chat, kwargs),
    }


def _parse_context(chat: ChatRequest, kwargs: dict[str, Any]) -> dict[str, Any]:
    """What it takes to read tool calls and reasoning out of the answer."""
    return {
        "tools": None if chat.tools is None else list(map(tool_dict, chat.tools)),
        "tool_choice": _choice(chat.tool_choice),
        "parallel_tool_calls": chat.parallel_tool_calls,
        "include_reasoning": chat.include_reasoning,
        "chat_template_kwargs": kwargs,
        "history_tool_call_cnt": sum(
            len(message.get("tool_calls") or ())
            for message in chat.messages
            if message["role"] == "assistant"
        ),
    }


def _choice(choice: str | ToolChoice) -> Any:
    if isinstance(choice, str):
        return choice
    if choice.allowed_tools is not None:
        return {"type": choice.type, "allowed_tools": choice.allowed_tools}
    return {"function": choice.function, "type": choice.type}
