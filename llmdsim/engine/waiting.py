"""The sequences that wait for a slot, in the order in which they are to be started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from itertools import count

from llmdsim.engine.adapters import Adapter
from llmdsim.engine.sequence import Sequence

#: Below this many places of sequences that left, a line is left as it is.
FEW_STALE = 64


class Line:
    """Those that wait for one adapter: a heap by order. Who left stays in it until it comes up."""

    __slots__ = ("heap", "stale")

    def __init__(self) -> None:
        self.heap: list[tuple[tuple[int, int], Sequence]] = []
        self.stale = 0

    def __len__(self) -> int:
        return len(self.heap) - self.stale

    def first(self) -> tuple[tuple[int, int], Sequence] | None:
        """The one that comes first, with its order."""
        heap = self.heap
        while heap and not heap[0][1].waiting:
            heappop(heap)
            self.stale -= 1
        return heap[0] if heap else None

    def leave(self) -> None:
        """One in the middle does not wait any more."""
        self.stale += 1
        if self.stale > FEW_STALE and self.stale * 2 > len(self.heap):
            self.heap = [entry for entry in self.heap if entry[1].waiting]
            heapify(self.heap)
            self.stale = 0


class Waiting:
    """First come, first served; `by_priority`, the least `priority` comes before that.

    One that has been started and has to wait again comes where it would be had it never been started.
    Sequences whose adapter cannot be had yet are passed over and keep their place (vLLM's rule), so there is
    a line for each adapter and one for the base model.
    """

    def __init__(self, by_priority: bool = False) -> None:
        self._by_priority = by_priority
        self._lines: dict[Adapter | None, Line] = {}
        self._serial = count()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Sequence]:
        entries = [entry for line in self._lines.values() for entry in line.heap if entry[1].waiting]
        return (sequence for _, sequence in sorted(entries, key=lambda entry: entry[0]))

    def add(self, sequence: Sequence) -> None:
        """Put `sequence` where it belongs."""
        if sequence.order is None:
            sequence.order = (sequence.priority if self._by_priority else 0, next(self._serial))
        line = self._lines.get(sequence.adapter)
        if line is None:
            line = self._lines[sequence.adapter] = Line()
        sequence.waiting = True
        heappush(line.heap, (sequence.order, sequence))
        self._length += 1

    def remove(self, sequence: Sequence) -> None:
        """Take `sequence`, which waits, out."""
        sequence.waiting = False
        self._length -= 1
        line = self._lines[sequence.adapter]
        line.leave()
        self._close(sequence.adapter, line)

    def pop(self, can_start: Callable[[Adapter], bool]) -> Sequence | None:
        """Take the first one out that needs no adapter or one that `can_start`; None if there is none."""
        best: tuple[tuple[int, int], Sequence] | None = None
        for adapter, line in self._lines.items():
            if adapter is None or can_start(adapter):
                first = line.first()
                if first is not None and (best is None or first[0] < best[0]):
                    best = first
        if best is None:
            return None
        sequence = best[1]
        line = self._lines[sequence.adapter]
        heappop(line.heap)
        sequence.waiting = False
        self._length -= 1
        self._close(sequence.adapter, line)
        return sequence

    def _close(self, adapter: Adapter | None, line: Line) -> None:
        if not len(line):
            del self._lines[adapter]
