"""Connections in memory: a server on a fake clock, its clients, and a strict reader of what it says."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from llmdsim.wire.limits import Limits
from llmdsim.wire.request import Request
from llmdsim.wire.site import Site

#: Twisted pauses a producer when more than this waits to be sent.
SEND_BUFFER = 65536

_STATUS = re.compile(rb"HTTP/1\.1 ([1-5]\d\d) [\x20-\x7e]*")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ([\x20-\x7e\x80-\xff]*)")


class Reply(NamedTuple):
    """A response as a client reads it; not `complete` when the connection ended in the middle of it."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes
    complete: bool

    @property
    def error(self) -> Any:
        """The JSON body of an error."""
        return json.loads(self.body)


def read_replies(data: bytes, methods: Sequence[bytes], ended: bool) -> list[Reply]:
    """Every response in `data`; `methods` are those of the requests, as far as known (then GET).

    Strict: whatever a careful client could not frame is an AssertionError.
    """
    replies: list[Reply] = []
    remaining = deque(methods)
    while data:
        head, end, rest = data.partition(b"\r\n\r\n")
        assert end, f"no end of head: {data[:200]!r}"
        first, *lines = head.split(b"\r\n")
        status_match = _STATUS.fullmatch(first)
        assert status_match, first
        status = int(status_match[1])
        headers: dict[bytes, bytes] = {}
        for line in lines:
            match = _HEADER.fullmatch(line)
            assert match, line
            assert match[1].lower() not in headers, f"{match[1]!r} twice"
            headers[match[1].lower()] = match[2]
        if status == 100:
            assert not headers
            replies.append(Reply(100, {}, b"", True))
            data = rest
            continue
        method = remaining.popleft() if remaining else b"GET"
        body, complete, data = _read_body(status, method, headers, rest, ended)
        replies.append(Reply(status, headers, body, complete))
    return replies


def _read_body(
    status: int, method: bytes, headers: dict[bytes, bytes], data: bytes, ended: bool
) -> tuple[bytes, bool, bytes]:
    length = headers.get(b"content-length")
    encoding = headers.get(b"transfer-encoding")
    assert length is None or encoding is None, "framed twice"
    assert encoding in (None, b"chunked"), encoding
    if status in (204, 304):
        assert length is None
        assert encoding is None
        return b"", True, data
    if method == b"HEAD":
        return b"", True, data
    if encoding is not None:
        return _read_chunks(data)
    if length is not None:
        size = int(length)
        return data[:size], len(data) >= size, data[size:]
    assert headers.get(b"connection") == b"close", "the end of the body cannot be told"
    return data, ended, b""


def _read_chunks(data: bytes) -> tuple[bytes, bool, bytes]:
    body = b""
    while True:
        line, found, rest = data.partition(b"\r\n")
        if not found:
            return body, False, b""
        assert re.fullmatch(rb"[0-9a-f]+", line), f"not a chunk size: {line!r}"
        size = int(line, 16)
        if len(rest) < size + 2:
            return body + rest[:size], False, b""
        assert rest[size : size + 2] == b"\r\n", f"chunk without end: {rest[size : size + 20]!r}"
        body, data = body + rest[:size], rest[size + 2 :]
        if not size:
            return body, True, data


class UnixTransport(StringTransport):
    """A transport that behaves as Twisted's do.

    Closing and half-closing wait for what the client has still to read; the end is told in a later turn; what
    comes while reading is paused waits.
    """

    def __init__(self, clock: Clock, protocol: Any) -> None:
        super().__init__()
        self._clock = clock
        self.protocol = protocol
        self._arrived: deque[bytes | None] = deque()
        self._producer_paused = False
        self._write_disconnecting = False
        self.client_reads = True
        self.unsent = b""
        self.half_closed = False
        #: How the connection ended: "closed", "reset" (by us), "lost" (by the client); empty until then.
        self.end = ""

    # --- what the protocol calls

    def write(self, data: bytes) -> None:
        if self.disconnected or self.end or self.half_closed:
            return
        if self.client_reads:
            super().write(data)
            return
        self.unsent += data
        if len(self.unsent) > SEND_BUFFER and self.producer is not None:
            self._producer_paused = True
            self.producer.pauseProducing()

    def unregisterProducer(self) -> None:
        super().unregisterProducer()
        if self.disconnecting:
            self._clock.callLater(0, self._flushed)

    def loseConnection(self) -> None:
        if not self.disconnecting:
            self.disconnecting = True
            self._clock.callLater(0, self._flushed)

    def loseWriteConnection(self) -> None:
        self._write_disconnecting = True
        self._clock.callLater(0, self._flushed)

    def abortConnection(self) -> None:
        if not self.disconnected and not self.end:
            self.disconnected = self.disconnecting = True
            self.unsent = b""
            self._clock.callLater(0, self.lost, "reset", Failure(ConnectionAborted()))

    def resumeProducing(self) -> None:
        super().resumeProducing()
        self._clock.callLater(0, self._take_arrived)

    def peer_left(self, by_fin: bool) -> bool:
        return by_fin and None in self._arrived

    # --- what the network does

    def _flushed(self) -> None:
        if self.unsent or self.disconnected:
            return
        if self.disconnecting:
            self.lost("closed", Failure(ConnectionDone()))
        elif self._write_disconnecting and not self.half_closed:
            self.half_closed = True
            if IHalfCloseableProtocol.providedBy(self.protocol):
                self.protocol.writeConnectionLost()

    def lost(self, end: str, reason: Failure) -> None:
        if not self.end:
            self.end = end
            self.connected = False
            self._arrived.clear()
            if self.producer is not None:
                self.producer.stopProducing()
            self.protocol.connectionLost(reason)

    def arrive(self, data: bytes | None) -> None:
        """`data` came from the client; None is its FIN."""
        self._arrived.append(data)
        if len(self._arrived) == 1:
            self._take_arrived()

    def _take_arrived(self) -> None:
        while self._arrived and self.producerState == "producing":
            data = self._arrived.popleft()
            if self.disconnecting or self.end:
                continue
            if data is None and not IHalfCloseableProtocol.providedBy(self.protocol):
                self.lost("closed", Failure(ConnectionDone()))
            elif data is None:
                self.protocol.readConnectionLost()
            else:
                self.protocol.dataReceived(data)

    def stop_reading(self, full: bool = True) -> None:
        """The client reads no more; `full`: and the protocol is told so."""
        self.client_reads = False
        if full and self.producer is not None:
            self._producer_paused = True
            self.producer.pauseProducing()

    def drain(self) -> None:
        """The client reads all there is."""
        data, self.unsent = self.unsent, b""
        super().write(data)
        if self._producer_paused and self.producer is not None:
            # It may write more, so the end waits; Twisted goes on with it only once there is no producer.
            self._producer_paused = False
            self.producer.resumeProducing()
        else:
            self._flushed()


class TCPTransport(UnixTransport):
    """The same, with what only TCP has."""

    no_delay = False

    def setTcpNoDelay(self, enabled: bool) -> None:
        self.no_delay = enabled


Answer = Callable[[Request], None]


def whole(request: Request) -> None:
    """Answer at once with a description of the request."""
    request.respond(200, described(request), b"text/plain")


def streamed(request: Request) -> None:
    """Answer at once with a description of the request, in three pieces."""
    text = described(request)
    request.start(200, b"text/plain", first=text[:3])
    request.send(text[3:7])
    request.finish(text[7:])


def described(request: Request) -> bytes:
    return b"%b %b %b" % (request.method, request.uri, request.body)


class Server:
    """A site on a clock of its own; `answer`, if given, is called with each request."""

    def __init__(self, answer: Answer | None = None, limits: Limits = Limits()) -> None:  # noqa: B008 - frozen
        self.clock = Clock()
        self.requests: list[Request] = []
        self.lost: list[Request] = []
        self.drained: list[Request] = []
        self.answer = answer
        self.site = Site(self._handle, self._error_body, limits, self.clock)
        self.site.start()

    def _handle(self, request: Request) -> None:
        self.requests.append(request)
        request.on_lost = lambda: self.lost.append(request)
        request.on_drain = lambda: self.drained.append(request)
        if self.answer is not None:
            self.answer(request)

    @staticmethod
    def _error_body(status: int, path: bytes, message: str) -> bytes:
        return json.dumps({"code": status, "path": path.decode("latin-1"), "message": message}).encode()

    def connect(self, transport: type[UnixTransport] = TCPTransport) -> Client:
        return Client(self, transport)

    def settle(self) -> None:
        """Let one turn of the reactor pass."""
        self.clock.advance(0)

    def wait(self, seconds: float) -> None:
        """Let time pass, a quarter of a second at a time."""
        self.clock.pump([0.25] * round(seconds * 4))


class Client:
    """One client of a server."""

    def __init__(self, server: Server, transport: type[UnixTransport]) -> None:
        self._server = server
        first = server.site.buildProtocol(None)
        self.transport = transport(server.clock, first)
        first.makeConnection(self.transport)

    def send(self, *packets: bytes) -> Client:
        """Send packets, and let the server have its turn after each."""
        for packet in packets:
            self.transport.arrive(packet)
            self._server.settle()
        return self

    def send_bytes(self, data: bytes) -> Client:
        """Send `data` a byte a packet."""
        return self.send(*pieces(data, 1))

    def fin(self) -> Client:
        """Send FIN; its effect, apart from what the protocol does at once, waits for the server's turn."""
        self.transport.arrive(None)
        return self

    def settle(self) -> None:
        self._server.settle()

    def rst(self) -> Client:
        """Send RST."""
        self.transport.lost("lost", Failure(ConnectionLost()))
        return self

    @property
    def protocol(self) -> Any:
        """The one that serves it by now."""
        return self.transport.protocol

    @property
    def received(self) -> bytes:
        return self.transport.value()

    @property
    def fate(self) -> str:
        """ "open", "half-closed" (our FIN is sent), "closed", "reset" or "lost"."""
        return self.transport.end or ("half-closed" if self.transport.half_closed else "open")

    def replies(self, *methods: bytes) -> list[Reply]:
        """What the client has received; `methods` are by default those of the requests handed on."""
        requests = self._server.requests
        known = methods or [request.method for request in requests if request.channel is self.protocol]
        return read_replies(self.received, known, self.fate != "open")

    def statuses(self) -> list[int]:
        return [reply.status for reply in self.replies()]


def get(
    path: bytes = b"/", *headers: bytes, method: bytes = b"GET", version: bytes = b"1.1", host: bool = True
) -> bytes:
    """A request without body."""
    lines = [b"%b %b HTTP/%b" % (method, path, version), *([b"Host: sim"] if host else []), *headers]
    return b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def post(body: bytes, *headers: bytes, path: bytes = b"/", version: bytes = b"1.1") -> bytes:
    """A request with its length given."""
    length = b"Content-Length: %d" % len(body)
    return get(path, *headers, length, method=b"POST", version=version) + body


def post_chunks(chunks: Iterable[bytes], *headers: bytes, trailers: bytes = b"", path: bytes = b"/") -> bytes:
    """A chunked request; `trailers` are lines with their ends."""
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    head = get(path, *headers, b"Transfer-Encoding: chunked", method=b"POST")
    return head + body + b"0\r\n" + trailers + b"\r\n"


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]
