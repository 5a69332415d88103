"""`tools` and `tool_choice` as they are sent, examined for what they may not be."""

from __future__ import annotations

from typing import Any

from llmdsim.web.decoding import MAX_PROBLEMS, Path, Problem
from llmdsim.web.errors import ApiError, shown
from llmdsim.web.responses.tools import RawTool, flat_name

#: Tools that run on OpenAI's side, echoed and never called, and what their definitions cannot do without.
_HOSTED: dict[str, tuple[str, ...]] = {
    "file_search": ("vector_store_ids",),
    "computer": (),
    "computer_use_preview": ("display_height", "display_width", "environment"),
    "web_search": (),
    "web_search_2025_08_26": (),
    "web_search_preview": (),
    "web_search_preview_2025_03_11": (),
    "mcp": ("server_label",),
    "code_interpreter": ("container",),
    "image_generation": (),
    "local_shell": (),
    "shell": (),
    "tool_search": (),
    "apply_patch": (),
    "programmatic_tool_calling": (),
}
#: Hosted tools that `tool_choice` may name by their type alone.
_CHOICES = frozenset((*_HOSTED, "computer_use"))
_UNKNOWN = "`tool_choice` does not match any of the `tools` offered."


def settle_choice(data: dict[str, Any]) -> None:
    """Check a raw `tool_choice` against the raw `tools`, as vLLM does before it looks at types.

    Without tools "auto" becomes "none"; a name within a namespace becomes `<namespace>__<name>`.
    """
    choice, offered = data.get("tool_choice", "auto"), data.get("tools")
    named = isinstance(choice, dict) and choice.get("type") in ("function", "custom")
    if not offered:
        if choice in ("auto", "none"):
            data["tool_choice"] = "none"
        elif choice == "required":
            raise ApiError.parameter("With `tool_choice` 'required', `tools` must be set.", "tool_choice")
        elif named:
            raise ApiError.parameter(_UNKNOWN, "tool_choice")
    elif named and isinstance(offered, list):
        name = choice.get("name")
        if not isinstance(name, str) or not name:
            raise ApiError.parameter(_UNKNOWN, "tool_choice")
        data["tool_choice"] = {**choice, "name": _resolved(name, offered)}


def _resolved(name: str, offered: list[Any]) -> str:
    exact = set()
    inside = []
    for tool in offered:
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
            continue
        if tool.get("type") != "namespace":
            exact.add(tool["name"])
            continue
        members = tool.get("tools")
        for member in members if isinstance(members, list) else ():
            local = member.get("name") if isinstance(member, dict) else None
            if isinstance(local, str):
                full = flat_name(tool["name"], local)
                exact.add(full)
                if local == name:
                    inside.append(full)
    if name in exact:
        return name
    if not inside:
        raise ApiError.parameter(_UNKNOWN, "tool_choice")
    if len(inside) > 1:
        message = f"`tool_choice` is ambiguous, it may be any of these: {shown(inside)}."
        raise ApiError.parameter(message, "tool_choice")
    return inside[0]


def refuse_grammars(data: dict[str, Any]) -> None:
    """Raise the 400 for a custom tool whose input is to follow a grammar."""
    offered = data.get("tools")
    for tool in offered if isinstance(offered, list) else ():
        if isinstance(tool, dict) and tool.get("type") == "custom":
            wanted = tool.get("format")
            if isinstance(wanted, dict) and wanted.get("type") == "grammar":
                message = "Custom tools with a grammar are not supported; their input is free text."
                raise ApiError.parameter(message, "tools")


def read(value: Any, path: Path, problems: list[Problem]) -> Any:
    """`tools` as they are; what is wrong with them is appended to `problems`."""
    if not isinstance(value, list):
        problems.append(Problem("list_type", path, "expected a list of tools", value))
        return value
    for index, tool in enumerate(value):
        fault = _fault(tool)
        if fault:
            problems.append(Problem("model_attributes_type", (*path, index), fault, tool))
            if len(problems) > MAX_PROBLEMS:
                break
    return value


def _fault(tool: Any, inside: bool = False) -> str:
    if not isinstance(tool, dict):
        return "expected an object"
    kind = tool.get("type")
    if kind == "function":
        return _function_fault(tool)
    if kind == "custom":
        return _custom_fault(tool)
    if kind == "namespace" and not inside:
        if not isinstance(tool.get("name"), str) or not isinstance(tool.get("description"), str):
            return "a namespace needs its name and description, strings"
        members = tool.get("tools")
        if not isinstance(members, list):
            return "a namespace needs its tools, a list"
        return next((fault for fault in (_fault(member, True) for member in members) if fault), "")
    required = _HOSTED.get(kind) if isinstance(kind, str) and not inside else None
    if required is None:
        return f"unknown type of tool: {shown(kind)}"
    missing = [name for name in required if name not in tool]
    return f"a tool of type {kind} needs its {missing[0]}" if missing else ""


def _function_fault(tool: RawTool) -> str:
    if not isinstance(tool.get("name"), str):
        return "a function needs its name, a string, beside its type"
    for name in ("parameters", "output_schema"):
        if not isinstance(tool.get(name), dict | None):
            return f"the {name} of a function are an object"
    if not isinstance(tool.get("strict"), bool | None):
        return "strict is true or false"
    return _common_fault(tool)


def _custom_fault(tool: RawTool) -> str:
    if not isinstance(tool.get("name"), str):
        return "a custom tool needs its name, a string"
    wanted = tool.get("format")
    if wanted is not None and not (isinstance(wanted, dict) and wanted.get("type") == "text"):
        return "the format of a custom tool is an object of type text"
    return _common_fault(tool)


def _common_fault(tool: RawTool) -> str:
    if not isinstance(tool.get("description"), str | None):
        return "a description is a string"
    for name in ("async", "defer_loading"):
        if not isinstance(tool.get(name), bool | None):
            return f"{name} is true or false"
    return ""


def read_choice(value: Any, path: Path, problems: list[Problem]) -> Any:
    """`tool_choice` as it is; what is wrong with it is appended to `problems`."""
    fault = _choice_fault(value)
    if fault:
        problems.append(Problem("literal_error", path, fault, value))
    return value


def _choice_fault(choice: Any) -> str:
    if choice in ("none", "auto", "required"):
        return ""
    if not isinstance(choice, dict):
        return "expected 'none', 'auto', 'required' or an object"
    kind = choice.get("type")
    if kind in ("function", "custom"):
        return "" if isinstance(choice.get("name"), str) else "a tool is chosen by its name"
    if kind == "allowed_tools":
        allowed = choice.get("tools")
        if choice.get("mode") not in ("auto", "required"):
            return "the mode of allowed_tools is 'auto' or 'required'"
        if not isinstance(allowed, list) or not all(isinstance(tool, dict) for tool in allowed):
            return "the tools of allowed_tools are a list of objects"
        return ""
    if kind == "mcp" and not isinstance(choice.get("server_label"), str):
        return "an mcp tool is chosen by its server_label"
    return "" if isinstance(kind, str) and kind in _CHOICES else f"unknown type of choice: {shown(kind)}"
