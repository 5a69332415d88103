"""The end of a rank's process through which it is told what to do, and tells what it did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure

from llmdsim.services.messages import LineBuffer, line, read_line
from llmdsim.web.errors import shutting_down
from llmdsim.web.operations import Answer, Operations, Order


class RankControl(Protocol):
    """Reads its transport's lines; `words` are those that stand alone, and what each has done.

    `ended` is called when nothing more comes, since the main process wants that, or is no more.
    """

    transport: Any

    def __init__(
        self, operations: Operations, words: Mapping[bytes, Callable[[], object]], ended: Callable[[], object]
    ) -> None:
        self._operations = operations
        self._words = words
        self._ended = ended
        self._lines = LineBuffer()
        self._serial = count()
        self._ordered: dict[int, Deferred[dict[int, Answer]]] = {}
        self._closed = False
        operations.elsewhere = self.everywhere_else

    def ready(self) -> None:
        """Tell that this rank serves."""
        self.transport.write(b"ready\n")

    def everywhere_else(self, order: Order) -> Deferred[dict[int, Answer]]:
        """Have it done on all other ranks; fires with their answers, or fails with ApiError at the end."""
        answered: Deferred[dict[int, Answer]] = Deferred()
        if self._closed:
            answered.errback(shutting_down())
            return answered
        number = next(self._serial)
        self._ordered[number] = answered
        self.transport.write(line(b"order", number, order))
        return answered

    # --- Protocol

    def dataReceived(self, data: bytes) -> None:
        for each in self._lines.feed(data):
            word, _, rest = each.partition(b" ")
            match word:
                case b"do":
                    self._do(rest)
                case b"answers":
                    number, answers = read_line(rest, dict[int, Answer])
                    self._ordered.pop(number).callback(answers)
                case _:
                    self._words[word]()

    def connectionLost(self, reason: object = None) -> None:
        self._closed = True
        ordered, self._ordered = self._ordered, {}
        for answered in ordered.values():
            answered.errback(Failure(shutting_down()))  # type: ignore[no-untyped-call]
        self._ended()

    def _do(self, rest: bytes) -> None:
        number, order = read_line(rest, Order)
        self._operations.perform(order).addCallback(
            lambda answer: self.transport.write(line(b"answer", number, answer))
        )
