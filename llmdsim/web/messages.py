"""The messages of a chat request: raw objects, checked for what vLLM refuses and otherwise left as they are.

Any role is taken, as vLLM's permissive message type takes it. Unknown keys stay; nothing reads them. vLLM
tries each message as every type it knows and reports the faults of all; here one line says what is wrong,
placed under the first of those types, which is what its `param` names.
"""

from __future__ import annotations

from typing import Any

from llmdsim.tokenization.messages import TEXT_KEYS
from llmdsim.web.decoding import MAX_PROBLEMS, Path, Problem
from llmdsim.web.errors import ApiError, shown

Message = dict[str, Any]

_FIRST_TYPE = "ChatCompletionDeveloperMessageParam"
#: Content parts that point at media, as an object with a `url`; a bare string is taken too.
_URL_PARTS = frozenset(("image_url", "audio_url", "video_url"))
#: Other parts that are let through unexamined.
_OPAQUE_PARTS = frozenset(
    (
        "input_image",
        "input_audio",
        "image_embeds",
        "audio_embeds",
        "video_embeds",
        "image_pil",
        "tool_reference",
        "file",
    )
)
_MEDIA_KEYS = (
    "image_url",
    "audio_url",
    "video_url",
    "input_audio",
    "image_embeds",
    "audio_embeds",
    "video_embeds",
)


def plain(messages: list[Message]) -> bool:
    """Whether every message is one of the everyday shapes, so that nothing needs a closer look."""
    for message in messages:
        if type(message.get("role")) is not str:
            return False
        content = message.get("content")
        if type(content) is str:
            if len(message) > 2:
                return False
        elif type(content) is list and len(message) == 2:
            for part in content:
                if type(part) is not dict or part.get("type") != "text" or type(part.get("text")) is not str:
                    return False
        else:
            return False
    return bool(messages)


def problems_of(messages: Any, path: Path) -> list[Problem]:
    """What is wrong with the form of `messages`; empty when they may be used."""
    if not isinstance(messages, list):
        return [Problem("list_type", path, "expected a list of messages", messages)]
    problems: list[Problem] = []
    for index, message in enumerate(messages):
        _examine(message, (*path, index, _FIRST_TYPE), problems)
        if len(problems) > MAX_PROBLEMS:
            break
    return problems


def _examine(message: Any, path: Path, problems: list[Problem]) -> None:
    if not isinstance(message, dict):
        problems.append(Problem("dict_type", path, "expected a message object", message))
        return
    role, content = message.get("role"), message.get("content", "")
    if not isinstance(role, str):
        if "content" not in message:
            problems.append(Problem("missing", (*path, "content"), "this field is required", message))
        kind = "literal_error" if "role" in message else "missing"
        problems.append(Problem(kind, (*path, "role"), "a message needs a role, a string", role))
    if not isinstance(content, str | list):
        nullable = role == "assistant" or (role == "function" and "name" in message)
        if content is not None or not nullable:
            expected = "expected a string or a list of parts; only an assistant may have null"
            problems.append(Problem("string_type", (*path, "content"), expected, content))
    if not isinstance(message.get("name", ""), str):
        problems.append(Problem("string_type", (*path, "name"), "expected a string", message["name"]))
    call_id, calls = message.get("tool_call_id"), message.get("tool_calls")
    if not isinstance(call_id, str | None):
        problems.append(Problem("string_type", (*path, "tool_call_id"), "expected a string", call_id))
    if not isinstance(calls, list | None):
        problems.append(Problem("iterable_type", (*path, "tool_calls"), "expected a list", calls))


def settle(messages: list[Message]) -> None:
    """Check what vLLM checks only when it reads the conversation; rename `reasoning_content` to `reasoning`.

    `messages` have passed `problems_of`. Raises a 400, without `param`, for an empty conversation and
    unusable content parts, and one for `tool_calls` that are no function calls.
    """
    if not messages:
        raise ApiError(
            400, "A conversation needs messages: the chat template cannot be applied to an empty one."
        )
    for index, message in enumerate(messages):
        reasoning = message.pop("reasoning_content", None)
        if reasoning is not None and message.get("reasoning") is None:
            message["reasoning"] = reasoning
        content = message.get("content")
        if isinstance(content, list):
            for place, part in enumerate(content):
                _check_part(part, f"messages.{index}.content.{place}")
        if message["role"] == "assistant":
            for call in message.get("tool_calls") or ():
                _check_tool_call(call)


def _check_part(part: Any, place: str) -> None:
    if isinstance(part, str):
        return
    if not isinstance(part, dict):
        raise ApiError(400, f"{place}: a content part must be an object, not {shown(part)}.")
    kind = part.get("type")
    if kind is None:
        kind = next((key for key in _MEDIA_KEYS if key in part), None)
        if kind is None:
            raise ApiError(400, f"{place}: this content part is missing its 'type'.")
    if not isinstance(kind, str):
        raise ApiError(400, f"{place}: the 'type' of a content part must be a string.")
    key = TEXT_KEYS.get(kind)
    if key is not None:
        if not isinstance(part.get(key), str):
            raise ApiError(400, f"{place}: a part of type '{kind}' needs its '{key}' to be a string.")
    elif kind in _URL_PARTS:
        target = part.get(kind)
        if isinstance(target, dict):
            target = target.get("url")
        if not isinstance(target, str) and part.get("uuid") is None:
            raise ApiError(400, f"{place}: a part of type '{kind}' needs a '{kind}' with a 'url'.")
    elif kind not in _OPAQUE_PARTS:
        known = ", ".join(sorted((*TEXT_KEYS, *_URL_PARTS, *_OPAQUE_PARTS)))
        raise ApiError(400, f"{place}: content part type '{shown(kind)}' is not known; these are: {known}.")


def _check_tool_call(call: Any) -> None:
    if not isinstance(call, dict):
        raise ApiError.parameter("The tool_calls of an assistant must be objects.", "tool_calls")
    if call.get("type", "function") != "function" or not isinstance(call.get("function"), dict):
        raise ApiError.parameter("The tool_calls of an assistant must be of type 'function'.", "tool_calls")
