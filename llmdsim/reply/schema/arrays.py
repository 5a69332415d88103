"""Arrays: how long they are, and what applies to each item."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from llmdsim.reply.effort import DeadEndError
from llmdsim.reply.schema.equality import frozen
from llmdsim.reply.schema.keywords import Part, count, highest, item_schemas, listing, lowest

if TYPE_CHECKING:
    from llmdsim.reply.schema.writing import Writer

MAX_ITEMS = 500
"""Items of one array."""

_ATTEMPTS = 8
"""For an item unlike all others."""


def write_array(writer: Writer, parts: Sequence[Part], name: str) -> list[object]:
    """Items for the member `name`. Raises DeadEndError and TooHardError."""
    least = highest(parts, "minItems") or 0
    contained = _contained(parts)
    length = _length(writer, parts, len(contained))
    unique = any(part.get("uniqueItems") is True for part in parts)
    met: set[Hashable] = set()
    items: list[object] = []
    for index in range(length):
        if len(items) >= least and writer.frugal and length - index > len(contained):
            break
        schemas = list(item_schemas(parts, index)) + contained[length - index - 1 : length - index]
        try:
            items.append(_fresh(writer, schemas, name, items, met) if unique else writer.value(schemas, name))
        except DeadEndError:
            break
    if len(items) < least and not writer.forgiving:
        raise DeadEndError
    return items


def _contained(parts: Sequence[Part]) -> list[object]:
    """What the last items must be."""
    wanted: list[object] = []
    for part in parts:
        if "contains" in part:
            least = count(part, "minContains")
            wanted += [part["contains"]] * min(1 if least is None else least, MAX_ITEMS)
    return wanted


def _length(writer: Writer, parts: Sequence[Part], contained: int) -> int:
    least, most = highest(parts, "minItems"), lowest(parts, "maxItems")
    prefix = max([len(listing(part, "prefixItems") or listing(part, "items")) for part in parts])
    low = writer.settings.min_tool_call_array_param_length
    high = writer.settings.max_tool_call_array_param_length
    if least is None and prefix:
        low = high = prefix
    if least is not None:
        low = least
        high = max(high, low)
    high = max(high, contained)
    if most is not None:
        high = most
        low = low if least is not None else min(low, high)
    if low > high or low > MAX_ITEMS:
        if writer.forgiving:
            return 0
        raise DeadEndError
    if writer.frugal:
        low = high = least or 0
    return max(writer.random.randint(low, min(high, MAX_ITEMS)), min(contained, high))


def _fresh(
    writer: Writer, schemas: list[object], name: str, items: list[object], met: set[Hashable]
) -> object:
    """An item that is not among `items`, whose frozen selves are in `met`."""
    for attempt in range(_ATTEMPTS):
        others: list[object] = []
        if attempt:
            # Chance finds it in most cases; to exclude the others takes longer.
            others.append({"not": {"enum": items}})
        if attempt > _ATTEMPTS // 2:
            # Objects without members of their own can be unlike each other by some that are not declared.
            others.append({"minProperties": 1})
        value = writer.value([*schemas, *others], name)
        key = frozen(value)
        if key not in met:
            met.add(key)
            return value
    raise DeadEndError
