"""Writes a value of a schema: forks and references are resolved, then a value of one type is put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Final

import msgspec

from llmdsim.reply.effort import DeadEndError, Effort, TooHardError
from llmdsim.reply.schema.arrays import write_array
from llmdsim.reply.schema.checking import Checker
from llmdsim.reply.schema.choices import Choices
from llmdsim.reply.schema.document import NOWHERE, Document
from llmdsim.reply.schema.keywords import Part, listing, types
from llmdsim.reply.schema.numbers import write_integer, write_number
from llmdsim.reply.schema.objects import write_object
from llmdsim.reply.schema.settings import ValueSettings
from llmdsim.reply.schema.shallowest import Heights
from llmdsim.reply.schema.texts import write_text

MAX_NESTING = 32
"""Objects and arrays within each other."""
MAX_CHARACTERS = 65_536
"""Of all strings and names of members together."""
RECURSIONS = 1
"""How often a schema may stand within itself before the way out is taken."""

_WAYS = 16
"""Combinations of branches that are tried at one place."""
_ATTEMPTS = 6
"""Values made of one combination where the outcome must be checked."""
_CANDIDATES = 64
"""Members of an `enum` that are tried."""

_DOUBTFUL = frozenset({"oneOf", "not", "if", "contains", "dependentSchemas"})
"""Keywords that a value is made to satisfy, but may not."""

_NONE: Final = object()

_SIMPLEST: dict[str, Callable[[], object]] = {
    "null": lambda: None,
    "boolean": bool,
    "integer": int,
    "number": int,
    "string": str,
    "array": list,
    "object": dict,
}

_HINTS = {
    "properties": "object",
    "required": "object",
    "additionalProperties": "object",
    "patternProperties": "object",
    "propertyNames": "object",
    "minProperties": "object",
    "maxProperties": "object",
    "items": "array",
    "prefixItems": "array",
    "contains": "array",
    "minItems": "array",
    "maxItems": "array",
    "uniqueItems": "array",
    "pattern": "string",
    "format": "string",
    "minLength": "string",
    "maxLength": "string",
    "minimum": "number",
    "maximum": "number",
    "exclusiveMinimum": "number",
    "exclusiveMaximum": "number",
    "multipleOf": "number",
}
"""The type that a schema without `type` has in mind."""


class Writer:
    """Makes one value.

    A `forgiving` one puts the simplest value in the place of each that cannot be made, and leaves out
    whatever is not required.
    """

    def __init__(
        self,
        document: Document,
        random: Random,
        settings: ValueSettings,
        effort: Effort,
        forgiving: bool = False,
    ) -> None:
        self.random = random
        self.settings = settings
        self.effort = effort
        self.checker = Checker(document, effort)
        self.depth = 0
        self._document = document
        self._heights = Heights(document, effort)
        self.forgiving = forgiving
        self._reserve = effort.left // 2
        self._room = MAX_CHARACTERS
        self._open: dict[int, int] = {}
        self._recursions = 0

    @property
    def frugal(self) -> bool:
        """Whether to leave out what is not required: within recursions, and when half the effort is spent."""
        return self.forgiving or self._recursions > 0 or self.effort.left < self._reserve

    @property
    def spent(self) -> bool:
        return self.effort.left < 0

    def value(self, schemas: Sequence[object], name: str = "") -> object:
        """A value that all of `schemas` accept, for the member `name`.

        Raises DeadEndError if none is found, and TooHardError when the effort is spent, unless forgiving.
        """
        try:
            return self._value(schemas, name)
        except (DeadEndError, TooHardError):
            if not self.forgiving:
                raise
        return self._simplest(schemas)

    def _value(self, schemas: Sequence[object], name: str) -> object:
        self.effort.spend(14)
        choices = Choices(self.random)
        for _ in range(_WAYS):
            value = self._attempt(schemas, name, choices)
            if value is not _NONE:
                return value
            if not choices.advance():
                break
        raise DeadEndError

    def _attempt(self, schemas: Sequence[object], name: str, choices: Choices) -> object:
        """A value of the branches that are chosen, or `_NONE`."""
        try:
            for _ in range(_ATTEMPTS):
                choices.rewind()
                parts = self._parts(schemas, choices)
                value = self._of_parts(parts, schemas, name, choices)
                if all(map(_DOUBTFUL.isdisjoint, parts)) or self.accepts(value, schemas):
                    return value
        except DeadEndError:
            pass
        return _NONE

    def accepts(self, value: object, schemas: Iterable[object]) -> bool:
        """Whether all schemas do, or may as far as can be told."""
        try:
            return all(self.checker.accepts(value, schema) for schema in schemas)
        except TooHardError:
            if self.spent:
                raise
            return True

    def say(self, characters: int) -> None:
        """Counts text. Raises TooHardError when it is too much."""
        self._room -= characters
        if self._room < 0:
            raise TooHardError

    # -- Forks and references ----------------------------------------------------------------------------

    def _parts(self, schemas: Sequence[object], choices: Choices) -> list[Part]:
        """The schema objects that apply to one value, with a branch chosen wherever there are some."""
        parts: list[Part] = []
        met: set[int] = set()
        pending = list(schemas)
        for schema in pending:
            self.effort.spend(3)
            if schema is False:
                raise DeadEndError
            # The same once more says nothing new, and ends references that go in circles.
            if not isinstance(schema, dict) or id(schema) in met:
                continue
            met.add(id(schema))
            parts.append(schema)
            if _FORKS.isdisjoint(schema):
                continue
            self.effort.spend(2)
            for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
                reference = schema.get(keyword)
                if isinstance(reference, str):
                    target = self._document.follow(reference, self.effort)
                    if target is not NOWHERE:
                        pending.append(target)
            pending += listing(schema, "allOf")
            for keyword in ("anyOf", "oneOf"):
                branches = listing(schema, keyword)
                if branches:
                    pending.append(branches[choices.pick(len(branches), self._preferred(branches))])
            if "if" in schema:
                ways = ((schema["if"], schema.get("then", True)), (schema.get("else", True),))
                pending += ways[choices.pick(2)]
        return parts

    def _preferred(self, branches: list[object]) -> int | None:
        """Where to begin: with the shallowest branch where the value should be a small one."""
        if not self.frugal:
            return None
        heights = [self._heights.of(branch) for branch in branches[:_CANDIDATES]]
        return heights.index(min(heights))

    # -- Values of one type ------------------------------------------------------------------------------

    def _of_parts(self, parts: list[Part], schemas: Sequence[object], name: str, choices: Choices) -> object:
        for part in parts:
            if "const" in part:
                return self._candidate([part["const"]], schemas)
            options = listing(part, "enum")
            if options:
                return self._candidate(options, schemas)
        if not self.frugal:
            for part in parts:
                examples = listing(part, "examples")
                if examples:
                    try:
                        return self._candidate(examples, schemas)
                    except DeadEndError:
                        break
        kinds = self._kinds(parts)
        kind = kinds[choices.pick(len(kinds), 0 if self.frugal else None)]
        settings = self.settings
        match kind:
            case "object" | "array":
                return self._nested(kind, parts, name)
            case "string":
                text = write_text(parts, name, self.random, self.checker)
                self.say(len(text))
                return text
            case "integer":
                usual = (settings.min_tool_call_integer_param, settings.max_tool_call_integer_param)
                return write_integer(parts, usual, self.random)
            case "number":
                span = (settings.min_tool_call_number_param, settings.max_tool_call_number_param)
                return write_number(parts, span, self.random)
            case "boolean":
                return self.random.random() < 0.5
        return None

    def _kinds(self, parts: list[Part]) -> list[str]:
        kinds = types(parts)
        if kinds == []:
            raise DeadEndError
        if kinds is not None:
            return kinds
        for part in parts:
            for keyword in part:
                if keyword in _HINTS:
                    return [_HINTS[keyword]]
        return ["string" if self.depth else "object"]

    def _candidate(self, options: list[object], schemas: Sequence[object]) -> object:
        """One of `options`, which are ready values."""
        start = self.random.randrange(len(options))
        for step in range(min(len(options), _CANDIDATES)):
            option = options[(start + step) % len(options)]
            self.effort.spend(self.checker.size(option))
            if self.accepts(option, schemas):
                self.say(len(msgspec.json.encode(option)))
                return option
        raise DeadEndError

    def _nested(self, kind: str, parts: list[Part], name: str) -> object:
        if self.depth >= MAX_NESTING:
            raise DeadEndError
        recursion = any(self._open.get(id(part), 0) >= RECURSIONS for part in parts)
        if recursion and self.forgiving:
            raise DeadEndError
        for part in parts:
            self._open[id(part)] = self._open.get(id(part), 0) + 1
        self._recursions += recursion
        self.depth += 1
        try:
            return write_object(self, parts) if kind == "object" else write_array(self, parts, name)
        finally:
            self.depth -= 1
            self._recursions -= recursion
            for part in parts:
                self._open[id(part)] -= 1

    def _simplest(self, schemas: Sequence[object]) -> object:
        """The simplest value of the type that the schemas may mean."""
        parts = [schema for schema in schemas if isinstance(schema, dict)]
        try:
            parts = self._parts(schemas, Choices(self.random))
        except (DeadEndError, TooHardError):
            pass
        try:
            kind = self._kinds(parts)[0]
        except DeadEndError:
            return None
        return _SIMPLEST[kind]()


_FORKS = frozenset({"$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "if"})
