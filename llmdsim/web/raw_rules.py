"""Rules over the raw body that vLLM runs before it looks at types: combinations no request may have.

Each takes the parsed body and raises the 400 vLLM gives; where several are broken, their order decides.
They see values as the client sent them, so `"false"` counts as true, as it does there.
"""

from __future__ import annotations

from typing import Any

from llmdsim.web.errors import ApiError, shown

_SALT_LENGTH = 128
_SALT_FORBIDDEN = frozenset("@/\\\0")
_NAMED_FORM = 'name a function as {"type": "function", "function": {"name": "my_function"}}'


def stream_options(data: dict[str, Any]) -> None:
    """`stream_options` needs `stream`."""
    if data.get("stream_options") and not data.get("stream"):
        raise ApiError.parameter("Stream options only work together with `stream=True`.", "stream_options")


def cache_salt(data: dict[str, Any]) -> None:
    """A salt is 1 to 128 characters, none of which could break out of a cache key."""
    salt = data.get("cache_salt")
    if salt is None:
        return
    if not isinstance(salt, str) or not salt:
        raise ApiError.parameter("'cache_salt', where given, must be a non-empty string.", "cache_salt")
    if len(salt) > _SALT_LENGTH or not _SALT_FORBIDDEN.isdisjoint(salt):
        message = (
            f"'cache_salt' may have at most {_SALT_LENGTH} characters, and none of '@', '/', '\\' and NUL."
        )
        raise ApiError.parameter(message, "cache_salt")


def response_format(data: dict[str, Any]) -> None:
    """Type `json_schema` needs its schema; a structural tag needs a format, or structures and triggers."""
    wanted = data.get("response_format")
    if not isinstance(wanted, dict):
        return
    kind = wanted.get("type")
    if kind == "json_schema" and wanted.get("json_schema") is None:
        message = "With response_format type 'json_schema', the field 'json_schema' must be provided."
        raise ApiError.parameter(message, "response_format")
    if kind == "structural_tag" and not _is_tag(wanted):
        raise ApiError.parameter("This is an invalid structural_tag in response_format.", "response_format")


def _is_tag(wanted: dict[str, Any]) -> bool:
    if isinstance(wanted.get("format"), dict):
        return True
    structures, triggers = wanted.get("structures"), wanted.get("triggers")
    return (
        isinstance(structures, list)
        and isinstance(triggers, list)
        and all(isinstance(item, str) for item in triggers)
        and all(
            isinstance(item, dict) and isinstance(item.get("begin"), str) and isinstance(item.get("end"), str)
            for item in structures
        )
    )


def structured_outputs(data: dict[str, Any], param: str | None) -> int:
    """At most one of json, regex and choice; returns how many there are. The refusal names `param`."""
    wanted = data.get("structured_outputs")
    if not isinstance(wanted, dict):
        return 0
    count = sum(wanted.get(kind) is not None for kind in ("json", "regex", "choice"))
    if count > 1:
        message = "structured_outputs takes one kind of constraint: 'json', 'regex' or 'choice'."
        raise ApiError(400, message) if param is None else ApiError.parameter(message, param)
    return count


def integers(data: dict[str, Any], *fields: str) -> None:
    """Log probability counts must be numbers before they are compared."""
    for field in fields:
        value = data.get(field)
        if value is not None and not isinstance(value, int | float):
            raise ApiError.parameter(f"`{field}` must be an integer.", field, value)


def prompt_logprobs(data: dict[str, Any]) -> None:
    """Not with `stream`, unless 0; otherwise at least 0, or -1 for the whole vocabulary."""
    count = data.get("prompt_logprobs")
    if count is None:
        return
    if data.get("stream") and (count > 0 or count == -1):
        raise ApiError.parameter("`prompt_logprobs` are not available when `stream=True`.", "prompt_logprobs")
    non_negative(data, "prompt_logprobs")


def non_negative(data: dict[str, Any], field: str) -> None:
    """At least 0, or -1 for the whole vocabulary."""
    count = data.get(field)
    if count is not None and count < 0 and count != -1:
        raise ApiError.parameter(f"`{field}` must be a positive value or -1.", field, count)


def logprob_token_ids(data: dict[str, Any], logprobs_given: bool) -> None:
    """Chosen ids need log probabilities to be asked for, and cannot be had from beam search."""
    if not data.get("logprob_token_ids"):
        return
    if data.get("use_beam_search"):
        raise ApiError.parameter("`logprob_token_ids` does not work with beam search.", "logprob_token_ids")
    if not logprobs_given:
        raise ApiError.parameter("`logprob_token_ids` needs `logprobs` to be set.", "logprob_token_ids")


def tools(data: dict[str, Any]) -> None:
    """`tools` is not empty; `tool_choice` needs tools, is a known word or names one of them."""
    offered = data.get("tools")
    if offered == []:
        message = "`tools` must not be an empty array: offer at least one tool or leave the field out."
        raise ApiError.parameter(message, "tools")
    choice = data.get("tool_choice")
    if choice is None or choice == "none":
        return
    if offered is None:
        raise ApiError.parameter("With `tool_choice`, `tools` must be set.", "tool_choice")
    if isinstance(choice, dict):
        if choice.get("type") == "allowed_tools":
            _allowed_tools(choice, offered)
        else:
            _named_tool(choice, offered)
    elif choice not in ("auto", "required"):
        message = (
            f'Invalid value for `tool_choice`: {shown(choice)}; use "none", "auto", "required" or a name.'
        )
        raise ApiError.parameter(message, "tool_choice")


def _named_tool(choice: dict[str, Any], offered: object) -> None:
    function = choice.get("function")
    if not isinstance(function, dict):
        raise ApiError.parameter(f"`tool_choice` has no `function`; {_NAMED_FORM}.", "tool_choice.function")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        message = f"`tool_choice` has no `name` in its `function`; {_NAMED_FORM}."
        raise ApiError.parameter(message, "tool_choice.function.name")
    # A tool without a name is left to the type check, which says so; vLLM answers 500 here.
    if name not in _tool_names(offered):
        raise ApiError.parameter("`tool_choice` does not match any of the `tools` offered.", "tool_choice")


def _allowed_tools(choice: dict[str, Any], offered: object) -> None:
    allowed = choice.get("allowed_tools")
    tools = allowed.get("tools") if isinstance(allowed, dict) else None
    if not isinstance(tools, list) or not tools:
        message = "`tool_choice` of type `allowed_tools` lists no tools in its `allowed_tools.tools`."
        raise ApiError.parameter(message, "tool_choice.allowed_tools")
    missing = _tool_names(tools) - _tool_names(offered)
    if missing:
        message = (
            f"`tool_choice` allows what is none of the `tools` offered: {shown(sorted(map(str, missing)))}."
        )
        raise ApiError.parameter(message, "tool_choice.allowed_tools")


def _tool_names(offered: object) -> set[object]:
    names: set[object] = set()
    for tool in offered if isinstance(offered, list) else ():
        function = tool.get("function") if isinstance(tool, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(name, str):
            names.add(name)
    return names
