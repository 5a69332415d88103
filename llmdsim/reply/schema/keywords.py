"""Reads keywords of a schema whose values may be anything; what makes no sense reads as if it were absent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice

Part = dict[str, object]
"""One schema object. A list of them stands for all of them at once."""

Number = int | float

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
"""The simplest first."""


MAX_MEMBERS = 1000
"""Declared and required members of one schema that are looked at."""

_MOST_TYPES = 64
"""Names that a list of types is read for."""


def number(part: Part, keyword: str) -> Number | None:
    value = part.get(keyword)
    if isinstance(value, int):
        return None if isinstance(value, bool) else value
    return value if isinstance(value, float) and math.isfinite(value) else None


def count(part: Part, keyword: str) -> int | None:
    value = number(part, keyword)
    return None if value is None or value < 0 or value != int(value) else int(value)


def mapping(part: Part, keyword: str) -> dict[str, object]:
    value = part.get(keyword)
    return value if isinstance(value, dict) else {}


def listing(part: Part, keyword: str) -> list[object]:
    value = part.get(keyword)
    return value if isinstance(value, list) else []


def strings(part: Part, keyword: str) -> list[str]:
    return [item for item in islice(listing(part, keyword), MAX_MEMBERS) if isinstance(item, str)]


def highest(parts: Sequence[Part], keyword: str) -> int | None:
    """Of a least count, the one that decides."""
    return max((value for part in parts if (value := count(part, keyword)) is not None), default=None)


def lowest(parts: Sequence[Part], keyword: str) -> int | None:
    """Of a greatest count, the one that decides."""
    return min((value for part in parts if (value := count(part, keyword)) is not None), default=None)


def item_schemas(parts: Sequence[Part], index: int) -> Iterator[object]:
    """What applies to the array's item at `index`; `items` may be a list, as it was before 2020."""
    for part in parts:
        prefix = listing(part, "prefixItems") or listing(part, "items")
        if index < len(prefix):
            yield prefix[index]
            continue
        rest = "additionalItems" if isinstance(part.get("items"), list) else "items"
        if rest in part:
            yield part[rest]


def types(parts: Sequence[Part]) -> list[str] | None:
    """The types that all parts allow, the simplest first; None where none of them says."""
    allowed: set[str] | None = None
    for part in parts:
        named = part.get("type")
        if isinstance(named, str):
            names = {named} & _KNOWN
        elif isinstance(named, list):
            names = {name for name in named[:_MOST_TYPES] if isinstance(name, str)} & _KNOWN
        else:
            continue
        if not names:
            continue
        if "number" in names:
            names.add("integer")
        allowed = names if allowed is None else allowed & names
    if allowed is None:
        return None
    if "number" in allowed:
        allowed.discard("integer")
    return [name for name in TYPES if name in allowed]


_KNOWN = frozenset(TYPES)
