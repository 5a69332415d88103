"""Tells whether a value is valid for a schema, in bounded time.

The `jsonschema` library decides the same, but with a client's schema it may take forever, and it takes a
tenth of a second to load. What is not known here is not guessed at: TooHardError.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Any

from llmdsim.reply.effort import Effort, TooHardError
from llmdsim.reply.regex import InvalidRegexError, Regex, regex
from llmdsim.reply.schema.document import NOWHERE, Document
from llmdsim.reply.schema.equality import frozen, same, weight
from llmdsim.reply.schema.formats import FORMATS
from llmdsim.reply.schema.keywords import Number, item_schemas
from llmdsim.reply.schema.numbers import is_multiple

MAX_NESTING = 80
"""Schemas within schemas, as they apply to a value and its members; references count."""


class Checker:
    def __init__(self, document: Document, effort: Effort) -> None:
        self.document = document
        self.effort = effort
        self._depth = 0

    def accepts(self, value: object, schema: object) -> bool:
        """Whether `value` is valid. Raises TooHardError where that cannot be said."""
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict) or self._depth > MAX_NESTING:
            raise TooHardError
        self.effort.spend(1 + len(schema))
        self._depth += 1
        try:
            for keyword, argument in schema.items():
                rule = _RULES.get(keyword)
                if isinstance(argument, list | dict) and keyword != "properties":
                    # All of it may be gone through, though rarely for long.
                    self.effort.spend(len(argument) >> 4)
                if rule is not None and not rule(self, argument, value, schema):
                    return False
        except (TypeError, ValueError, AttributeError, OverflowError):
            # The keyword has a value that makes no sense.
            raise TooHardError from None
        finally:
            self._depth -= 1
        return True

    def size(self, value: object) -> int:
        """What it takes to compare `value` with another."""
        return 1 + weight(value, 4 * max(self.effort.left, 0)) // 4

    def matches(self, pattern: str, text: str) -> bool:
        found = self.compiled(pattern).matches(text, effort=self.effort)
        if found is None:
            raise TooHardError
        return found

    def compiled(self, pattern: str) -> Regex:
        """Raises TooHardError for a pattern that is none."""
        self.effort.spend(4 + len(pattern))
        try:
            return regex(pattern)
        except InvalidRegexError:
            raise TooHardError from None


Rule = Callable[[Checker, Any, Any, dict[str, Any]], bool]
"""Of the checker, a keyword's argument, the value and the schema. May raise what nonsense raises."""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_type(name: str, value: object) -> bool:
    match name:
        case "string":
            return isinstance(value, str)
        case "integer":
            return _is_number(value) and value == int(value)  # type: ignore[call-overload]
        case "number":
            return _is_number(value)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
    raise TooHardError


def _type(checker: Checker, named: Any, value: Any, schema: dict[str, Any]) -> bool:
    if isinstance(named, str):
        return _is_type(named, value)
    return any(_is_type(name, value) for name in named)


def _enum(checker: Checker, options: list[Any], value: Any, schema: dict[str, Any]) -> bool:
    if isinstance(value, str):
        return value in options
    checker.effort.spend(len(options) * checker.size(value))
    return any(same(option, value) for option in options)


def _const(checker: Checker, option: Any, value: Any, schema: dict[str, Any]) -> bool:
    checker.effort.spend(checker.size(value))
    return same(option, value)


# -- Numbers -----------------------------------------------------------------------------------------------


def _bound(holds: Callable[[Number, Number], bool]) -> Rule:
    def rule(checker: Checker, bound: Any, value: Any, schema: dict[str, Any]) -> bool:
        return not _is_number(value) or holds(value, bound)

    return rule


def _open_bound(closed: str, holds: Callable[[Number, Number], bool]) -> Rule:
    """An exclusive bound; before 2016 it was a boolean beside the closed one."""

    def rule(checker: Checker, bound: Any, value: Any, schema: dict[str, Any]) -> bool:
        if isinstance(bound, bool):
            bound = schema.get(closed) if bound else None
        return bound is None or not _is_number(value) or holds(value, bound)

    return rule


# -- Strings -----------------------------------------------------------------------------------------------


def _pattern(checker: Checker, pattern: str, value: Any, schema: dict[str, Any]) -> bool:
    return not isinstance(value, str) or checker.matches(pattern, value)


def _format(checker: Checker, name: Any, value: Any, schema: dict[str, Any]) -> bool:
    known = FORMATS.get(name)
    return known is None or not isinstance(value, str) or known.holds(value)


# -- Sizes -------------------------------------------------------------------------------------------------


def _size(kind: type[Sized], holds: Callable[[int, int], bool]) -> Rule:
    def rule(checker: Checker, bound: Any, value: Any, schema: dict[str, Any]) -> bool:
        return not isinstance(value, kind) or holds(len(value), bound)

    return rule


# -- Arrays ------------------------------------------------------------------------------------------------


def _items(checker: Checker, argument: Any, value: Any, schema: dict[str, Any]) -> bool:
    """What comes before the rest, `prefixItems` or `items` as a list, is checked together with it."""
    return not isinstance(value, list) or all(
        checker.accepts(item, each)
        for index, item in enumerate(value)
        for each in item_schemas((schema,), index)
    )


def _rest(checker: Checker, argument: Any, value: Any, schema: dict[str, Any]) -> bool:
    return "prefixItems" in schema or _items(checker, argument, value, schema)


def _unique(checker: Checker, argument: Any, value: Any, schema: dict[str, Any]) -> bool:
    if not argument or not isinstance(value, list):
        return True
    checker.effort.spend(len(value))
    return len({frozen(item) for item in value}) == len(value)


def _contains(checker: Checker, wanted: Any, value: Any, schema: dict[str, Any]) -> bool:
    if not isinstance(value, list):
        return True
    found = sum([checker.accepts(item, wanted) for item in value])
    most = schema.get("maxContains")
    return found >= schema.get("minContains", 1) and (most is None or found <= most)


# -- Objects -----------------------------------------------------------------------------------------------


def _properties(checker: Checker, members: dict[str, Any], value: Any, schema: dict[str, Any]) -> bool:
    return not isinstance(value, dict) or all(
        checker.accepts(member, members[name]) for name, member in value.items() if name in members
    )


def _pattern_properties(checker: Checker, patterns: Any, value: Any, schema: dict[str, Any]) -> bool:
    return not isinstance(value, dict) or all(
        checker.accepts(member, wanted)
        for pattern, wanted in patterns.items()
        for name, member in value.items()
        if checker.matches(pattern, name)
    )


def _additional(checker: Checker, wanted: Any, value: Any, schema: dict[str, Any]) -> bool:
    if not isinstance(value, dict):
        return True
    members = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    return all(
        checker.accepts(member, wanted)
        for name, member in value.items()
        if name not in members and not any(checker.matches(pattern, name) for pattern in patterns)
    )


def _property_names(checker: Checker, wanted: Any, value: Any, schema: dict[str, Any]) -> bool:
    return not isinstance(value, dict) or all(checker.accepts(name, wanted) for name in value)


def _required(checker: Checker, names: list[Any], value: Any, schema: dict[str, Any]) -> bool:
    return not isinstance(value, dict) or all(name in value for name in names)


def _dependent_required(checker: Checker, wanted: Any, value: Any, schema: dict[str, Any]) -> bool:
    return not isinstance(value, dict) or all(
        other in value for name, others in wanted.items() if name in value for other in others
    )


def _dependent_schemas(checker: Checker, wanted: Any, value: Any, schema: dict[str, Any]) -> bool:
    return not isinstance(value, dict) or all(
        checker.accepts(value, each) for name, each in wanted.items() if name in value
    )


# -- Schemas together --------------------------------------------------------------------------------------


def _all_of(checker: Checker, schemas: list[Any], value: Any, schema: dict[str, Any]) -> bool:
    return all(checker.accepts(value, each) for each in schemas)


def _any_of(checker: Checker, schemas: list[Any], value: Any, schema: dict[str, Any]) -> bool:
    return any(checker.accepts(value, each) for each in schemas)


def _one_of(checker: Checker, schemas: list[Any], value: Any, schema: dict[str, Any]) -> bool:
    found = 0
    for each in schemas:
        found += checker.accepts(value, each)
        if found > 1:
            break
    return found == 1


def _not(checker: Checker, unwanted: Any, value: Any, schema: dict[str, Any]) -> bool:
    return not checker.accepts(value, unwanted)


def _if(checker: Checker, condition: Any, value: Any, schema: dict[str, Any]) -> bool:
    branch = "then" if checker.accepts(value, condition) else "else"
    return checker.accepts(value, schema.get(branch, True))


def _reference(checker: Checker, reference: str, value: Any, schema: dict[str, Any]) -> bool:
    target = checker.document.follow(reference, checker.effort)
    if target is NOWHERE:
        raise TooHardError
    return checker.accepts(value, target)


def _id(checker: Checker, name: Any, value: Any, schema: dict[str, Any]) -> bool:
    """References within an embedded document count from its own start, which is not followed up."""
    if schema is not checker.document.root:
        raise TooHardError
    return True


def _unknown(checker: Checker, argument: Any, value: Any, schema: dict[str, Any]) -> bool:
    raise TooHardError


_RULES: dict[str, Rule] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "minimum": _bound(lambda value, bound: value >= bound),
    "maximum": _bound(lambda value, bound: value <= bound),
    "exclusiveMinimum": _open_bound("minimum", lambda value, bound: value > bound),
    "exclusiveMaximum": _open_bound("maximum", lambda value, bound: value < bound),
    "multipleOf": _bound(is_multiple),
    "minLength": _size(str, lambda size, bound: size >= bound),
    "maxLength": _size(str, lambda size, bound: size <= bound),
    "pattern": _pattern,
    "format": _format,
    "items": _rest,
    "prefixItems": _items,
    "minItems": _size(list, lambda size, bound: size >= bound),
    "maxItems": _size(list, lambda size, bound: size <= bound),
    "uniqueItems": _unique,
    "contains": _contains,
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional,
    "propertyNames": _property_names,
    "minProperties": _size(dict, lambda size, bound: size >= bound),
    "maxProperties": _size(dict, lambda size, bound: size <= bound),
    "required": _required,
    "dependentRequired": _dependent_required,
    "dependentSchemas": _dependent_schemas,
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "if": _if,
    "$ref": _reference,
    "$id": _id,
    "$dynamicRef": _unknown,
    "$recursiveRef": _unknown,
    "dependencies": _unknown,
    "unevaluatedItems": _unknown,
    "unevaluatedProperties": _unknown,
}
"""Keywords that are not here say nothing about a value."""
