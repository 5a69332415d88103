"""From a chat request to what its answer is to be made of."""

from __future__ import annotations

from typing import Literal

import msgspec

from llmdsim.config import Config
from llmdsim.reply.plan import Function, Plan
from llmdsim.reply.strict_tools import strict_problem
from llmdsim.web.chat_request import ChatRequest, Tool
from llmdsim.web.chat_request import Function as ToolFunction
from llmdsim.web.constraints import constraint_of, is_constrained
from llmdsim.web.context import Context
from llmdsim.web.errors import ApiError

#: Characters of a function's name: each call says it.
LONGEST_NAME = 1024


def plan_of(context: Context, chat: ChatRequest, image: bool = False) -> Plan | None:
    """The plan of a chat, with an image or without; None for plain text, as nearly every one is.

    Raises ApiError 400.
    """
    reasons = bool(context.config.reasoning_parser)
    if chat.tools is None and not reasons and not image and not is_constrained(chat):
        return None
    if chat.tools is not None and _is_strict(context.config):
        _refuse_loose(chat.tools)
    calls, functions = _calls(chat)
    reasoning: Literal["none", "shown", "hidden"] = "none"
    if reasons and _thinks(chat, context.config):
        reasoning = "shown" if chat.include_reasoning else "hidden"
    constraint = constraint_of(chat)
    if calls == "none" and reasoning == "none" and constraint is None and not image:
        return None
    return Plan(
        reasoning=reasoning,
        reasoning_budget=chat.thinking_token_budget,
        functions=functions,
        calls=calls,
        parallel=chat.parallel_tool_calls is not False,
        constraint=constraint,
        image=image,
    )


def _calls(
    chat: ChatRequest,
) -> tuple[Literal["none", "auto", "required", "named"], tuple[Function, ...]]:
    choice = chat.tool_choice
    if not chat.tools or choice == "none":
        return "none", ()
    if isinstance(choice, str):
        return ("required" if choice == "required" else "auto"), tuple(map(_function, chat.tools))
    names = frozenset(choice.names)
    functions = tuple(_function(tool) for tool in chat.tools if tool.function.name in names)
    if choice.allowed_tools is not None:
        return choice.allowed_tools.mode, functions
    return "named", functions[:1]


def _function(tool: Tool) -> Function:
    if len(tool.function.name) > LONGEST_NAME:
        raise ApiError.parameter(
            f"The name of a function is at most {LONGEST_NAME} characters long.", "tools"
        )
    return Function(tool.function.name, tool.function.parameters)


def _thinks(chat: ChatRequest, config: Config) -> bool:
    """Whether the model would think: the switches that chat templates know can keep it from that."""
    if chat.reasoning_effort == "none":
        return False
    kwargs = {**(config.default_chat_template_kwargs or {}), **(chat.chat_template_kwargs or {})}
    return kwargs.get("enable_thinking") is not False and kwargs.get("thinking") is not False


def _given(function: ToolFunction) -> dict[str, object]:
    """The members that were sent."""
    return {name: value for name, value in msgspec.structs.asdict(function).items() if value is not None}


def _is_strict(config: Config) -> bool:
    return config.strict_tool_validation and not config.skip_tool_validation


def _refuse_loose(tools: list[Tool]) -> None:
    for tool in tools:
        problem = strict_problem(_given(tool.function))
        if problem is not None:
            raise ApiError.parameter(f"Tool validation failed: {problem}", "tools")
