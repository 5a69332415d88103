"""When running sequences reveal tokens: the interface of a pacing, and pacing each request by itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Protocol, TypeAlias

from llmdsim.engine.latency import Latency
from llmdsim.engine.sequence import Sequence

#: The most tokens one sequence reveals in one pass; the rest follow in the next, so that nobody waits long.
BURST = 256

#: Tokens without latency that one pass reveals, or a burst more: the other sequences have the next one.
MOST_IN_BURSTS = 1024

#: Below this many abandoned deadlines the heap is left as it is.
FEW_STALE = 64


Entry: TypeAlias = tuple[float, int, Sequence, float]
"""When something of a sequence is due, what keeps equals in order, the sequence, and how long it was to take:
the difference is when it began, which later changes of the latency count from."""


class Pacing(Protocol):
    """Decides the instants; deadlines are absolute, so lateness never adds up."""

    def begin(self, sequence: Sequence, now: float, running: int) -> None:
        """`sequence` was given a slot and its reply is written."""

    def drop(self, sequence: Sequence) -> None:
        """`sequence` ended before its last token."""

    def withdraw(self, sequence: Sequence) -> None:
        """`sequence` runs no more, and may begin again later."""

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

    def retime(self, now: float, running: int) -> None:
        """Latencies have changed: work anew out what is not due yet, from when it began."""


class PerRequestPacing:
    """Each sequence has its own timetable: a prefill, then a gap before every further token."""

    __slots__ = ("_due", "_frozen_at", "_heap", "_latency", "_serial", "_stale", "_steady", "_withdrawn")

    def __init__(self, latency: Latency) -> None:
        self._latency = latency
        self._heap: list[Entry] = []
        #: Deadlines found in order, as nearly all are where gaps are constant; a heap compares them again.
        self._steady: deque[Entry] = deque()
        #: What was due when the pass under way began and has not had its turn, the first one last.
        self._due: list[Entry] = []
        self._serial = count().__next__
        self._stale = 0
        #: Those whose deadlines are void, and still among the others: many may go at once.
        self._withdrawn: set[Sequence] = set()
        self._frozen_at: float | None = None

    def begin(self, sequence: Sequence, now: float, running: int) -> None:
        if sequence in self._withdrawn:
            self._forget()
        latency = self._latency
        lasts = latency.constant_prefill
        remote = sequence.remote_prefill
        if remote is not None and not sequence.preemptions:
            remote.began = now
            lasts = self._transfer(sequence)
        elif lasts is None or sequence.loaded_tokens:
            lasts = self._prefill(sequence, running)
        heappush(self._heap, (now + lasts, self._serial(), sequence, lasts))
        if sequence.ask.plan is not None:
            self._draw_tail(sequence)

    def _prefill(self, sequence: Sequence, running: int) -> float:
        """How long it takes to load what the host has of all its tokens, and compute what is not cached."""
        tokens, latency = sequence.prompt_tokens + sequence.revealed, self._latency
        lasts = latency.prefill(tokens, sequence.resident_tokens, running)
        return lasts + latency.load_back(sequence.loaded_tokens)

    def _transfer(self, sequence: Sequence) -> float:
        """How long it takes to read from another server what is not cached of its prompt."""
        lasts = self._latency.transfer(sequence.prompt_tokens - sequence.resident_tokens)
        return lasts + self._latency.load_back(sequence.loaded_tokens)

    def _fall_back(self, sequence: Sequence, now: float, running: int) -> None:
        """A transfer has failed: unless that ends the sequence, its prompt is prefilled here."""
        lasts = self._prefill(sequence, running)
        heappush(self._heap, (now + lasts, self._serial(), sequence, lasts))

    def _draw_tail(self, sequence: Sequence) -> None:
        plan = sequence.ask.plan
        if plan is not None and plan.image and sequence.reply is not None and sequence.reply.total:
            sequence.tail = self._latency.image()

    def drop(self, sequence: Sequence) -> None:
        # The entry stays until it is due or until too many like it lie about: removing it now would cost a
        # search of the heap.
        self._stale += 1
        if self._stale > FEW_STALE and self._stale * 2 > len(self._heap) + len(self._steady):
            self._keep(lambda sequence: sequence.finish_reason is None)
            self._stale = 0

    def withdraw(self, sequence: Sequence) -> None:
        self._withdrawn.add(sequence)

    def _forget(self) -> None:
        """Have none of the deadlines of those that were withdrawn."""
        withdrawn = self._withdrawn
        self._keep(lambda sequence: sequence not in withdrawn)
        self._due[:] = [entry for entry in self._due if entry[2] not in withdrawn]
        withdrawn.clear()

    def _keep(self, wanted: Callable[[Sequence], bool]) -> None:
        """Have the deadlines of such sequences alone."""
        # In place: a pass may be under way.
        self._heap[:] = [entry for entry in self._heap if wanted(entry[2])]
        heapify(self._heap)
        steady = [entry for entry in self._steady if wanted(entry[2])]
        self._steady.clear()
        self._steady += steady

    def freeze(self, now: float) -> None:
        if self._frozen_at is None:
            self._frozen_at = now

    def thaw(self, now: float) -> None:
        if self._frozen_at is None:
            return
        later = now - self._frozen_at
        self._frozen_at = None
        self._heap += self._steady
        self._steady.clear()
        self._heap[:] = [(entry[0] + later, *entry[1:]) for entry in self._heap]
        heapify(self._heap)  # rounding may have made equals of two deadlines

    def retime(self, now: float, running: int) -> None:
        self._forget()
        if self._frozen_at is not None:
            now = self._frozen_at
        entries, self._stale = [*self._heap, *self._steady], 0
        self._heap.clear()
        self._steady.clear()
        for deadline, serial, sequence, lasted in entries:
            if sequence.finish_reason is not None:
                continue
            if not sequence.in_tail:
                self._draw_tail(sequence)
            began = deadline - lasted
            due = deadline if deadline <= now else max(now, began + self._anew(sequence, running))
            self._heap.append((due, serial, sequence, due - began))
        heapify(self._heap)

    def _anew(self, sequence: Sequence, running: int) -> float:
        """How long what comes next of a sequence takes, by the latencies of now."""
        latency = self._latency
        if sequence.in_tail:
            return latency.image()
        if sequence.revealed and not sequence.resuming:
            return latency.gap(running)
        remote = sequence.remote_prefill
        if remote is not None and not remote.lost and not sequence.resuming:
            return self._transfer(sequence)
        return self._prefill(sequence, running)

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
        if self._withdrawn:
            self._forget()
        heap, steady = self._heap, self._steady
        while heap and heap[0][2].finish_reason is not None:
            heappop(heap)
            self._stale = max(0, self._stale - 1)
        while steady and steady[0][2].finish_reason is not None:
            steady.popleft()
            self._stale = max(0, self._stale - 1)
        if not steady:
            return heap[0][0] if heap else None
        return min(heap[0][0], steady[0][0]) if heap else steady[0][0]

    def advance(
        self, now: float, reveal: Callable[[Sequence, int, float], None], running: Callable[[], int]
    ) -> None:
        if self._frozen_at is not None:
            return
        if self._withdrawn:
            self._forget()
        heap, steady = self._heap, self._steady
        latency = self._latency
        gap = latency.constant_gap
        if gap and (not heap or heap[0][0] > now):
            self._advance_steadily(now, gap, reveal)
            if latency.constant_gap != gap:
                self.retime(now, running())
            return
        due = self._due
        while steady and steady[0][0] <= now:
            due.append(steady.popleft())
        if heap and heap[0][0] <= now:
            while heap and heap[0][0] <= now:
                due.append(heappop(heap))
            due.sort()
        latest = steady[-1][0] if steady else now
        due.reverse()
        room = MOST_IN_BURSTS
        withdrawn = self._withdrawn
        serial = self._serial
        try:
            while due and room > 0:
                deadline, _, sequence, _ = due.pop()
                if sequence.finish_reason is not None:
                    self._stale = max(0, self._stale - 1)
                    continue
                if withdrawn and sequence in withdrawn:
                    continue
                remote = sequence.remote_prefill
                if remote is not None and remote.fails:
                    # Before the sink runs, as below.
                    self._fall_back(sequence, deadline, running())
                    reveal(sequence, 0, now)
                    continue
                assert sequence.reply is not None
                left = sequence.reply.total - sequence.revealed
                lasts = gap
                if lasts:
                    tokens = 1
                    deadline += lasts
                    while deadline <= now and tokens < left and tokens < BURST:
                        tokens += 1
                        deadline += lasts
                elif lasts is None:
                    tokens = 1
                    lasts = latency.gap(running())
                    deadline += lasts
                    while deadline <= now and tokens < left and tokens < BURST:
                        tokens += 1
                        lasts = latency.gap(running())
                        deadline += lasts
                else:
                    tokens = left
                    if left > BURST:
                        tokens = BURST
                    room -= tokens
                    deadline = now  # behind those that this pass had no room for
                if tokens < left:
                    # Before the sink runs, which may abort this very sequence.
                    entry = deadline, serial(), sequence, lasts
                    if deadline >= latest:
                        latest = deadline
                        steady.append(entry)
                    else:
                        heappush(heap, entry)
                elif sequence.tail and self._waits_for_tail(sequence):
                    ends = deadline - lasts + sequence.tail
                    heappush(self._heap, (ends, self._serial(), sequence, sequence.tail))
                reveal(sequence, tokens if left else 0, now)
            if latency.constant_gap != gap:
                self.retime(now, running())  # some were put off by the gap this pass began with
        finally:
            # Those there was no room for, or no time because one failed.
            while due:
                heappush(self._heap, due.pop())

    def _advance_steadily(
        self, now: float, gap: float, reveal: Callable[[Sequence, int, float], None]
    ) -> None:
        """`advance` where nothing is due but what is in order: nearly every pass, and nearly every token."""
        heap, steady = self._heap, self._steady
        withdrawn, serial = self._withdrawn, self._serial
        latest = steady[-1][0] if steady else now
        while steady and steady[0][0] <= now:
            deadline, _, sequence, _ = steady.popleft()
            if sequence.finish_reason is not None:
                self._stale = max(0, self._stale - 1)
                continue
            if withdrawn and sequence in withdrawn:
                continue
            reply = sequence.reply
            assert reply is not None
            left = reply.total - sequence.revealed
            tokens = 1
            deadline += gap
            while deadline <= now and tokens < left and tokens < BURST:
                tokens += 1
                deadline += gap
            if tokens < left:
                # Before the sink runs, which may abort this very sequence.
                if latest <= deadline > now:
                    latest = deadline
                    steady.append((deadline, serial(), sequence, gap))
                else:
                    heappush(heap, (deadline, serial(), sequence, gap))
            elif sequence.tail and self._waits_for_tail(sequence):
                ends = deadline - gap + sequence.tail
                heappush(heap, (ends, serial(), sequence, sequence.tail))
            reveal(sequence, tokens, now)
