"""A bad connection: what becomes of one response between its writing and its sending."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from llmdsim.config.fault import Fault
from llmdsim.web.errors import ApiError
from llmdsim.web.response_form import ResponseForm
from llmdsim.web.stand_in import StandIn
from llmdsim.wire.request import Request

#: Pieces in which something slow arrives.
PIECES = 10


class FaultyChannel(StandIn):
    """Takes the place of the channel of `request`, whose response is written as any other.

    Until the fault shows, bytes pass as they come; then `shown` is called. While something is held back the
    client seems not to read, so that a stream keeps what falls due as a number. `form` is that of the
    response; `error` is what a reply is ended with where that is the fault. `clock` is an `IReactorTime`.
    """

    def __init__(
        self,
        request: Request,
        form: ResponseForm,
        fault: Fault,
        error: ApiError,
        clock: Any,
        shown: Callable[[], None],
    ) -> None:
        super().__init__(request)
        self._form = form
        self._fault = fault
        self._error = error
        self._clock = clock
        self._shown = shown
        self._tokens = 0
        self._streamed = self._chunked = self._missing = False
        #: The response's first byte has been written to us, or has left us.
        self._begun = self._sent = False
        #: The fault has shown: what comes now passes.
        self._past = False
        #: Nothing passes any more.
        self._cut = False
        #: The response is over as far as the connection knows.
        self._over = False
        #: Whole as written, though not as sent.
        self._complete = False
        self._call: Any = None
        self._pieces: deque[bytes] = deque()
        self._interval = 0.0
        self._held = b""
        self._then = self._go_on
        self._on_lost: Callable[[], None] | None = None
        request.channel = self

    # --- what the request and its answer see

    @property
    def write_paused(self) -> bool:
        """Nothing should be sent for now."""
        return self._call is not None or self._channel.write_paused

    def write(self, data: bytes) -> None:
        """Send `data`, or what the fault makes of it."""
        if self._cut:
            return
        if self._call is not None:
            self._held += data
        elif self._past:
            self._send(data)
        else:
            self._meet(data)

    write_soon = write

    def request_done(self, request: Request) -> None:
        """The response is written; to the connection it is over when it is sent."""
        if self._over:
            return
        if self._call is not None:
            request.finished = False
            self._complete = True
            self._on_lost, request.on_lost = None, self._client_left
        elif self._cut:
            request.finished = False  # it ends with the connection
        else:
            self._end()

    # --- the fault

    def _meet(self, data: bytes) -> None:
        head = b""
        if not self._begun:
            self._begun = True
            head, end, data = data.partition(b"\r\n\r\n")
            head += end
            self._streamed = self._form.is_stream(self._request, head, data)
            self._chunked = b"\r\ntransfer-encoding: chunked\r\n" in head
            if self._fault.after is None and self._fault.kind != "no-done":
                self._show()
                self._spoil_all(head, data)
                return
        if self._streamed:
            self._look_at_events(head, data)
        else:
            self._spoil_whole(head, data)

    def _spoil_all(self, head: bytes, data: bytes) -> None:
        seconds = self._fault.seconds
        match self._fault.kind:
            case "reset":
                self._reset()
            case "hang":
                self._wait([], seconds, self._reset)
            case "stall":
                self._wait([head + data], seconds)
            case "slow-headers":
                # HTTP/2 cannot send a part of a head but in frames that hold up all other streams.
                self._wait([head] if self._request.clientproto == b"HTTP/2" else _pieces(head), seconds)
                self._held = data

    def _look_at_events(self, head: bytes, data: bytes) -> None:
        body, tail = _unframed(data) if self._chunked else (data, b"")
        form = self._form
        events = form.events(body)
        if self._fault.kind == "no-done":
            kept = [event for event in events if not form.is_last(event)]
            if len(kept) != len(events):
                # Each of several choices may have one.
                if not self._missing:
                    self._missing = True
                    self._shown()
                data = self._framed(b"".join(kept)) + tail
            self._send(head + data)
            return
        for place, event in enumerate(events):
            if form.carries_token(event):
                if self._tokens == self._fault.after:
                    before = head + self._framed(b"".join(events[:place]))
                    self._spoil_stream(before, event, b"".join(events[place + 1 :]), tail)
                    return
                self._tokens += 1
        self._send(head + data)

    def _spoil_stream(self, before: bytes, event: bytes, rest: bytes, tail: bytes) -> None:
        """`event` is the first that the fault may touch; `rest` comes behind it, then `tail` as it is."""
        framed, seconds = self._framed, self._fault.seconds
        self._show()
        match self._fault.kind:
            case "reset":
                self._send(before)
                self._reset()
            case "truncate":
                self._send(before + framed(event[: len(event) // 2]))
                self._break_off()
            case "garble":
                self._send(before + framed(self._form.garbled(event) + rest) + tail)
            case "stall":
                self._send(before)
                self._wait([framed(event + rest) + tail], seconds)
            case "slow-body":
                self._send(before)
                self._wait([framed(piece) for piece in _pieces(event)], seconds)
                self._held = framed(rest) + tail
            case "error":
                self._send(before)
                self._give_up()

    def _spoil_whole(self, head: bytes, body: bytes) -> None:
        half, seconds = len(body) // 2, self._fault.seconds
        kind = self._fault.kind
        if kind == "no-done" or (kind == "error" and self._form.is_error(self._request)):
            self._send(head + body)
            return
        self._show()
        match kind:
            case "reset":
                self._send(head + body[:half])
                self._reset()
            case "truncate":
                self._send(head + body[:half])
                self._break_off()
            case "garble":
                self._send(head + self._form.garbled(body))
            case "stall":
                self._send(head + body[:half])
                self._wait([body[half:]], seconds)
            case "slow-body":
                self._send(head)
                self._wait(_pieces(body), seconds)
            case "error":
                self._give_up()

    def _show(self) -> None:
        self._past = True
        self._shown()

    def _framed(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if self._chunked and data else data

    def _send(self, data: bytes) -> None:
        if data:
            self._sent = True
            self._channel.write(data)

    # --- ends

    def _end(self) -> None:
        self._over = True
        self._request.finished = True
        self._request.on_lost = self._request.on_drain = self._request.on_failure = None
        self._channel.request_done(self._request)

    def _reset(self) -> None:
        self._cut = True
        self._told_nothing()
        self.transport.abortConnection()

    def _break_off(self) -> None:
        """Close in the middle, as if this were the end."""
        request = self._request
        self._cut = True
        request.lost = True  # so do those who count and log it see that it was not complete
        request.keep_alive = False
        on_lost = request.on_lost
        self._end()
        if on_lost is not None:
            on_lost()

    def _told_nothing(self) -> None:
        if not self._sent:
            self._request.status = self._request.length = 0

    def _give_up(self) -> None:
        # In a turn of its own: this is called from the midst of writing what the error takes the place of.
        end = self._request.on_failure if self._streamed else partial(self._form.fail, self._request)
        self._wait([], 0.0, partial(self._answer_error, end))

    def _answer_error(self, end: Callable[[ApiError], None] | None) -> None:
        self._request.started = self._streamed
        if end is not None:
            end(self._error)

    # --- waiting

    def _wait(self, pieces: list[bytes], seconds: float, then: Callable[[], None] | None = None) -> None:
        """Send `pieces` one by one over `seconds`, then what is held by then, and go on; or do `then`."""
        request = self._request
        self._pieces.extend(pieces)
        self._interval = seconds / max(1, len(pieces))
        self._then = then or self._go_on
        self._on_lost, request.on_lost = request.on_lost, self._client_left
        self._call = self._clock.callLater(self._interval, self._next)

    def _next(self) -> None:
        self._call = None
        if self._pieces:
            self._send(self._pieces.popleft())
        if self._pieces:
            self._call = self._clock.callLater(self._interval, self._next)
            return
        self._request.on_lost, self._on_lost = self._on_lost, None
        self._then()

    def _go_on(self) -> None:
        held, self._held = self._held, b""
        self._send(held)
        if self._complete:
            self._end()
        else:
            self._request.drained()

    def _client_left(self) -> None:
        request = self._request
        self._call.cancel()
        self._call = None
        self._cut = True
        self._told_nothing()
        # If it has not left, and only the time of its call is over, that is told as by any other.
        request.channel = self._channel
        request.started = self._sent
        if self._on_lost is not None:
            self._on_lost()


def _unframed(data: bytes) -> tuple[bytes, bytes]:
    """What is in `data`, which is whole chunks, and the last chunk where it ends with that."""
    body = b""
    while data:
        size, _, rest = data.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            return body, data
        body += rest[:length]
        data = rest[length + 2 :]
    return body, b""


def _pieces(data: bytes) -> list[bytes]:
    size = -(-len(data) // PIECES)
    return [data[start : start + size] for start in range(0, len(data), size)] if data else []
