"""The batches that can be asked for again."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

Batch = tuple[int, bytes]
"""Its number, and the payload as it was sent."""


class Window:
    """The last `size` batches; their numbers rise."""

    __slots__ = ("_batches",)

    def __init__(self, size: int) -> None:
        self._batches: deque[Batch] = deque(maxlen=size)

    def add(self, number: int, payload: bytes) -> None:
        """Keep a batch, in place of the oldest if there are too many."""
        self._batches.append((number, payload))

    def clear(self) -> None:
        """Forget all."""
        self._batches.clear()

    def since(self, number: int) -> list[Batch]:
        """Those from `number` on, oldest first."""
        batches = list(self._batches)
        return batches[bisect_left(batches, number, key=lambda batch: batch[0]) :]
