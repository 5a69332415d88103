"""Puts events together into batches: when one is full, and at the latest when it has waited long enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llmdsim.engine.kvcache.records import Record


class Batcher:
    """Calls `publish` with at most `size` events, in the order in which they came.

    `interval` is how many seconds events may wait for others, and may change; with 0 what a pass of the
    engine gave leaves with it. `clock` is an `IReactorTime`.
    """

    def __init__(self, size: int, clock: Any, publish: Callable[[list[Record]], None]) -> None:
        self.interval = 0.0
        self._size = size
        self._clock = clock
        self._publish = publish
        self._pending: list[Record] = []
        self._call: Any = None

    def add(self, records: list[Record]) -> None:
        """Take what one pass of the engine gave."""
        pending = self._pending
        pending += records
        if self.interval <= 0.0:
            self.flush()
            return
        full = len(pending) - len(pending) % self._size
        if full:
            self._stop_waiting()
            self._pending = pending[full:]
            self._send(pending[:full])
        if self._pending and self._call is None:
            self._call = self._clock.callLater(self.interval, self.flush)

    def flush(self) -> None:
        """Publish what there is now."""
        self._stop_waiting()
        pending, self._pending = self._pending, []
        self._send(pending)

    def _send(self, records: list[Record]) -> None:
        for start in range(0, len(records), self._size):
            self._publish(records[start : start + self._size])

    def _stop_waiting(self) -> None:
        if self._call is not None:
            if self._call.active():
                self._call.cancel()
            self._call = None
