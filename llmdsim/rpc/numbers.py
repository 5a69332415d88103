"""Numbers as messages can carry them."""

from __future__ import annotations

from typing import Final

MOST_INT32: Final = 2**31 - 1
MOST_UINT32: Final = 2**32 - 1


def int32(number: int) -> int:
    """A number that is not negative, or the most that there is room for: options have no such bound."""
    return min(number, MOST_INT32)


def uint32(number: int) -> int:
    """The same where the message's field has no sign."""
    return min(number, MOST_UINT32)
