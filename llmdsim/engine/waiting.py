"""The sequences that wait for a slot, in the order in which they are to be started."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from llmdsim.engine.adapters import Adapter
from llmdsim.engine.sequence import Sequence

Entry: TypeAlias = tuple[tuple[int, int], Sequence]
"""A sequence with its order, which no other has."""

#: Below this many places of sequences that left, a line is left as it is.
FEW_STALE = 64


class Line:
    """Those that wait for one adapter: a heap by order. Who left stays in it until it comes up."""

    __slots__ = ("deferred", "heap", "overtaken", "passed", "stale")

    def __init__(self) -> None:
        self.heap: list[Entry] = []
        self.stale = 0
        #: How many of later order and of other adapters were started since one of this line was, or it began.
        self.overtaken = 0
        #: Those with a serial number below this were there when a slot was free and the adapter could not
        #: start; `deferred` is how many of them still wait.
        self.passed = -sys.maxsize
        self.deferred = 0

    def __len__(self) -> int:
        return len(self.heap) - self.stale

    def first(self) -> Entry:
        """The one that comes first; there is one."""
        heap = self.heap
        while not heap[0][1].waiting:
            heappop(heap)
            self.stale -= 1
        return heap[0]

    def leave(self) -> None:
        """One in the middle does not wait any more."""
        self.stale += 1
        if self.stale > FEW_STALE and self.stale * 2 > len(self.heap):
            self.heap = [entry for entry in self.heap if entry[1].waiting]
            heapify(self.heap)
            self.stale = 0


class Waiting:
    """First come, first served; `by_priority`, the least `priority` comes before that.

    One that could not be started after all comes back to its place.
    Sequences whose adapter cannot be had yet are passed over and keep their place (vLLM's rule), so there is
    a line for each adapter and one for the base model. Adapters that run could go on like that for ever: once
    `max_overtakes` of their sequences have overtaken the first one that is passed over, no more do until it
    is started; -1 is no bound, as in vLLM.
    """

    def __init__(self, by_priority: bool = False, max_overtakes: int = -1) -> None:
        self._by_priority = by_priority
        self._max_overtakes = max_overtakes
        self._lines: dict[Adapter | None, Line] = {}
        self._serial = 0
        #: Serial numbers of those that were put in front, which get less and less.
        self._front = -1
        #: How many wait; looked at thrice a request, where `len` would cost three times as much.
        self.length = 0
        #: How many were passed over by a scan for one that can start (vLLM's word).
        self.deferred = 0

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Sequence]:
        entries = [entry for line in self._lines.values() for entry in line.heap if entry[1].waiting]
        return (sequence for _, sequence in sorted(entries, key=lambda entry: entry[0]))

    def add_first(self, sequence: Sequence) -> None:
        """Put `sequence`, which ran, before all others of its priority."""
        sequence.order = (sequence.priority if self._by_priority else 0, self._front)
        self._front -= 1
        self.add(sequence)

    def add(self, sequence: Sequence) -> None:
        """Put `sequence` where it belongs."""
        if sequence.order is None:
            sequence.order = (sequence.priority if self._by_priority else 0, self._serial)
            self._serial += 1
        line = self._lines.get(sequence.adapter)
        if line is None:
            line = self._lines[sequence.adapter] = Line()
        sequence.waiting = True
        heappush(line.heap, (sequence.order, sequence))
        self.length += 1
        if sequence.order[1] < line.passed:
            self._defer(line, 1)

    def remove(self, sequence: Sequence) -> None:
        """Take `sequence`, which waits, out."""
        line = self._lines[sequence.adapter]
        self._take_out(sequence, line)
        line.leave()
        self._close(sequence.adapter, line)

    def pop(self, can_start: Callable[[Adapter], bool]) -> Sequence | None:
        """Take the first one out that needs no adapter or one that `can_start`; None if there is none."""
        best: Entry | None = None
        passed: Entry | None = None
        for adapter, line in self._lines.items():
            first = line.first()
            if adapter is None or can_start(adapter):
                if best is None or first < best:
                    best = first
            else:
                more = len(line.heap) - line.stale - line.deferred
                if more:
                    self._defer(line, more)
                    line.passed = self._serial
                if passed is None or first < passed:
                    passed = first
        if passed is not None and best is not None and best[1].adapter is not None and passed < best:
            overtaken = self._lines[passed[1].adapter]
            if overtaken.overtaken == self._max_overtakes:
                base = self._lines.get(None)
                best = None if base is None else base.first()
            else:
                overtaken.overtaken += 1
        if best is None:
            return None
        sequence = best[1]
        line = self._lines[sequence.adapter]
        heappop(line.heap)
        line.overtaken = 0
        self._take_out(sequence, line)
        self._close(sequence.adapter, line)
        return sequence

    @property
    def adapters(self) -> Iterator[Adapter]:
        """The adapters that sequences wait for."""
        return (adapter for adapter in self._lines if adapter is not None)

    def _take_out(self, sequence: Sequence, line: Line) -> None:
        sequence.waiting = False
        self.length -= 1
        assert sequence.order is not None
        if sequence.order[1] < line.passed:
            self._defer(line, -1)

    def _defer(self, line: Line, more: int) -> None:
        line.deferred += more
        self.deferred += more

    def _close(self, adapter: Adapter | None, line: Line) -> None:
        if not len(line):
            del self._lines[adapter]
