"""The schemas of tools that llm-d-inference-sim takes, a small part of JSON Schema.

Whatever it takes, values are made for: a list of schemas as `items`, on which it crashes, and parameters of
the type null, which it answers with 500, are no problem here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard

MAX_NESTING = 64
"""Schemas within each other."""


def strict_problem(function: dict[str, object]) -> str | None:
    """Why llm-d-inference-sim would refuse a tool's `function`, None if it would not.

    It looks at the parameters, and that name and description are strings if they are there; at nothing else.
    """
    for keyword in ("name", "description"):
        if not isinstance(function.get(keyword) or "", str):
            return f"{keyword} must be a string"
    if "parameters" not in function:
        return "parameters are missing"
    return _problem(function["parameters"], "parameters", 1)


def _problem(schema: object, place: str, depth: int) -> str | None:
    if not isinstance(schema, dict):
        return f"{place} must be an object"
    if depth > MAX_NESTING:
        return f"parameters nest over {MAX_NESTING} levels deep"
    kind = schema.get("type")
    if not isinstance(kind, str) or kind not in _TYPES:
        return f"{place}: type must be one of {', '.join(sorted(_TYPES))}"
    for keyword, argument in schema.items():
        rule = _KEYWORDS.get(keyword)
        if rule is None:
            return f"{place}: {keyword[:64]} is not supported"
        holds, expected = rule
        if not holds(argument):
            return f"{place}: {keyword} must be {expected}"
    if kind == "array" and "items" not in schema:
        return f"{place}: an array needs items"
    if kind == "object" and "properties" not in schema:
        return f"{place}: an object needs properties"
    return _enum_problem(schema, place, kind) or _inner_problem(schema, place, depth)


def _enum_problem(schema: dict[str, object], place: str, kind: str) -> str | None:
    options = schema.get("enum")
    if not isinstance(options, list):
        return None
    holds = _SCALARS.get(kind)
    if holds is None:
        return f"{place}: enum is not supported for the type {kind}"
    return None if all(map(holds, options)) else f"{place}: the members of enum must be of the type {kind}"


def _inner_problem(schema: dict[str, object], place: str, depth: int) -> str | None:
    inner: list[tuple[str, object]] = []
    members = schema.get("properties")
    if isinstance(members, dict):
        inner += [(f"{place}.{name[:64]}", member) for name, member in members.items()]
    items = schema.get("items")
    if isinstance(items, list):
        inner += [(f"{place}[{index}]", item) for index, item in enumerate(items)]
    elif items is not None:
        inner.append((f"{place}[]", items))
    for where, member in inner:
        problem = _problem(member, where, depth + 1)
        if problem is not None:
            return problem
    return None


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: object) -> bool:
    return _is_number(value) and value == int(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_boolean(value: object) -> bool:
    return isinstance(value, bool)


def _is_count(value: object) -> bool:
    return _is_integer(value) and value >= 0  # type: ignore[operator]


_TYPES = {"object", "array", "string", "number", "integer", "boolean", "null"}
_SCALARS: dict[str, Callable[[object], bool]] = {
    "string": _is_text,
    "integer": _is_integer,
    "number": _is_number,
    "boolean": _is_boolean,
}

Rule = tuple[Callable[[object], bool], str]

_ANYTHING: Rule = (lambda value: True, "anything")
_BOUND: Rule = (_is_number, "a number")
_OPEN_BOUND: Rule = (lambda value: isinstance(value, int | float), "a number or a boolean")
_COUNT: Rule = (_is_count, "an integer of 0 or more")
_TEXT: Rule = (_is_text, "a string")

_KEYWORDS: dict[str, Rule] = {
    "type": _TEXT,
    "title": _TEXT,
    "description": _TEXT,
    "default": _ANYTHING,
    "enum": (lambda value: isinstance(value, list), "an array"),
    "properties": (lambda value: isinstance(value, dict), "an object"),
    "required": (
        lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
        "an array of strings",
    ),
    "additionalProperties": (_is_boolean, "a boolean"),
    "items": (lambda value: isinstance(value, dict | list), "an object or an array"),
    "minItems": _COUNT,
    "maxItems": _COUNT,
    "minLength": _COUNT,
    "maxLength": _COUNT,
    "minimum": _BOUND,
    "maximum": _BOUND,
    "exclusiveMinimum": _OPEN_BOUND,
    "exclusiveMaximum": _OPEN_BOUND,
    "pattern": _TEXT,
    "format": _TEXT,
}
