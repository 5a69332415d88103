"""When two JSON values are the same."""

from __future__ import annotations

from collections.abc import Hashable


def frozen(value: object) -> Hashable:
    """Equal for the same values alone: 1 is 1.0 but not true, and the order of members does not matter."""
    if isinstance(value, bool):
        return (None, value)
    if isinstance(value, list):
        return tuple([frozen(item) for item in value])
    if isinstance(value, dict):
        return frozenset([(name, frozen(member)) for name, member in value.items()])
    return value


def same(one: object, other: object) -> bool:
    """Takes no longer than the smaller of the two asks for."""
    if isinstance(one, list):
        if not isinstance(other, list) or len(one) != len(other):
            return False
        return all(same(item, match) for item, match in zip(one, other, strict=True))
    if isinstance(one, dict):
        if not isinstance(other, dict) or len(one) != len(other):
            return False
        return all(name in other and same(member, other[name]) for name, member in one.items())
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def weight(value: object, most: int) -> int:
    """Values within `value`, itself included; counting ends above `most`."""
    if not isinstance(value, list | dict):
        return 1
    pending: list[list[object] | dict[str, object]] = [value]
    count = 1
    for node in pending:
        count += len(node)
        if count > most:
            break
        children = node.values() if isinstance(node, dict) else node
        pending += [child for child in children if isinstance(child, list | dict)]
    return count
