"""The items of `input` as vLLM takes them: raw objects, examined for what no item may be.

vLLM tries each item as every type of the openai package and reports the faults of all, hundreds; here one
line says what is wrong with an item.
"""

from __future__ import annotations

from typing import Any

from llmdsim.web.decoding import MAX_PROBLEMS, Path, Problem
from llmdsim.web.errors import shown

Item = dict[str, Any]

_ROLES = ("user", "assistant", "system", "developer")
_STATUSES = (None, "in_progress", "completed", "incomplete")
_DETAILS = ("auto", "low", "high", "original")
#: Content parts that are text, and the key that holds it.
_TEXT_PARTS = {"input_text": "text", "output_text": "text", "refusal": "refusal"}
_MEDIA_PARTS = ("input_image", "input_file", "input_audio")
_OUTPUT_PARTS = ("output_text", "refusal")
#: Items that pass for such, though nothing can be made of them here.
UNSUPPORTED = frozenset(
    (
        *("item_reference", "file_search_call", "computer_call", "computer_call_output", "web_search_call"),
        *("tool_search_call", "tool_search_output", "additional_tools", "configuration_update"),
        *("compaction", "compaction_trigger", "image_generation_call", "code_interpreter_call"),
        *("local_shell_call", "local_shell_call_output", "shell_call", "shell_call_output"),
        *("apply_patch_call", "apply_patch_call_output", "mcp_list_tools", "mcp_approval_request"),
        *("mcp_approval_response", "mcp_call", "program", "program_output"),
    )
)


def read(value: Any, path: Path, problems: list[Problem]) -> Any:
    """`input` as it is; what is wrong with it is appended to `problems`, all of it placed at `path`."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        problems.append(Problem("string_type", path, "expected a string or a list of items", value))
        return value
    for index, item in enumerate(value):
        fault = _fault(item)
        if fault:
            problems.append(Problem("model_attributes_type", path, f"item {index}: {fault}", item))
            if len(problems) > MAX_PROBLEMS:
                break
    return value


def _fault(item: Any) -> str:
    """What is wrong with an item, or nothing."""
    if not isinstance(item, dict):
        return "expected an object"
    kind = item.get("type")
    if kind is None:
        if "role" in item:
            return _message(item)
        return "" if isinstance(item.get("id"), str) else "an item has a type, or a role and content"
    if not isinstance(kind, str):
        return "the type of an item is a string"
    if kind in UNSUPPORTED:
        return ""
    examine = _KINDS.get(kind)
    if examine is None:
        return f"unknown type '{shown(kind)}'"
    if item.get("status") not in _STATUSES:
        return "a status is in_progress, completed or incomplete"
    return examine(item)


def _message(item: Item) -> str:
    role, content = item.get("role"), item.get("content")
    if role not in _ROLES:
        return f"a role is one of {', '.join(_ROLES)}"
    if isinstance(content, str):
        return ""
    return _parts(content, _OUTPUT_PARTS if role == "assistant" else ())


def _parts(content: Any, more: tuple[str, ...] = ()) -> str:
    if not isinstance(content, list):
        return "content is a string or a list of parts"
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        key = _TEXT_PARTS.get(kind) if isinstance(kind, str) else None
        if key is not None and (kind == "input_text" or kind in more):
            if not isinstance(part.get(key), str):
                return f"a part of type {kind} needs its {key}, a string"
        elif kind == "input_image":
            if part.get("detail", "auto") not in _DETAILS:
                return f"the detail of an image is one of {', '.join(_DETAILS)}"
            if not isinstance(part.get("image_url"), str | None):
                return "the image_url of a part of type input_image is a string"
        elif kind not in _MEDIA_PARTS:
            known = ", ".join(("input_text", *more, *_MEDIA_PARTS))
            return f"a content part has one of the types {known} here"
    return ""


def _function_call(item: Item) -> str:
    return _strings(item, "arguments", "call_id", "name") or _namespace(item)


def _custom_call(item: Item) -> str:
    return _strings(item, "call_id", "input", "name") or _namespace(item)


def _namespace(item: Item) -> str:
    return "" if isinstance(item.get("namespace"), str | None) else "a namespace is a string"


def _function_output(item: Item) -> str:
    if not isinstance(item.get("call_id"), str | None):
        return "a call_id is a string"
    return _output(item)


def _custom_output(item: Item) -> str:
    return _strings(item, "call_id") or _output(item)


def _output(item: Item) -> str:
    output = item.get("output")
    if isinstance(output, str):
        return ""
    return _parts(output) if isinstance(output, list) else "an output is a string or a list of parts"


def _reasoning(item: Item) -> str:
    if not isinstance(item.get("id", ""), str):
        return "an id is a string"
    if not isinstance(item.get("encrypted_content"), str | None):
        return "encrypted_content is a string"
    content = item.get("content")
    for name, texts, kind in (
        ("summary", item.get("summary"), "summary_text"),
        ("content", [] if content is None else content, "reasoning_text"),
    ):
        if not isinstance(texts, list) or not all(
            isinstance(text, dict) and text.get("type") == kind and isinstance(text.get("text"), str)
            for text in texts
        ):
            return f"the {name} of a reasoning item is a list of parts of type {kind}"
    return ""


def _strings(item: Item, *names: str) -> str:
    for name in names:
        if not isinstance(item.get(name), str):
            return f"an item of type {item['type']} needs its {name}, a string"
    return ""


_KINDS = {
    "message": _message,
    "function_call": _function_call,
    "function_call_output": _function_output,
    "custom_tool_call": _custom_call,
    "custom_tool_call_output": _custom_output,
    "reasoning": _reasoning,
}
