"""The batches of one rank for somebody in this process, as subscribers over ZeroMQ get them."""

from __future__ import annotations

from collections.abc import Callable

from llmdsim.kvevents.counts import EventCounts
from llmdsim.kvevents.publisher import Publisher
from llmdsim.kvevents.window import Batch, Window


class Feed:
    """Closed, and of no use, unless there are events to be told."""

    def __init__(self, counts: EventCounts) -> None:
        self.counts = counts
        #: Has what waits to be sent be sent now.
        self.flush: Callable[[], object] = lambda: None
        self._publisher: Publisher | None = None
        self._window: Window
        self._told: Callable[[bool], object]

    def open(
        self,
        publisher: Publisher,
        window: Window,
        told: Callable[[bool], object],
        flush: Callable[[], object],
    ) -> None:
        """Let `publisher`, which keeps batches in `window`, be listened to.

        `told` is called when somebody begins to listen, and when nobody does any more.
        """
        self._publisher, self._window, self._told, self.flush = publisher, window, told, flush

    @property
    def is_open(self) -> bool:
        """Whether there is anything to listen to."""
        return self._publisher is not None

    @property
    def upcoming(self) -> int:
        """The number of the batch that comes next, if no fault has it otherwise."""
        assert self._publisher is not None
        return self._publisher.upcoming

    def listen(self, take: Callable[[Batch], object]) -> None:
        """Have `take` be given each batch as it is sent, from now on."""
        assert self._publisher is not None
        self._publisher.listener = take
        self._told(True)

    def leave(self) -> None:
        """Listen no more."""
        assert self._publisher is not None
        self._publisher.listener = None
        self._told(False)

    def kept(self, start: int, end: int) -> list[Batch] | None:
        """The batches from `start` up to `end`, where all of them are kept for replay; else None."""
        batches = [batch for batch in self._window.since(start) if batch[0] < end]
        return batches if 0 <= end - start == len(batches) else None
