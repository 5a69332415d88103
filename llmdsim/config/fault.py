"""One fault as people write it, in an option or a header: `stall; after=3; for=2s`."""

import re
from dataclasses import dataclass
from typing import Final

from llmdsim.config.durations import format_duration, parse_duration

LONGEST_TEXT: Final = 200
"""Characters of a fault."""

LONGEST_WAIT: Final = 3600.0
"""Seconds that a fault may take."""

_PARAMETERS: Final = {
    "reset": ("after",),
    "stall": ("after", "for"),
    "truncate": ("after",),
    "garble": ("after",),
    "error": ("after", "code", "retry-after"),
    "no-done": (),
    "slow-headers": ("for",),
    "slow-body": ("after", "for"),
    "status": ("code", "retry-after"),
    "hang": ("for",),
}
KINDS: Final = tuple(_PARAMETERS)
"""All kinds of faults; docs/failures.md says what each does."""

_COMMON = ("times", "key")
_WITHIN_THE_BODY = ("truncate", "garble", "slow-body")
_SECONDS: Final = {"stall": 10.0, "slow-headers": 2.0, "slow-body": 2.0, "hang": 600.0}
_INTEGERS: Final = {
    "after": (0, 1_000_000_000),
    "code": (400, 599),
    "retry-after": (0, 86_400),
    "times": (1, 1_000_000),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A response that goes wrong in the way of its `kind`, one of KINDS.

    `after` is how many tokens pass before; None is before the first byte of the response. `seconds` is how
    long it takes, `code` an HTTP status, `retry_after` the header of that name in seconds. With `times`, only
    so many requests of the same `key` meet it, and later ones are served.
    """

    kind: str
    after: int | None
    seconds: float
    code: int
    retry_after: int | None
    times: int | None
    key: str


def parse_fault(text: str) -> Fault:
    """The fault that `text` describes. Raises ValueError with a sentence that says what is wrong."""
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"a fault is at most {LONGEST_TEXT} characters long")
    first, *parts = text.split(";")
    kind = first.strip().lower()
    if kind not in _PARAMETERS:
        raise ValueError(f"{first.strip()!r} is not a kind of fault; there are {', '.join(KINDS)}")
    allowed = (*_PARAMETERS[kind], *_COMMON)
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
    numbers = {name: _integer(name, given[name]) for name in _INTEGERS if name in given}
    return Fault(
        kind=kind,
        after=numbers.get("after", 0 if kind in _WITHIN_THE_BODY else None),
        seconds=_duration(given["for"]) if "for" in given else _SECONDS.get(kind, 0.0),
        code=numbers.get("code", 503 if kind == "status" else 500),
        retry_after=numbers.get("retry-after"),
        times=numbers.get("times"),
        key=given.get("key", text),
    )


def _integer(name: str, text: str) -> int:
    low, high = _INTEGERS[name]
    if not re.fullmatch("[0-9]{1,10}", text) or not low <= int(text) <= high:
        raise ValueError(f"{name}={text} is not an integer from {low} to {high}")
    return int(text)


def _duration(text: str) -> float:
    try:
        seconds = parse_duration(text, "s")
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds <= LONGEST_WAIT:
        longest = format_duration(LONGEST_WAIT)
        raise ValueError(f"for={text} is not a duration of at most {longest}, such as 250ms or 2s")
    return seconds
