"""Strings within a schema's lengths, of its patterns and formats."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from llmdsim.reply.effort import DeadEndError, TooHardError
from llmdsim.reply.regex import MAX_TEXT, Regex
from llmdsim.reply.schema.checking import Checker
from llmdsim.reply.schema.formats import FORMATS, Format
from llmdsim.reply.schema.keywords import Part, highest, lowest
from llmdsim.reply.schema.words import plain

_ATTEMPTS = 32


def write_text(parts: Sequence[Part], name: str, random: Random, checker: Checker) -> str:
    """A string for the member `name`. Raises DeadEndError."""
    low = highest(parts, "minLength") or 0
    longest = lowest(parts, "maxLength")
    high = MAX_TEXT if longest is None else min(longest, MAX_TEXT)
    if low > high:
        raise DeadEndError
    formats = [
        FORMATS[wanted]
        for part in parts
        if isinstance(wanted := part.get("format"), str) and wanted in FORMATS
    ]
    patterns = [
        _compiled(pattern, checker) for part in parts if isinstance(pattern := part.get("pattern"), str)
    ]
    if not formats and not patterns:
        return plain(name, low, high, random)
    for attempt in range(_ATTEMPTS):
        text: str | None
        if formats and (attempt % 2 == 0 or not patterns):
            text = random.choice(formats).write(random)
        else:
            written = random.choice(patterns).write(random, low, high, whole=False, effort=checker.effort)
            text = written.text if written.conforming else None
        if text is not None and low <= len(text) <= high and _is_all(text, formats, patterns, checker):
            return text
    raise DeadEndError


def _compiled(pattern: str, checker: Checker) -> Regex:
    try:
        return checker.compiled(pattern)
    except TooHardError:
        # No expression at all, unless the effort is spent, which shows soon enough.
        raise DeadEndError from None


def _is_all(text: str, formats: list[Format], patterns: list[Regex], checker: Checker) -> bool:
    if len(formats) + len(patterns) == 1:
        return True
    return all(each.holds(text) for each in formats) and all(
        each.matches(text, effort=checker.effort) for each in patterns
    )
