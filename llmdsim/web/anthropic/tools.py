"""The tools of a Messages request as those of a chat."""

from __future__ import annotations

from typing import Any

from llmdsim.web import chat_request as chat
from llmdsim.web.anthropic.request import CHANGES, CountTokensRequest, MessageTool
from llmdsim.web.errors import ApiError, shown


def tool_fields(request: CountTokensRequest) -> dict[str, Any]:
    """The fields of a chat request that say which tools there are and whether they may be called.

    Raises ApiError 400 for a choice that cannot be met.
    """
    offered = _resolved(request)
    choice = request.tool_choice
    kind = "auto" if choice is None else choice.type
    if kind == "any" and not offered:
        raise ApiError(400, "A tool_choice of type 'any' needs tools.")
    given: str | chat.ToolChoice = "required" if kind == "any" else kind
    if choice is not None and kind == "tool":
        name = choice.name or ""
        if all(tool.name != name for tool in offered):
            raise ApiError(400, f"tool_choice names the tool {shown(name)!r}, which is not among the tools.")
        given = chat.ToolChoice(function=chat.NamedFunction(name))
    if not offered:
        return {}
    several = choice is None or not choice.disable_parallel_tool_use
    tools = [_chat_tool(tool) for tool in offered]
    return {"tools": tools, "given_tool_choice": given, "parallel_tool_calls": several}


def _chat_tool(tool: MessageTool) -> chat.Tool:
    schema = tool.input_schema
    function = chat.Function(
        name=tool.name,
        description=tool.description,
        parameters=schema if "type" in schema else {**schema, "type": "object"},
        strict=tool.strict,
        defer_loading=tool.defer_loading,
    )
    return chat.Tool(function)


def _resolved(request: CountTokensRequest) -> list[MessageTool]:
    """The tools there are once the conversation has added and removed what it does."""
    changes = [
        block
        for message in request.messages
        if not isinstance(message.content, str)
        for block in message.content
        if block.type in CHANGES
    ]
    if not changes:
        return request.tools or []
    tools = {tool.name: tool for tool in request.tools or ()}
    removed = set()
    for block in changes:
        change = block.tool
        assert change is not None
        if change.definition is not None and change.type == "tool_definition":
            name = change.definition.name
            tools[name] = change.definition
        else:
            name = change.name or ""
            if name not in tools:
                message = f"{block.type} refers to the tool {shown(name)!r}, which is not declared in tools."
                raise ApiError(400, message)
        if block.type == "tool_removal":
            removed.add(name)
        else:
            removed.discard(name)
    return [tool for name, tool in tools.items() if name not in removed]
