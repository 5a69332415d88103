"""Which branch is taken at every fork of a schema, so that all combinations are tried in turn."""

from __future__ import annotations

from random import Random


class Choices:
    """A walk through the tree of choices; the first way is random, `advance` goes to the next one.

    The last choice changes first. Later choices may depend on earlier ones.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._made: list[tuple[int, int, int]] = []  # how many options, where it began, steps since
        self._at = 0

    def pick(self, options: int, first: int | None = None) -> int:
        """An index below `options` (at least 1); it begins at `first`, or anywhere."""
        if options == 1:
            return 0
        at = self._at
        self._at += 1
        if at == len(self._made):
            start = int(self._random.random() * options) if first is None else first
            self._made.append((options, start, 0))
        _, start, steps = self._made[at]
        return (start + steps) % options

    def rewind(self) -> None:
        """Back to the first fork."""
        self._at = 0

    def advance(self) -> bool:
        """Whether there is a way that was not taken; it is the one taken next."""
        del self._made[self._at :]
        while self._made:
            options, start, steps = self._made.pop()
            if steps + 1 < options:
                self._made.append((options, start, steps + 1))
                return True
        return False
