"""When running sequences reveal tokens: the interface of a pacing, and pacing each request by itself."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Protocol

from llmdsim.engine.latency import Latency
from llmdsim.engine.sequence import Sequence

#: The most tokens one sequence reveals in one pass; the rest follow in the next, so that nobody waits long.
BURST = 256

#: Tokens without latency that one pass reveals, or a burst more: the other sequences have the next one.
MOST_IN_BURSTS = 1024

#: Below this many abandoned deadlines the heap is left as it is.
FEW_STALE = 64


class Pacing(Protocol):
    """Decides the instants; deadlines are absolute, so lateness never adds up."""

    def begin(self, sequence: Sequence, now: float, running: int) -> None:
        """`sequence` was given a slot and its reply is written."""

    def drop(self, sequence: Sequence) -> None:
        """`sequence` ended before its last token."""

    def advance(
        self, now: float, reveal: Callable[[Sequence, int, float], None], running: Callable[[], int]
    ) -> None:
        """Call `reveal(sequence, tokens, now)` for everything that was due when this call began."""

    def next_deadline(self) -> float | None:
        """The earliest instant at which `advance` has something to do."""

    def freeze(self, now: float) -> None:
        """Stand still until `thaw`: nothing is due, and `advance` reveals nothing."""

    def thaw(self, now: float) -> None:
        """Go on; what was to come comes later by as long as time stood still."""


class PerRequestPacing:
    """Each sequence has its own timetable: a prefill, then a gap before every further token."""

    __slots__ = ("_frozen_at", "_heap", "_latency", "_serial", "_stale")

    def __init__(self, latency: Latency) -> None:
        self._latency = latency
        self._heap: list[tuple[float, int, Sequence]] = []
        self._serial = count()
        self._stale = 0
        self._frozen_at: float | None = None

    def begin(self, sequence: Sequence, now: float, running: int) -> None:
        latency = self._latency
        prefill = latency.constant_prefill
        if prefill is None:
            prefill = latency.prefill(sequence.prompt_tokens, sequence.cached_tokens, running)
        heappush(self._heap, (now + prefill, next(self._serial), sequence))
        plan = sequence.ask.plan
        if plan is not None and plan.image and sequence.reply is not None and sequence.reply.total:
            sequence.tail = latency.image()

    def drop(self, sequence: Sequence) -> None:
        # The entry stays until it is due or until too many like it lie about: removing it now would cost a
        # search of the heap.
        self._stale += 1
        if self._stale > FEW_STALE and self._stale * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].finish_reason is None]
            heapify(self._heap)
            self._stale = 0

    def freeze(self, now: float) -> None:
        if self._frozen_at is None:
            self._frozen_at = now

    def thaw(self, now: float) -> None:
        if self._frozen_at is None:
            return
        later = now - self._frozen_at
        self._frozen_at = None
        self._heap = [(deadline + later, serial, sequence) for deadline, serial, sequence in self._heap]
        heapify(self._heap)  # rounding may have made equals of two deadlines

    @staticmethod
    def _waits_for_tail(sequence: Sequence) -> bool:
        """Whether the end has to wait; the second time it is asked, it has waited."""
        if sequence.in_tail:
            sequence.tail = 0.0
            return False
        sequence.in_tail = True
        return True

    def next_deadline(self) -> float | None:
        if self._frozen_at is not None:
            return None
        heap = self._heap
        while heap and heap[0][2].finish_reason is not None:
            heappop(heap)
            self._stale = max(0, self._stale - 1)
        return heap[0][0] if heap else None

    def advance(
        self, now: float, reveal: Callable[[Sequence, int, float], None], running: Callable[[], int]
    ) -> None:
        if self._frozen_at is not None:
            return
        heap = self._heap
        due: list[tuple[float, int, Sequence]] = []
        while heap and heap[0][0] <= now:
            due.append(heappop(heap))
        latency = self._latency
        gap = latency.constant_gap
        serial = self._serial
        due.reverse()
        room = MOST_IN_BURSTS
        try:
            while due and room > 0:
                deadline, _, sequence = due.pop()
                if sequence.finish_reason is not None:
                    self._stale = max(0, self._stale - 1)
                    continue
                assert sequence.reply is not None
                left = sequence.reply.total - sequence.revealed
                most = min(left, BURST)
                tokens = 1
                if gap is None:
                    deadline += latency.gap(running())
                    while deadline <= now and tokens < most:
                        tokens += 1
                        deadline += latency.gap(running())
                elif gap == 0.0:
                    tokens = most
                    room -= most
                    deadline = now  # behind those that this pass had no room for
                else:
                    deadline += gap
                    while deadline <= now and tokens < most:
                        tokens += 1
                        deadline += gap
                if tokens < left:
                    # Before the sink runs, which may abort this very sequence.
                    heappush(self._heap, (deadline, next(serial), sequence))
                elif sequence.tail and self._waits_for_tail(sequence):
                    heappush(self._heap, (now + sequence.tail, next(serial), sequence))
                reveal(sequence, min(tokens, left), now)
        finally:
            # Those there was no room for, or no time because one failed.
            for entry in due:
                heappush(self._heap, entry)
