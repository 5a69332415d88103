"""An epoll reactor that ends its turns, without the logging context that Twisted makes around every event.

The context (a dictionary for the log's `system` field, which nothing here reads) costs a third of what it
takes to receive a request and send an answer. At the end of a turn what waits for it is sent
(`llmdsim.wire.transport.Turn`). Everything else is Twisted's own reactor.
"""

from __future__ import annotations

import errno
import sys
from select import EPOLLIN
from typing import Any

from twisted.internet.epollreactor import EPollReactor
from twisted.logger import Logger

from llmdsim.wire.transport import turn

log = Logger()


class LeanEPollReactor(EPollReactor):
    """`EPollReactor` with a shorter way from a readable descriptor to its `doRead`."""

    _poller: Any
    _selectables: dict[int, Any]
    _doReadOrWrite: Any
    _disconnectSelectable: Any

    def doPoll(self, timeout: float | None) -> None:
        """Wait for events and serve them."""
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
            if event != EPOLLIN:
                self._doReadOrWrite(selectable, descriptor, event)
                continue
            try:
                why = selectable.doRead()
            except BaseException as error:
                log.failure("reading failed")
                why = error
            if why:
                self._disconnectSelectable(selectable, why, True)
        turn.end()

    doIteration = doPoll


def install() -> None:
    """Make it the reactor of this process, unless there is one already or the system has no epoll."""
    if "twisted.internet.reactor" not in sys.modules and sys.platform.startswith("linux"):
        from twisted.internet.main import installReactor  # noqa: PLC0415 - it may not be wanted

        installReactor(LeanEPollReactor())  # type: ignore[no-untyped-call]
        turn.ends = True
