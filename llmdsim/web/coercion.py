"""The lenient reading of a JSON object into a struct: values as pydantic takes them, all problems collected.

`msgspec` decodes what is already exact; this reads the rest, such as `"max_tokens": "1"`. What each field may
hold is taken from the struct's own annotations, so there is one table of fields. The rules are pydantic's
"lax" conversions, as observed: numbers in strings, `5.0` for an integer, booleans for numbers, words for
booleans; never a number for a string.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from itertools import chain
from typing import Any, TypeVar, cast

import msgspec
from msgspec import inspect as types

from llmdsim.web import decoding
from llmdsim.web.decoding import MAX_PROBLEMS, Path, Problem
from llmdsim.web.errors import shown

_INTEGER = re.compile(r"\s*([+-]?[0-9]+(?:_[0-9]+)*)(?:\.0+)?\s*\Z")
_NUMBER = re.compile(r"[0-9_.eE+-]+\Z|[+-]?(?:inf|infinity|nan)\Z", re.IGNORECASE)
_TRUE = frozenset(("1", "on", "t", "true", "y", "yes"))
_FALSE = frozenset(("0", "off", "f", "false", "n", "no"))
_INT64 = 2**63
#: Digits of an integer in a string; the interpreter itself refuses more.
_MAX_DIGITS = 4300

Problems = list[Problem]
S = TypeVar("S", bound=msgspec.Struct)
Reader = Callable[[Any, Path, Problems], Any]


def read(
    struct: type[msgspec.Struct],
    data: Mapping[str, Any],
    problems: Problems,
    path: Path = (),
    special: Mapping[str, Reader] | None = None,
) -> dict[str, Any]:
    """The struct's fields found in `data`, each in its declared type; unknown keys are dropped.

    What cannot be read is appended to `problems`. `special` replaces the reading of single fields, by name.
    """
    result: dict[str, Any] = {}
    for field in _fields(struct):
        name = field.encode_name
        if name not in data:
            if field.required:
                problems.append(Problem("missing", (*path, name), "this field is required"))
        elif special is not None and name in special:
            result[name] = special[name](data[name], (*path, name), problems)
        else:
            result[name] = _read(field.type, data[name], (*path, name), problems)
    return result


def read_whole(struct: type[S], data: Mapping[str, Any], special: Mapping[str, Reader]) -> S:
    """The struct of a whole body. Raises the 400 with all its problems, or for nesting too deeply."""
    problems: Problems = []
    fields = read(struct, data, problems, special=special)
    if problems:
        raise decoding.refusal(problems)
    try:
        request = msgspec.convert(fields, struct)
    except (msgspec.ValidationError, RecursionError) as error:
        # The reading follows the struct's annotations, so this is not reached but by deep nesting.
        raise decoding.refusal([Problem("value_error", (), str(error))]) from None
    if decoding.nested_too_deeply(request):
        raise decoding.too_deep()
    return request


def read_body(struct: type[S], body: bytes, content_type: str | None) -> S:
    """The struct of a body that nobody needs to read fast. Raises `ApiError` 400; never another exception."""
    decoding.refuse_media_type(content_type)
    return read_whole(struct, decoding.parse(body), {})


@cache
def _fields(struct: type[msgspec.Struct]) -> tuple[types.Field, ...]:
    return cast("types.StructType", types.type_info(struct)).fields


def _read(kind: types.Type, value: Any, path: Path, problems: Problems) -> Any:
    match kind:
        case types.AnyType():
            return value
        case types.StrType():
            if not isinstance(value, str):
                problems.append(Problem("string_type", path, "expected a string", value))
            return value
        case types.BoolType():
            return boolean(value, path, problems)
        case types.IntType():
            return _bounded(integer(value, path, problems), kind, value, path, problems)
        case types.FloatType():
            return _bounded(number(value, path, problems), kind, value, path, problems)
        case types.LiteralType():
            if value not in kind.values:
                allowed = ", ".join(repr(item) for item in kind.values)
                problems.append(Problem("literal_error", path, f"expected one of {allowed}", value))
            return value
        case types.ListType():
            return _list(kind, value, path, problems)
        case types.DictType():
            return _dict(kind, value, path, problems)
        case types.StructType():
            if not isinstance(value, dict):
                problems.append(Problem("model_attributes_type", path, "expected an object", value))
                return value
            return read(kind.cls, value, problems, path)
        case types.UnionType():
            return _union(kind, value, path, problems)
    raise TypeError(f"no lenient reading of {kind!r}")


def integer(value: Any, path: Path, problems: Problems) -> Any:
    """An int from an int, a bool, an integral float below 2**63 or a string of one."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            problems.append(Problem("finite_number", path, "expected a finite number", value))
        elif not value.is_integer():
            problems.append(Problem("int_from_float", path, "expected an integer, not a fraction", value))
        elif not -_INT64 < value < _INT64:
            problems.append(Problem("int_parsing_size", path, "this integer is too large", value))
        else:
            return int(value)
    elif isinstance(value, str):
        if len(value) > _MAX_DIGITS:
            problems.append(Problem("int_parsing_size", path, "this integer is too large", value))
        elif found := _INTEGER.match(value):
            return int(found[1])
        else:
            problems.append(Problem("int_parsing", path, "expected an integer; this text is none", value))
    else:
        problems.append(Problem("int_type", path, "expected an integer", value))
    return value


def number(value: Any, path: Path, problems: Problems) -> Any:
    """A float from a float, an int, a bool or a string of one; NaN and infinities pass."""
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            problems.append(Problem("float_type", path, "this number is too large", value))
    elif isinstance(value, str):
        text = value.strip()
        if _NUMBER.match(text):
            try:
                return float(text)
            except ValueError:
                pass
        problems.append(Problem("float_parsing", path, "expected a number; this text is none", value))
    else:
        problems.append(Problem("float_type", path, "expected a number", value))
    return value


def boolean(value: Any, path: Path, problems: Problems) -> Any:
    """A bool from a bool, 0 or 1, or one of pydantic's words in any case."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        word = value.lower()
        if word in _TRUE:
            return True
        if word in _FALSE:
            return False
    elif isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    wordlike = isinstance(value, str) or (
        isinstance(value, int | float) and value % 1 == 0 and abs(value) < _INT64
    )
    problems.append(
        Problem("bool_parsing" if wordlike else "bool_type", path, "expected true or false", value)
    )
    return value


def _bounded(
    result: Any, kind: types.IntType | types.FloatType, value: Any, path: Path, problems: Problems
) -> Any:
    if isinstance(result, int | float):
        if kind.ge is not None and result < kind.ge:
            problems.append(
                Problem("greater_than_equal", path, f"expected at least {kind.ge}", value, {"ge": kind.ge})
            )
        elif kind.le is not None and result > kind.le:
            problems.append(
                Problem("less_than_equal", path, f"expected at most {kind.le}", value, {"le": kind.le})
            )
    return result


def _list(kind: types.ListType, value: Any, path: Path, problems: Problems) -> Any:
    if not isinstance(value, list):
        problems.append(Problem("list_type", path, "expected a list", value))
        return value
    most = kind.max_length
    if most is not None and len(value) > most:
        context = {"field_type": "List", "max_length": most, "actual_length": len(value)}
        problems.append(
            Problem("too_long", path, f"expected at most {most} items, not {len(value)}", value, context)
        )
        return value
    result = []
    for index, item in enumerate(value):
        result.append(_read(kind.item_type, item, (*path, index), problems))
        if len(problems) > MAX_PROBLEMS:
            break
    return result


def _dict(kind: types.DictType, value: Any, path: Path, problems: Problems) -> Any:
    if not isinstance(value, dict):
        problems.append(Problem("dict_type", path, "expected an object", value))
        return value
    result = {}
    for key, item in value.items():
        result[key] = _read(kind.value_type, item, (*path, shown(key)), problems)
        if len(problems) > MAX_PROBLEMS:
            break
    return result


def _union(kind: types.UnionType, value: Any, path: Path, problems: Problems) -> Any:
    """The branch that holds the value exactly, else the first that can read it, else the problems of all."""
    if value is None and any(isinstance(branch, types.NoneType) for branch in kind.types):
        return None
    branches = [branch for branch in kind.types if not isinstance(branch, types.NoneType)]
    if len(branches) == 1:
        return _read(branches[0], value, path, problems)
    found: list[Problems] = [[] for _ in branches]
    for index in sorted(range(len(branches)), key=lambda index: not _holds(branches[index], value)):
        result = _read(branches[index], value, path, found[index])
        if not found[index]:
            return result
    problems += chain.from_iterable(found)
    return value


def _holds(kind: types.Type, value: Any) -> bool:
    """Whether a value is of a kind without being converted."""
    match kind:
        case types.StrType():
            return isinstance(value, str)
        case types.IntType():
            return type(value) is int
        case types.FloatType():
            return type(value) in (int, float)
        case types.ListType():
            return isinstance(value, list) and all(_holds(kind.item_type, item) for item in value)
        case types.DictType() | types.StructType():
            return isinstance(value, dict)
        case types.UnionType():
            return any(_holds(branch, value) for branch in kind.types)
    return False
