"""What goes with a rendered chat, so that whoever gets the answer can take it apart."""

from __future__ import annotations

from typing import Any

from llmdsim.web.chat_request import ChatRequest, Tool, ToolChoice
from llmdsim.web.context import Context
from llmdsim.web.conversation import Conversation
from llmdsim.web.media_features import features_of


def context_of_chat(context: Context, chat: ChatRequest, conversation: Conversation) -> dict[str, Any]:
    """The keys that a chat adds to what is rendered."""
    kwargs = _template_kwargs(chat)
    plan = conversation.plan
    parses = bool(context.config.reasoning_parser)
    return {
        "features": features_of(chat.messages, conversation.prompt),
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
        "tools": None if chat.tools is None else [_tool(tool) for tool in chat.tools],
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


def _tool(tool: Tool) -> dict[str, Any]:
    function = tool.function
    # A tool hands this down to its function.
    deferred = tool.defer_loading if function.defer_loading is None else function.defer_loading
    shown: dict[str, Any] = {
        "name": function.name,
        "description": function.description,
        "parameters": function.parameters,
    }
    if function.strict is not None:
        shown["strict"] = function.strict
    if deferred is not None:
        shown["defer_loading"] = deferred
    result: dict[str, Any] = {"type": tool.type, "function": shown}
    if tool.defer_loading is not None:
        result["defer_loading"] = tool.defer_loading
    return result


def _template_kwargs(chat: ChatRequest) -> dict[str, Any]:
    """What a chat template would be given: the request's own fields over its `chat_template_kwargs`."""
    kwargs = dict(chat.chat_template_kwargs or {})
    thinking_told = "enable_thinking" in kwargs
    kwargs["add_generation_prompt"] = chat.add_generation_prompt
    kwargs["continue_final_message"] = chat.continue_final_message
    if chat.documents is not None:
        kwargs["documents"] = chat.documents
    if chat.reasoning_effort is not None:
        kwargs["reasoning_effort"] = chat.reasoning_effort
        if not thinking_told:
            kwargs["enable_thinking"] = chat.reasoning_effort != "none"
    return kwargs
