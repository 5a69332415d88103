"""What a chat gives its template besides the messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmdsim.web.chat_request import ChatRequest, Tool


def template_kwargs(chat: ChatRequest, defaults: Mapping[str, Any] | None) -> dict[str, Any]:
    """The request's own fields over its `chat_template_kwargs`, and these over `defaults` (vLLM)."""
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
    return over_defaults(kwargs, defaults) if defaults else kwargs


def over_defaults(kwargs: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """`kwargs` over `defaults`; null and "auto" leave a default as it is (vLLM)."""
    return {**defaults, **{key: value for key, value in kwargs.items() if value not in (None, "auto")}}


def tools_of(chat: ChatRequest, without_choice: bool) -> list[dict[str, Any]] | None:
    """The tools that the model is told of; with `without_choice` not if `tool_choice` is "none"."""
    if chat.tools is None or (without_choice and chat.tool_choice == "none"):
        return None
    return list(map(tool_dict, chat.tools))


def tool_dict(tool: Tool) -> dict[str, Any]:
    """A tool with vLLM's keys in vLLM's order."""
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
