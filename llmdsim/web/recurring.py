"""What was worked out for keys that clients send again and again."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")

#: How many are known at most.
MOST_KNOWN = 128


class Recurring(dict[bytes, T | None]):
    """By key; None for one that there is nothing to know of. It never grows beyond `MOST_KNOWN`."""

    def __init__(self) -> None:
        #: What was met once: it may be the last time.
        self._met: set[bytes] = set()

    def recurs(self, key: bytes) -> bool:
        """Whether a key that is not known has been met before, and is worth knowing; there is room for it."""
        met = len(self._met)
        self._met.add(key)
        if len(self._met) == met:
            if len(self) >= MOST_KNOWN:
                self.clear()
            return True
        if met == MOST_KNOWN:
            self._met.clear()
        return False
