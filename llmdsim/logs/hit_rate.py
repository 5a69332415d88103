"""The part of lookups in a cache that hit, over the most recent requests."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

#: Of how many requests, unless the latest group alone has more (vLLM).
RECENT = 1000


class Lookups(NamedTuple):
    """Of so many requests: tokens that were looked up, and those of them that were found."""

    requests: int
    queries: int
    hits: int

    def since(self, before: Lookups) -> Lookups:
        """What came to those `before`."""
        return Lookups(*(now - then for now, then in zip(self, before, strict=True)))


class HitRate:
    """Is told of lookups in groups, and leaves out the oldest ones."""

    def __init__(self) -> None:
        self._groups: deque[Lookups] = deque()
        self._requests = 0

    def add(self, group: Lookups) -> None:
        """Count a group; one without requests is none."""
        if not group.requests:
            return
        self._groups.append(group)
        self._requests += group.requests
        while self._requests > RECENT and len(self._groups) > 1:
            self._requests -= self._groups.popleft().requests

    def clear(self) -> None:
        """Forget all of them, as the cache was."""
        self._groups.clear()
        self._requests = 0

    @property
    def percent(self) -> float | None:
        """None where there were no requests."""
        if not self._groups:
            return None
        queries = sum(group.queries for group in self._groups)
        return 100 * sum(group.hits for group in self._groups) / queries if queries else 0.0
