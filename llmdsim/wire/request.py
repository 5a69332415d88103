"""One HTTP request and the writing of its response, whatever protocol carries them.

Two ways to answer: `respond` sends a whole response in one write; `start`, `send` and `finish` send a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import unquote_to_bytes

import msgspec
from twisted.logger import Logger
from twisted.python.failure import Failure

from llmdsim.wire.status import opening

log = Logger()

#: Statuses whose responses have neither body nor length.
BODILESS = (204, 304)


class Channel(Protocol):
    """The connection (or stream of one) a request came over."""

    @property
    def transport(self) -> Any:
        """What ends it at once (`abortConnection`)."""

    @property
    def write_paused(self) -> bool:
        """Nothing should be sent for now: the client does not read."""

    @property
    def peer(self) -> str:
        """Where the client is, as text."""

    @property
    def write(self) -> Callable[[bytes], None]:
        """Sends bytes as they are."""

    @property
    def write_soon(self) -> Callable[[bytes], None]:
        """The same for whole responses, which need not go out before the reactor's turn ends."""

    def request_done(self, request: Request) -> None:
        """The response of `request` is complete."""

    def refuse(self, request: Request, status: int, message: str) -> None:
        """Answer `request` with an error."""


class Request(msgspec.Struct, eq=False, weakref=True):
    """A complete request: `method`, `uri`, `path`, `query`, `body` are bytes, `headers` has lower-case names.

    `on_lost`, when set, is called once if the client leaves before the response is complete. `on_drain`, when
    set, is called when a client that did not read does so again. After either end, writing does nothing.
    `on_failure`, when set, ends the response with an error that it is given.
    """

    channel: Channel
    method: bytes
    uri: bytes
    headers: Mapping[bytes, bytes]
    path: bytes = b""
    query: bytes = b""
    #: It is known that none of its headers has a say in the answer; where they may have, False.
    plain: bool = False
    body: bytes = b""
    #: Bytes of the body where a header told them before, else 0.
    content_length: int = 0
    clientproto: bytes = b"HTTP/1.1"
    keep_alive: bool = True
    expects_continue: bool = False
    on_lost: Callable[[], None] | None = None
    on_drain: Callable[[], None] | None = None
    on_failure: Callable[[Any], None] | None = None
    #: Given each piece of the body, then None, where the request is answered before all of it has come; over
    #: HTTP/2 only.
    on_body: Callable[[bytes | None], None] | None = None
    #: A delayed call that is cancelled when the request ends; over HTTP/2 only.
    timer: Any = None
    started: bool = False
    finished: bool = False
    #: Header lines of the response, whatever it will be; each with its line end.
    common_headers: bytes = b""
    #: The same of its trailers, which only HTTP/2 sends.
    trailers: bytes = b""
    #: What the route knows that the log tells when the request has ended, if somebody wants it.
    account: Any = None
    #: The path of the route that answers, with its variables in braces; "" where there is none.
    route: str = ""
    #: When its turn to be answered came, in the clock's seconds.
    began: float = 0.0
    #: Of the response: 0 until its head is sent, and its Content-Length, which a stream has none of.
    status: int = 0
    length: int = 0
    #: The client left before the response was complete.
    lost: bool = False
    _chunked: bool = False
    #: Pieces of the started stream go to the channel as they are: HTTP/2 frames them.
    unframed: bool = False

    def __post_init__(self) -> None:
        target, _, self.query = self.uri.partition(b"?")
        self.path = unquote_to_bytes(target) if b"%" in target else target

    def respond(
        self, status: int, body: bytes, content_type: bytes = b"application/json", extra: bytes = b""
    ) -> None:
        """Send the whole response; `extra` is further header lines, each with its line end."""
        if self.finished or self.started:
            return
        self.started = True
        self.length = length = len(body)
        head = self._head(
            status, b"%bcontent-type: %b\r\ncontent-length: %d\r\n" % (extra, content_type, length)
        )
        self.channel.write_soon(head if self.method == b"HEAD" else head + body)
        self._end()

    def respond_empty(self, status: int, extra: bytes = b"") -> None:
        """Send a response without body or content type."""
        if self.finished or self.started:
            return
        self.started = True
        framing = b"" if status in BODILESS else b"content-length: 0\r\n"
        self.channel.write_soon(self._head(status, extra + framing))
        self._end()

    def start(
        self, status: int, content_type: bytes, extra: bytes = b"", first: bytes = b"", end: bool = False
    ) -> None:
        """Send the head of a stream, with its first bytes if there are some; with `end`, they are all."""
        if self.finished or self.started:
            return
        self.started = True
        lines = b"%bcontent-type: %b\r\n" % (extra, content_type)
        if self.clientproto == b"HTTP/1.0":
            self.keep_alive = False
        elif self.clientproto == b"HTTP/1.1":
            self._chunked = True
            lines += b"transfer-encoding: chunked\r\n"
        elif self.method != b"HEAD":
            self.unframed = True
        data = self._head(status, lines)
        if first:
            data += self._frame(first)
        if end:
            self.channel.write_soon(data + self._last_chunk())
            self._end()
        else:
            self.channel.write(data)

    def send(self, data: bytes) -> None:
        """Send a piece of the started stream; an empty one, which would end it, is not sent."""
        if not self.finished and data:
            framed = self._frame(data)
            if framed:
                self.channel.write(framed)

    def finish(self, last: bytes = b"") -> None:
        """Send the last piece of the started stream, if any, and end it."""
        if self.finished:
            return
        tail = (self._frame(last) if last else b"") + self._last_chunk()
        if tail:
            self.channel.write(tail)
        self._end()

    def fail(self, failure: Failure) -> None:
        """Code of ours failed: log it and answer 500, or cut a stream that has begun."""
        log.failure("{method} {path} failed", failure, method=self.method, path=self.path)
        if self.finished:
            return
        if self.started:
            # The client sees a truncated stream, not one that ends as if it were complete.
            self.channel.transport.abortConnection()
        else:
            self.channel.refuse(self, 500, "Internal server error")

    def _head(self, status: int, lines: bytes) -> bytes:
        self.status = status
        if not self.keep_alive:
            end = b"connection: close\r\n\r\n"
        elif self.clientproto == b"HTTP/1.0":
            end = b"connection: keep-alive\r\n\r\n"
        else:
            end = b"\r\n"
        return opening(status) + self.common_headers + lines + end

    def _frame(self, data: bytes) -> bytes:
        if self.method == b"HEAD":
            return b""
        return b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data

    def _last_chunk(self) -> bytes:
        return b"0\r\n\r\n" if self._chunked and self.method != b"HEAD" else b""

    def _end(self) -> None:
        self.finished = True
        self.on_lost = self.on_drain = self.on_failure = None
        self.channel.request_done(self)

    # --- what the channel tells

    def connection_lost(self) -> None:
        """The client left before the response was complete."""
        if self.finished:
            return
        self.finished = self.lost = True
        on_lost, self.on_lost, self.on_drain, self.on_failure = self.on_lost, None, None, None
        if on_lost is not None:
            on_lost()

    def drained(self) -> None:
        """The client reads again."""
        if self.on_drain is not None:
            self.on_drain()
