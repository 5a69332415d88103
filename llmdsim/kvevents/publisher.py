"""Numbers the batches of one rank, keeps them for replay and sends them to subscribers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.logger import Logger

from llmdsim.engine.kvcache.records import Record
from llmdsim.kvevents.counts import EventCounts
from llmdsim.kvevents.faults import EventFaults
from llmdsim.kvevents.transport import Publishing
from llmdsim.kvevents.window import Batch, Window

log = Logger()

#: Seconds between two lines of the log about subscribers that do not keep up.
TOLD_EVERY = 10.0

#: Batches that a fault may hold back at the same time; then all of them leave.
MOST_HELD = 10_000


class Publisher:
    """Sends what `encode` makes of the events of a batch, under `topic`; numbers begin with 0.

    Without a `socket` batches are only kept in `window`. `clock` is an `IReactorTime`; waits of faults are
    divided by `speed`, which may change.
    """

    def __init__(
        self,
        encode: Callable[[Sequence[Record]], bytes],
        topic: bytes,
        socket: Publishing | None,
        window: Window,
        faults: EventFaults,
        counts: EventCounts,
        clock: Any,
    ) -> None:
        self._encode = encode
        self._topic = topic
        self._socket = socket
        self._window = window
        self._faults = faults
        self._counts = counts
        self._clock = clock
        self.speed = 1.0
        #: Given each batch, too, as it is sent.
        self.listener: Callable[[Batch], object] | None = None
        self._next = 0
        self._held: list[Batch] = []
        self._release_call: Any = None
        self._told_at: float | None = None
        self._untold = 0

    @property
    def upcoming(self) -> int:
        """The number of the batch that is sent next, if no fault has it otherwise."""
        return self._held[0][0] if self._held else self._next

    def publish(self, records: Sequence[Record]) -> None:
        """Send these events as one batch."""
        fault = self._faults.draw()
        kind = fault.kind if fault is not None else ""
        if fault is not None and kind == "gap":
            self._next += fault.skip
        elif kind == "restart":
            self._next = 0
            self._window.clear()
        batch = self._next, self._encode(records)
        self._next += 1
        self._window.add(*batch)
        self._counts.batches += 1
        self._counts.events += len(records)
        if kind == "drop":
            return
        if fault is not None and kind == "delay" and not self._held:
            self._release_call = self._clock.callLater(fault.seconds / self.speed, self.release)
            self._held.append(batch)
        elif self._held:
            # Later ones wait too: what a publisher sends never overtakes itself.
            self._held.append(batch)
            if len(self._held) >= MOST_HELD:
                self.release()
        else:
            self._send(batch)
        if kind == "duplicate":
            (self._held.append if self._held else self._send)(batch)

    def skip(self) -> None:
        """Leave a number out, for what happened while nobody listened: whoever comes back is to know."""
        self._next += 1

    def release(self) -> None:
        """Send what a fault holds back."""
        if self._release_call is not None:
            if self._release_call.active():
                self._release_call.cancel()
            self._release_call = None
        held, self._held = self._held, []
        for batch in held:
            self._send(batch)

    def _send(self, batch: Batch) -> None:
        if self.listener is not None:
            self.listener(batch)
        if self._socket is None:
            return
        number, payload = batch
        if not self._socket.send((self._topic, number.to_bytes(8, "big"), payload)):
            self._counts.overflows += 1
            self._tell_overflow(number)

    def _tell_overflow(self, number: int) -> None:
        self._untold += 1
        now = self._clock.seconds()
        if self._told_at is not None and now < self._told_at + TOLD_EVERY:
            return
        log.warn(
            "KV events: the queue of a subscriber is full; it misses batches from {number} on until it has "
            "read half of them ({times} times since this was last told)",
            number=number,
            times=self._untold,
        )
        self._told_at, self._untold = now, 0
