"""Comments in streams that have nothing to say, lest proxies take them for dead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llmdsim.web.context import Context
from llmdsim.web.stand_in import StandIn
from llmdsim.wire.request import Request

#: What is sent, an event to nobody (vLLM 0.33 sse_keep_alive.py).
COMMENT = b": keep-alive\n\n"


def keep_alive(context: Context, request: Request) -> None:
    """Have comments sent in the stream that `request` is about to be answered with, where that is set."""
    interval = context.config.sse_keep_alive_interval
    if interval:
        KeptAlive(request, interval, context.turns.clock)


class KeptAlive(StandIn):
    """Takes the place of the channel of `request`, and notes when something passes.

    Whenever nothing has for `interval` seconds, a comment is sent; to a client that does not read, none.
    `clock` is an `IReactorTime`.
    """

    def __init__(self, request: Request, interval: float, clock: Any) -> None:
        super().__init__(request)
        self._interval = interval
        self._clock = clock
        self._seconds: Callable[[], float] = clock.seconds
        self._passed_at = clock.seconds()
        self._call = clock.callLater(interval, self._look)
        self._on_lost, request.on_lost = request.on_lost, self._client_left
        request.channel = self

    def _look(self) -> None:
        request = self._request
        self._call = None
        due = self._passed_at + self._interval
        now = self._seconds()
        if now >= due:
            due = now + self._interval
            if request.started and not self.write_paused:
                request.send(COMMENT)
        self._call = self._clock.callLater(due - now, self._look)

    def _end(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.cancel()
        # Or the two would wait for the collector.
        self._request.channel = self._channel

    def _client_left(self) -> None:
        self._end()
        if self._on_lost is not None:
            self._on_lost()

    # --- what the request and its answer see

    def write(self, data: bytes) -> None:
        """Send `data`."""
        self._passed_at = self._seconds()
        self._channel.write(data)

    def write_soon(self, data: bytes) -> None:
        """Send `data` by the end of the turn."""
        self._passed_at = self._seconds()
        self._channel.write_soon(data)

    def request_done(self, request: Request) -> None:
        """The response is written."""
        self._end()
        self._channel.request_done(request)
