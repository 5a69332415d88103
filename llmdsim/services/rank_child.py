"""The main process's end of a rank that has a process of its own."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from llmdsim.services.messages import FIRST_SOCKET, LOGGED, TOLD, LineBuffer, line, read_line
from llmdsim.web.operations import GONE, Answer, Order

if TYPE_CHECKING:
    from llmdsim.services.crew import Crew

log = Logger()


class RankChild(ProcessProtocol):
    """The process of rank `number`; `relay` takes the lines it logs."""

    transport: Any

    def __init__(self, number: int, crew: Crew, relay: Callable[[Sequence[bytes]], object]) -> None:
        self.number = number
        self._crew = crew
        self._relay = relay
        #: What it is told first.
        self.handover = b""
        self.pid = 0
        #: Whether it was killed by us, or told to end in a way that is no success.
        self.killed = self.ended = False
        self._told, self._logged = LineBuffer(), LineBuffer()
        self._serial = count()
        self._asked: dict[int, Deferred[Answer]] = {}
        self._open = False

    def descriptors(self, sockets: Sequence[int]) -> dict[int, Any]:
        """Where each of its descriptors comes from, as `spawnProcess` wants it."""
        standard = {
            number: number
            for number, stream in ((1, sys.__stdout__), (2, sys.__stderr__))
            if stream is not None
        }
        return {0: "w", **standard, TOLD: "r", LOGGED: "r", **dict(enumerate(sockets, FIRST_SOCKET))}

    # --- what is told to it

    def release(self, at_once: bool = False) -> None:
        """Have it drain and end; `at_once` without waiting for what runs."""
        if at_once:
            self.ended = True
            self.tell(b"give-up")
        if self._open:
            self._open = False
            self.transport.closeStdin()

    def kill(self) -> None:
        """End it."""
        self.killed = self.ended = True
        try:
            self.transport.signalProcess("KILL")
        except ProcessExitedAlready:
            pass

    def tell(self, word: bytes) -> None:
        """Tell it a word."""
        self._write(word + b"\n")

    def perform(self, order: Order) -> Deferred[Answer]:
        """Have it do something; never fails."""
        if not self._open:
            return succeed(GONE)
        number = next(self._serial)
        answered = self._asked[number] = Deferred()
        self._write(line(b"do", number, order))
        return answered

    def _write(self, data: bytes) -> None:
        if self._open:
            self.transport.write(data)

    # --- ProcessProtocol

    def connectionMade(self) -> None:
        self.pid = self.transport.pid
        self._open = True
        self._write(self.handover)
        self.handover = b""

    def childDataReceived(self, childFD: int, data: bytes) -> None:
        if childFD == LOGGED:
            self._relay(self._logged.feed(data))
            return
        for each in self._told.feed(data):
            word, _, rest = each.partition(b" ")
            self._words[word](self, rest)

    def processEnded(self, reason: Failure) -> None:
        self._open = False
        asked, self._asked = self._asked, {}
        for answered in asked.values():
            answered.callback(GONE)
        end: Any = reason.value
        how = f"exit code {end.exitCode}"
        if end.signal is not None:
            how = f"killed by {signal.Signals(end.signal).name}"
        self._crew.ended(self, how, end.exitCode == 0)

    # --- what it tells

    def _is_ready(self, rest: bytes) -> None:
        self._crew.is_ready(self)

    def _has_answered(self, rest: bytes) -> None:
        number, answer = read_line(rest, Answer)
        self._asked.pop(number).callback(answer)

    def _orders(self, rest: bytes) -> None:
        number, order = read_line(rest, Order)
        self._crew.everywhere_but(self.number, order).addCallback(
            lambda answers: self._write(line(b"answers", number, answers))
        )

    _words = {b"ready": _is_ready, b"answer": _has_answered, b"order": _orders}  # noqa: RUF012
