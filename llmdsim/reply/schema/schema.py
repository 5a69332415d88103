"""A JSON value, as compact text, for any JSON schema."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import msgspec

from llmdsim.reply.effort import DeadEndError, Effort, TooHardError
from llmdsim.reply.schema.checking import Checker
from llmdsim.reply.schema.document import Document
from llmdsim.reply.schema.settings import ValueSettings
from llmdsim.reply.schema.writing import Writer

_EFFORT = 10_000
_LAST_EFFORT = 3_000
"""What may be spent on a value, and on one that need not conform. The first is for some 700 members."""


class Generated(NamedTuple):
    """`text` is compact JSON. `conforming`: the value was checked, and the schema accepts it."""

    text: str
    conforming: bool


class Schema:
    """A schema as decoded JSON, whatever nonsense it holds.

    The keywords of docs/tools.md are met. Others are met as far as trying goes; where no value is found, or
    none in time, the members that are required get the simplest values.
    """

    __slots__ = ("_document",)

    def __init__(self, schema: object) -> None:
        self._document = Document(schema)

    def generate(self, random: Random, settings: ValueSettings) -> Generated:
        """A value that depends on nothing but the schema, `random` and `settings`. Never raises.

        Bounds: 32 levels, 65,536 characters of strings and names of members, arrays of 500 items, strings
        of 8,192 characters, some six milliseconds.
        """
        for forgiving in (False, True):
            effort = Effort(_LAST_EFFORT if forgiving else _EFFORT)
            try:
                value = Writer(self._document, random, settings, effort, forgiving).value(
                    [self._document.root]
                )
                text = msgspec.json.encode(value).decode()
            except (DeadEndError, TooHardError, RecursionError, ValueError):
                # ValueError: integers of thousands of digits.
                continue
            return Generated(text, not forgiving and self._accepts(value))
        return Generated("{}", False)

    def _accepts(self, value: object) -> bool:
        try:
            return Checker(self._document, Effort(_EFFORT)).accepts(value, self._document.root)
        except (TooHardError, RecursionError):
            return False
