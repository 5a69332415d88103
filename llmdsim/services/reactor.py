"""An epoll reactor that ends its turns, without the logging context that Twisted makes around every event.

The context (a dictionary for the log's `system` field, which nothing here reads) costs a third of what it
takes to receive a request and send an answer.
"""

from __future__ import annotations

import errno
import sys
from select import EPOLLIN
from typing import Any

from twisted.internet.epollreactor import EPollReactor
from twisted.logger import Logger

from llmdsim.wire.transport import DirectSend, Turn

log = Logger()

#: What Twisted keeps to itself and this reactor depends on.
PRIVATE = ("_poller", "_selectables", "_doReadOrWrite", "_disconnectSelectable")


class LeanEPollReactor(EPollReactor):
    """`EPollReactor` with a shorter way from a readable connection of ours to its `doRead`.

    `turn` holds what is to be sent before the reactor waits for events again.
    """

    _poller: Any
    _selectables: dict[int, Any]
    _doReadOrWrite: Any
    _disconnectSelectable: Any

    def __init__(self) -> None:
        self.turn = Turn()
        super().__init__()  # type: ignore[no-untyped-call]

    def doPoll(self, timeout: float | None) -> None:
        """End the turn, wait for events and serve them."""
        # Here, and not behind the events: calls from threads and timers were made since.
        self.turn.end()
        try:
            events = self._poller.poll(-1 if timeout is None else timeout, len(self._selectables))
        except OSError as error:
            if error.errno == errno.EINTR:
                return
            raise
        find = self._selectables.get
        for descriptor, event in events:
            selectable = find(descriptor)
            if selectable is None:
                continue  # closed by what came before it in this round
            if event != EPOLLIN or not isinstance(selectable, DirectSend):
                self._doReadOrWrite(selectable, descriptor, event)
                continue
            try:
                why = selectable.doRead()  # type: ignore[attr-defined]
            except BaseException as error:
                log.failure("reading failed")
                why = error
            if why:
                self._disconnectSelectable(selectable, why, True)

    doIteration = doPoll


def install() -> None:
    """Make it the reactor of this process, unless there is one already or the system has no epoll."""
    if "twisted.internet.reactor" in sys.modules or not sys.platform.startswith("linux"):
        return
    from twisted.internet.main import installReactor  # noqa: PLC0415 - it may not be wanted

    reactor: Any = LeanEPollReactor()
    if not all(hasattr(reactor, name) for name in PRIVATE):
        log.warn("this version of Twisted is unknown: its own epoll reactor serves")
        reactor = EPollReactor()  # type: ignore[no-untyped-call]
    installReactor(reactor)  # type: ignore[no-untyped-call]
