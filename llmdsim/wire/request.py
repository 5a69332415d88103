"""One HTTP request and the writing of its response, whatever protocol carries them.

Two ways to answer: `respond` sends a whole response in one write; `start`, `send` and `finish` send a stream.
The rest of `IRequest` is here as far as Klein needs it, and is built only when asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qs, unquote_to_bytes

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionLost
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http_headers import Headers

from llmdsim.wire.status import date_line, status_line

if TYPE_CHECKING:
    from twisted.internet.interfaces import IAddress

log = Logger()

#: Statuses whose responses have neither body nor length.
BODILESS = (204, 304)


class Channel(Protocol):
    """The connection (or stream of one) a request came over."""

    #: Nothing should be sent for now: the client does not read.
    write_paused: bool
    transport: Any

    @property
    def write(self) -> Callable[[bytes], None]:
        """Sends bytes as they are."""

    @property
    def write_soon(self) -> Callable[[bytes], None]:
        """The same for whole responses, which need not go out before the reactor's turn ends."""

    def request_done(self, request: Request) -> None:
        """The response of `request` is complete."""

    def error_body(self, status: int, path: bytes, message: str) -> bytes:
        """The body of an error response."""


class Request:
    """A complete request: `method`, `uri`, `path`, `query`, `body` are bytes, `headers` has lower-case names.

    `on_lost`, when set, is called once if the client leaves before the response is complete. `on_drain`, when
    set, is called when a client that did not read does so again. After either end, writing does nothing.
    """

    def __init__(self, channel: Channel, method: bytes, uri: bytes, headers: dict[bytes, bytes]) -> None:
        self.channel = channel
        self.method = method
        self.uri = uri
        target, _, self.query = uri.partition(b"?")
        self.path = unquote_to_bytes(target) if b"%" in target else target
        self.headers = headers

    # What most requests leave as it is costs nothing on the class.
    body = b""
    clientproto = b"HTTP/1.1"
    keep_alive = True
    on_lost: Callable[[], None] | None = None
    on_drain: Callable[[], None] | None = None
    started = False
    finished = False
    lost = False
    expects_continue = False
    #: Header lines of the response, whatever it will be; each with its line end.
    common_headers = b""
    #: Status and body bytes of the response, for logs.
    code = 200
    sent_bytes = 0
    _chunked = False
    _written: tuple[bytes, ...] = ()
    _response_headers: Mapping[bytes, bytes] = MappingProxyType({})
    _finish_notices: tuple[Deferred[None], ...] = ()
    _prepath: list[bytes] | None = None
    _postpath: list[bytes] | None = None

    # --- answering

    def respond(
        self, status: int, body: bytes, content_type: bytes = b"application/json", extra: bytes = b""
    ) -> None:
        """Send the whole response; `extra` is further header lines, each with its line end."""
        if self.finished or self.started:
            return
        head = b"%b%b%bcontent-type: %b\r\ncontent-length: %d\r\n%b\r\n" % (
            status_line(status),
            date_line(),
            self.common_headers + extra,
            content_type,
            len(body),
            self._connection_line(),
        )
        self.code = status
        self.started = True
        self.sent_bytes = len(body)
        self.channel.write_soon(head if self.method == b"HEAD" else head + body)
        self._end()

    def respond_empty(self, status: int, extra: bytes = b"") -> None:
        """Send a response without body or content type."""
        if self.finished or self.started:
            return
        length = b"" if status in BODILESS else b"content-length: 0\r\n"
        self.code = status
        self.started = True
        self.channel.write_soon(
            b"%b%b%b%b%b\r\n"
            % (
                status_line(status),
                date_line(),
                self.common_headers + extra,
                length,
                self._connection_line(),
            )
        )
        self._end()

    def start(
        self, status: int, content_type: bytes, extra: bytes = b"", first: bytes = b"", end: bool = False
    ) -> None:
        """Send the head of a stream, with its first bytes if there are some; with `end`, they are all."""
        if self.finished or self.started:
            return
        self.started = True
        self.code = status
        if self.clientproto == b"HTTP/1.0":
            self.keep_alive = False
            framing = b""
        else:
            self._chunked = True
            framing = b"transfer-encoding: chunked\r\n"
        head = b"%b%b%bcontent-type: %b\r\n%b%b\r\n" % (
            status_line(status),
            date_line(),
            self.common_headers + extra,
            content_type,
            framing,
            self._connection_line(),
        )
        data = head + self._frame(first) if first else head
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
        """Send the last piece, if any, and end the response."""
        if self.finished:
            return
        if not self.started:
            self._written += (last,)
            self._respond_written()
            return
        tail = (self._frame(last) if last else b"") + self._last_chunk()
        if tail:
            self.channel.write(tail)
        self._end()

    def cut(self) -> None:
        """End the connection without ending the response: the client sees a truncated stream."""
        if not self.finished:
            self.channel.transport.abortConnection()

    def _frame(self, data: bytes) -> bytes:
        if self.method == b"HEAD":
            return b""
        self.sent_bytes += len(data)
        return b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data

    def _last_chunk(self) -> bytes:
        return b"0\r\n\r\n" if self._chunked and self.method != b"HEAD" else b""

    def _connection_line(self) -> bytes:
        if not self.keep_alive:
            return b"connection: close\r\n"
        return b"connection: keep-alive\r\n" if self.clientproto == b"HTTP/1.0" else b""

    def _end(self) -> None:
        self.finished = True
        self.on_lost = self.on_drain = None
        if self._finish_notices:
            notices, self._finish_notices = self._finish_notices, ()
            for notice in notices:
                notice.callback(None)
        self.channel.request_done(self)

    # --- what the channel tells

    def connection_lost(self) -> None:
        """The client left before the response was complete."""
        if self.finished:
            return
        self.finished = self.lost = True
        on_lost, self.on_lost, self.on_drain = self.on_lost, None, None
        notices, self._finish_notices = self._finish_notices, ()
        if on_lost is not None:
            on_lost()
        for notice in notices:
            notice.errback(Failure(ConnectionLost()))  # type: ignore[no-untyped-call]

    def drained(self) -> None:
        """The client reads again."""
        if self.on_drain is not None:
            self.on_drain()

    # --- the rest of IRequest

    def getHeader(self, key: str | bytes) -> Any:
        """A request header's value, in the type of `key`, or None."""
        if isinstance(key, str):
            value = self.headers.get(key.lower().encode("latin-1"))
            return None if value is None else value.decode("latin-1")
        return self.headers.get(key.lower())

    @property
    def requestHeaders(self) -> Headers:
        """The request headers in Twisted's form."""
        return Headers({name: [value] for name, value in self.headers.items()})

    @property
    def content(self) -> BytesIO:
        """The body as a file."""
        return BytesIO(self.body)

    @property
    def args(self) -> dict[bytes, list[bytes]]:
        """The query's arguments."""
        found = parse_qs(self.query.decode("latin-1"), keep_blank_values=True, encoding="latin-1")
        return {
            name.encode("latin-1"): [value.encode("latin-1") for value in values]
            for name, values in found.items()
        }

    @property
    def prepath(self) -> list[bytes]:
        """Path segments Klein has consumed."""
        if self._prepath is None:
            self._prepath = []
        return self._prepath

    @property
    def postpath(self) -> list[bytes]:
        """Path segments Klein has still to look at."""
        if self._postpath is None:
            self._postpath = self.path.split(b"/")[1:]
        return self._postpath

    @postpath.setter
    def postpath(self, segments: list[bytes]) -> None:
        self._postpath = segments

    def setResponseCode(self, code: int, message: bytes | None = None) -> None:
        """The status of a response made with `write`."""
        self.code = code

    def setHeader(self, name: str | bytes, value: str | bytes) -> None:
        """A header of a response made with `write`; framing headers are ours to set."""
        raw_name = name.encode("latin-1") if isinstance(name, str) else name
        raw_value = value.encode("latin-1") if isinstance(value, str) else value
        if raw_name.lower() not in (b"content-length", b"transfer-encoding", b"connection"):
            raw_value = raw_value.replace(b"\r", b" ").replace(b"\n", b" ")
            self._response_headers = {**self._response_headers, raw_name.lower(): raw_value}

    def write(self, data: bytes) -> None:
        """Add to a response that `finish` sends as a whole; in a started stream, send."""
        if self.started:
            self.send(data)
        else:
            self._written += (data,)

    def _respond_written(self) -> None:
        headers = dict(self._response_headers)
        content_type = headers.pop(b"content-type", b"text/plain; charset=utf-8")
        extra = b"".join(b"%b: %b\r\n" % header for header in headers.items())
        if self.code in BODILESS:
            self.respond_empty(self.code, extra)
        else:
            self.respond(self.code, b"".join(self._written), content_type, extra)

    def notifyFinish(self) -> Deferred[None]:
        """Fires when the response is complete; fails when the client leaves before."""
        notice: Deferred[None] = Deferred()
        self._finish_notices += (notice,)
        return notice

    def processingFailed(self, failure: Failure) -> None:
        """A handler failed in a way nobody expected: log it and answer 500."""
        log.failure("{method} {path} failed", failure, method=self.method, path=self.path)
        if self.started:
            self.cut()
        else:
            self.respond(500, self.channel.error_body(500, self.path, "Internal server error"))

    def getHost(self) -> IAddress:
        """Our address of the connection."""
        address: IAddress = self.channel.transport.getHost()
        return address

    def getClientAddress(self) -> IAddress:
        """The client's address."""
        address: IAddress = self.channel.transport.getPeer()
        return address

    def isSecure(self) -> bool:
        """Whether the connection is under TLS."""
        return hasattr(self.channel.transport, "getPeerCertificate")

    def getRequestHostname(self) -> bytes:
        """The host name the client used, without a port."""
        host = self.headers.get(b"host", b"localhost")
        if host.startswith(b"["):
            return host.partition(b"]")[0] + b"]"
        return host.partition(b":")[0]
