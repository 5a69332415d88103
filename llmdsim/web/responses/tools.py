"""The tools of a Responses request as chat knows them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from llmdsim.web.chat_request import Function, NamedFunction, Tool, ToolChoice
from llmdsim.web.errors import ApiError

RawTool = dict[str, Any]

#: What a custom tool's free text is wrapped in to be called as a function (vLLM).
_CUSTOM_PARAMETERS = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}


class Callee(NamedTuple):
    """How a called tool is told of: by the name in its namespace, and whether it is a custom one."""

    name: str
    namespace: str | None = None
    custom: bool = False


def flat_name(namespace: str, name: str) -> str:
    """The name under which the model sees a tool of a namespace."""
    return f"{namespace}__{name}"


def chat_tools(tools: Iterable[RawTool]) -> list[Tool]:
    """The functions the model may be shown (vLLM): those of namespaces by their full names, custom tools as
    functions of one text."""
    found = []
    for tool in tools:
        match tool["type"]:
            case "function":
                found.append(_chat_tool(tool, tool["name"]))
            case "namespace":
                found += [
                    _chat_tool(member, flat_name(tool["name"], member["name"]))
                    for member in tool["tools"]
                    if member["type"] == "function"
                ]
            case "custom":
                found.append(_chat_tool({**tool, "parameters": _CUSTOM_PARAMETERS}, tool["name"]))
    return found


def _chat_tool(tool: RawTool, name: str) -> Tool:
    function = Function(
        name=name,
        description=tool.get("description"),
        parameters=tool.get("parameters"),
        strict=tool.get("strict"),
        defer_loading=tool.get("defer_loading"),
    )
    return Tool(function)


def chat_choice(
    choice: str | dict[str, Any], functions: list[Tool], answers: bool
) -> tuple[list[Tool], str | ToolChoice]:
    """What may be called, and chat's choice of it. `answers`: the input holds what tools have answered.

    "auto" calls nothing more then, lest an agent's loop never end. Raises the 400 for a call that is
    required where there is nothing to call.
    """
    mode: str | ToolChoice = "auto"
    if isinstance(choice, str):
        mode = choice
    elif choice["type"] in ("function", "custom"):
        mode = ToolChoice(function=NamedFunction(choice["name"]))
    elif choice["type"] == "allowed_tools":
        mode = choice["mode"]
        names = {tool["name"] for tool in choice["tools"] if isinstance(tool.get("name"), str)}
        functions = [tool for tool in functions if tool.function.name in names]
    if not functions and mode not in ("auto", "none"):
        message = "`tool_choice` requires a function to be called, and `tools` has none."
        raise ApiError.parameter(message, "tool_choice")
    if mode == "auto" and (answers or not functions):
        mode = "none"
    return functions, mode


def callees(tools: Iterable[RawTool]) -> dict[str, Callee]:
    """How calls are told of, by the function's name in chat; a plain function's is not among them."""
    found = {}
    for tool in tools:
        if tool["type"] == "custom":
            found[tool["name"]] = Callee(tool["name"], custom=True)
        elif tool["type"] == "namespace":
            for member in tool["tools"]:
                found[flat_name(tool["name"], member["name"])] = Callee(member["name"], tool["name"])
    return found
