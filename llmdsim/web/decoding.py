"""From the bytes of a body to a struct or plain objects, or to the 400 that tells what is wrong with them.

The media type is deliberately not checked: `curl -d` says `application/x-www-form-urlencoded`, and users of
llm-d-inference-sim send JSON that way. Only `multipart/form-data` is refused, where the body cannot be JSON.
(vLLM takes `application/json` alone.) Bodies in UTF-16 or UTF-32 and a byte order mark are read, as vLLM
reads them; malformed UTF-8 is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from llmdsim.web.errors import ApiError, shown

#: Objects and arrays inside one another that a request may hold. Parsers give up near 1,000; code that later
#: walks the parsed body recursively needs room, and no client's tool schema comes near.
MAX_NESTING = 200

#: Reading stops after this many problems: millions of bad items would cost seconds and help nobody.
MAX_PROBLEMS = 100
_MAX_REPORTED = 10
_MAX_INPUT = 200
_MAX_LINE = 1000
#: An escape or a byte pair that may be half a surrogate pair, or a byte only UTF-16 and UTF-32 bodies have.
_MAYBE_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]|\x00")

Path = tuple[str | int, ...]
T = TypeVar("T")

_CONTAINERS = (dict, list, msgspec.Struct)
_PLAIN = frozenset((int, float, str, bool, type(None)))


class Problem(NamedTuple):
    """One thing wrong with a body, with pydantic's name for it; `path` starts at the body, `("n",)`."""

    type: str
    path: Path
    message: str
    input: object = None
    context: Mapping[str, object] | None = None


def refuse_media_type(content_type: str | None) -> None:
    """Raise a 400 when the body is a multipart form."""
    if content_type is not None and content_type.lstrip()[:9].lower() == "multipart":
        raise ApiError(
            400,
            "1 validation error:\n  Unsupported Media Type: send 'application/json', not a form",
            type="Bad Request",
        )


def refusal(problems: list[Problem], part: str = "body") -> ApiError:
    """The 400 for a part of a request that has the wrong form: ten lines at most.

    `param` is the first problem's place.
    """
    count = len(problems)
    noun = "error" if count == 1 else "errors"
    lines = [f"{count} validation {noun}:", *(_line(problem, part) for problem in problems[:_MAX_REPORTED])]
    if count > _MAX_REPORTED:
        lines.append(f"  ...and {count - _MAX_REPORTED} more {noun}")
    return ApiError(400, "\n".join(lines), type="Bad Request", param=_place(part, problems[0].path))


def _place(part: str, path: Path) -> str:
    return ".".join((part, *map(str, path)))


def _line(problem: Problem, part: str) -> str:
    fields: dict[str, object] = {
        "type": problem.type,
        "loc": _place(part, problem.path),
        "msg": problem.message,
        "input": _summary(problem.input),
    }
    if problem.context is not None:
        fields["ctx"] = dict(problem.context)
    text = f"  {fields}"
    return text if len(text) <= _MAX_LINE else f"{text[:_MAX_LINE]}...[truncated]"


def _summary(value: object) -> object:
    if isinstance(value, dict | list):
        return f"<{type(value).__name__} of {len(value)} items>"
    if value is None or isinstance(value, bool | float):
        return value
    try:
        text = str(value)
    except ValueError:  # an integer too long for the interpreter to print
        return f"<{type(value).__name__}>"
    if len(text) > _MAX_INPUT:
        return f"{text[:_MAX_INPUT]}...[truncated]"
    return value


def parse(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`, as plain objects. NaN and Infinity are numbers; the last of equal keys wins.

    Raises the 400 vLLM gives for a body that is empty, malformed, unreadable, no object, or nested beyond
    what the parser can follow.
    """
    if not body:
        raise refusal([Problem("missing", (), "a request body is required")])
    try:
        data = json.loads(body)
    except json.JSONDecodeError as error:
        problem = Problem(
            "json_invalid", (error.pos,), "the body is not valid JSON", None, {"error": error.msg}
        )
        raise refusal([problem]) from None
    except RecursionError:
        raise too_deep() from None
    except ValueError:  # not text in any of JSON's encodings, or an integer of more than 4,300 digits
        raise ApiError(400, "There was an error parsing the body", type="Bad Request") from None
    if data is None:
        raise refusal([Problem("missing", (), "a request body is required")])
    if not isinstance(data, dict):
        raise refusal([Problem("model_attributes_type", (), "the body must be a JSON object", data)])
    if _MAYBE_SURROGATE.search(body):
        _refuse_surrogates(data)
    return data


def exact(decoder: msgspec.json.Decoder[T], body: bytes) -> T | None:
    """What is in `body`, if every value has just the type it should have; else None.

    Whoever takes it asks `bad_utf8` and `refuse_too_deep` as well.
    """
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None


def refuse_too_deep(body: bytes, found: msgspec.Struct) -> None:
    """Raise the 400 for a body, read as `found`, that nests beyond `MAX_NESTING`."""
    if may_nest_too_deeply(body) and nested_too_deeply(found):
        raise too_deep()


def too_deep() -> ApiError:
    """The 400 for a body nested beyond `MAX_NESTING`."""
    message = (
        f"There was an error parsing the body: objects and arrays may nest at most {MAX_NESTING} levels deep"
    )
    return ApiError(400, message, type="Bad Request")


def nested_too_deeply(value: object, limit: int = MAX_NESTING) -> bool:
    """Whether objects, arrays and structs nest over `limit` deep, `value` being the first. Not recursive."""
    level: list[object] = [value] if isinstance(value, _CONTAINERS) else []
    for _ in range(limit):
        if not level:
            return False
        level = [child for node in level for child in _containers(node)]
    return bool(level)


def _containers(node: object) -> Iterable[object]:
    children = _children(node)
    # Many hold nothing else, token ids above all; to ask for types is several times as fast.
    if _PLAIN.issuperset(map(type, children)):
        return ()
    return [child for child in children if isinstance(child, _CONTAINERS)]


def _children(node: Any) -> Iterable[object]:
    if isinstance(node, dict):
        return node.values()
    if isinstance(node, list):
        return node
    return msgspec.structs.astuple(node)


def may_nest_too_deeply(body: bytes) -> bool:
    """Whether a body, which can be read, has so many brackets that its depth must be looked at."""
    return len(body) > 2 * MAX_NESTING and body.count(b"{") + body.count(b"[") > MAX_NESTING


def bad_utf8(body: bytes) -> bool:
    """Whether a body is not UTF-8: the decoder does not look inside fields it skips."""
    if body.isascii():
        return False
    try:
        body.decode()
    except UnicodeDecodeError:
        return True
    return False


def _refuse_surrogates(data: dict[str, Any]) -> None:
    """Half a surrogate pair is no character: it could never be sent back as UTF-8."""
    for field, value in data.items():
        pending: list[object] = [field, value]
        while pending:
            node = pending.pop()
            if isinstance(node, str):
                if _has_surrogate(node):
                    raise refusal(
                        [Problem("string_unicode", (shown(field),), "the text holds half a surrogate pair")]
                    )
            elif isinstance(node, dict):
                pending += node.keys()
                pending += node.values()
            elif isinstance(node, list):
                pending += node


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
