"""How faults are written: a kind and its parameters, `stall; after=3; for=2s`."""

import re
from collections.abc import Mapping
from typing import Final

from llmdsim.config.durations import format_duration, parse_duration

LONGEST_TEXT: Final = 200
"""Characters of a fault."""

LONGEST_WAIT: Final = 3600.0
"""Seconds that a fault may take."""


def split_fault(
    text: str, parameters: Mapping[str, tuple[str, ...]], common: tuple[str, ...]
) -> tuple[str, dict[str, str]]:
    """The kind and what it is given, as text; `parameters` has those of each kind, and all have `common`.

    Raises ValueError with a sentence that says what is wrong, as do the others here.
    """
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"a fault is at most {LONGEST_TEXT} characters long")
    first, *parts = text.split(";")
    kind = first.strip().lower()
    if kind not in parameters:
        raise ValueError(f"{first.strip()!r} is not a kind of fault; there are {', '.join(parameters)}")
    allowed = (*parameters[kind], *common)
    given: dict[str, str] = {}
    for part in parts:
        if not part.strip():
            continue
        name, equals, value = (piece.strip() for piece in part.partition("="))
        name = name.lower()
        if name not in allowed or not equals:
            raise ValueError(f"{part.strip()!r} is not one of {'=, '.join(allowed)}=, which {kind} may have")
        if name in given:
            raise ValueError(f"{name} is given twice")
        given[name] = value
    return kind, given


def integer(name: str, text: str, low: int, high: int) -> int:
    """The parameter `name` as an integer in that range."""
    if not re.fullmatch("[0-9]{1,10}", text) or not low <= int(text) <= high:
        raise ValueError(f"{name}={text} is not an integer from {low} to {high}")
    return int(text)


def duration(text: str) -> float:
    """The parameter `for` in seconds."""
    try:
        seconds = parse_duration(text, "s")
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds <= LONGEST_WAIT:
        longest = format_duration(LONGEST_WAIT)
        raise ValueError(f"for={text} is not a duration of at most {longest}, such as 250ms or 2s")
    return seconds
