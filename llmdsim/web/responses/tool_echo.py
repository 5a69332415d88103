"""`tools` and `tool_choice` as the answer repeats them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llmdsim.web.responses.tools import RawTool

_COMMON = ("type", "allowed_callers", "async", "defer_loading", "description")
#: Keys in which tools are echoed, those not given as null.
_ECHOED = {
    "function": ("name", "parameters", "strict", *_COMMON, "output_schema"),
    "custom": ("name", *_COMMON, "format"),
}
_ECHOED_CHOICE = {
    "function": ("name", "type"),
    "custom": ("name", "type"),
    "allowed_tools": ("mode", "tools", "type"),
    "mcp": ("server_label", "type", "name"),
}
_ECHOED_INSIDE = {
    "function": ("name", *_COMMON, "output_schema", "parameters", "strict"),
    "custom": _ECHOED["custom"],
}


def echoed(tools: Iterable[RawTool]) -> list[RawTool]:
    """`tools` as the answer repeats them: every key of theirs, nulls kept, then what is unknown."""
    return [_echo(tool, _ECHOED) for tool in tools]


def _echo(tool: RawTool, keys: dict[str, tuple[str, ...]]) -> RawTool:
    if tool["type"] == "namespace":
        members = [_echo(member, _ECHOED_INSIDE) for member in tool["tools"]]
        return {
            "description": tool["description"],
            "name": tool["name"],
            "tools": members,
            "type": "namespace",
        }
    known = dict.fromkeys(keys.get(tool["type"], ()))
    return {**known, **tool}


def echoed_choice(choice: str | dict[str, Any]) -> str | dict[str, Any]:
    """`tool_choice` as the answer repeats it."""
    if isinstance(choice, str):
        return choice
    return {**dict.fromkeys(_ECHOED_CHOICE.get(choice["type"], ())), **choice}
