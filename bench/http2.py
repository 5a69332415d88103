"""A gRPC client at little cost: HTTP/2 frames over sockets of the loopback, written and read by hand.

The kernel stamps what arrives (SO_TIMESTAMPNS), as in load.py. Windows are large from the start, and given
back by the quarter; PINGs and SETTINGS are answered.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections import deque
from dataclasses import dataclass, field

import hpack
from load import GRACE, SO_TIMESTAMPNS

STREAM_WINDOW, CONNECTION_WINDOW = 1 << 20, 16 << 20  # what a server may send unacknowledged
DEFAULT_WINDOW = 65535
READ = 1 << 18
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
ACK = END_STREAM = 1
END_HEADERS, PADDED = 4, 8
INITIAL_WINDOW_SIZE = 4


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload


def prefixed(message: bytes) -> bytes:
    """A message as gRPC sends it."""
    return b"\0" + struct.pack(">I", len(message)) + message


class Call:
    """One call; `messages` are those of its answer, each with when it came; `failure` is "" without one."""

    __slots__ = ("failure", "id", "messages", "rest", "sent", "unacknowledged")

    def __init__(self, stream: int = 0) -> None:
        self.id = stream
        self.sent = 0.0
        self.messages: list[tuple[float, bytes]] = []
        self.failure = ""
        self.rest = b""
        self.unacknowledged = 0

    def take(self, stamp: float, data: bytes) -> None:
        """More of the answer: most often one whole message."""
        if self.rest:
            data = self.rest + data
        while len(data) >= 5 and len(data) >= (end := 5 + int.from_bytes(data[1:5], "big")):
            self.messages.append((stamp, data[5:end]))
            data = data[end:]
        self.rest = data


@dataclass
class Calls:
    """All calls of a load that have ended, and the seconds it took."""

    ended: list[Call] = field(default_factory=list)
    wall: float = 0.0
    late_p99: float = 0.0  # seconds from a message's arrival to its reading here


class Connection:
    """One connection and the calls of one method that are under way on it."""

    def __init__(self, port: int, method: str, late: list[float]) -> None:
        self.calls: dict[int, Call] = {}
        self._late = late
        self._decoder = hpack.Decoder()
        encoder = hpack.Encoder()
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", method),
            (":authority", f"127.0.0.1:{port}"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            ("user-agent", "llmdsim-bench"),
            ("grpc-accept-encoding", "identity, gzip"),
        ]
        # The first names all of them, later ones refer to it.
        self._heads = deque((encoder.encode(headers), encoder.encode(headers)))
        self._next_id = 1
        self._unsent: deque[tuple[Call, bytes]] = deque()
        self._window = DEFAULT_WINDOW
        self._unacknowledged = 0
        self._rest = b""
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        settings = struct.pack(">HI", INITIAL_WINDOW_SIZE, STREAM_WINDOW)
        more = struct.pack(">I", CONNECTION_WINDOW - DEFAULT_WINDOW)
        self._out = [
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            frame(SETTINGS, 0, 0, settings),
            frame(WINDOW_UPDATE, 0, 0, more),
        ]

    def ask(self, message: bytes) -> None:
        """One more call, sent by `flush`."""
        call = Call(self._next_id)
        self._next_id += 2
        self.calls[call.id] = call
        self._unsent.append((call, prefixed(message)))

    def flush(self) -> None:
        """Sends what is to be sent, calls as far as the server's window takes them."""
        out = self._out
        while self._unsent and len(self._unsent[0][1]) <= self._window:
            call, body = self._unsent.popleft()
            self._window -= len(body)
            head = self._heads.popleft() if len(self._heads) > 1 else self._heads[0]
            out += (frame(HEADERS, END_HEADERS, call.id, head), frame(DATA, END_STREAM, call.id, body))
            call.sent = time.time()
        if out:
            self.socket.sendall(b"".join(out))
            out.clear()

    def read(self) -> list[Call]:
        """Reads what is there; returns the calls that have ended by it."""
        data, ancillary, _, _ = self.socket.recvmsg(READ, 64)
        if not data:
            raise ConnectionError("the server closed a connection")
        now = stamp = time.time()
        if ancillary:
            seconds, nanoseconds = struct.unpack("qq", ancillary[0][2])
            stamp = seconds + nanoseconds * 1e-9
        self._late.append(now - stamp)
        if self._rest:
            data = self._rest + data
        at, size, calls, taken = 0, len(data), self.calls, 0
        ended: list[Call] = []
        while size - at >= 9:
            length = int.from_bytes(data[at : at + 3], "big")
            end = at + 9 + length
            if end > size:
                break
            kind, flags = data[at + 3], data[at + 4]
            stream = int.from_bytes(data[at + 5 : at + 9], "big")
            payload = data[at + 9 : end]
            at = end
            if kind == DATA:
                call = calls[stream]
                taken += length
                call.unacknowledged += length
                call.take(stamp, payload)
                if call.unacknowledged >= STREAM_WINDOW // 4:
                    self._acknowledge(stream, call.unacknowledged)
                    call.unacknowledged = 0
                if flags & END_STREAM:
                    call.failure = "an answer without trailers"
                    ended.append(calls.pop(stream))
            elif kind == HEADERS:
                if flags & PADDED or not flags & END_HEADERS:
                    raise ConnectionError("headers that this client does not read")
                told = dict(self._decoder.decode(payload))
                if flags & END_STREAM:
                    call = calls.pop(stream)
                    if told.get("grpc-status") != "0":
                        call.failure = f"status {told.get('grpc-status')}: {told.get('grpc-message')}"
                    ended.append(call)
            elif kind == RST_STREAM:
                if stream in calls:
                    calls[stream].failure = f"reset with {int.from_bytes(payload, 'big')}"
                    ended.append(calls.pop(stream))
            else:
                self._control(kind, flags, stream, payload)
        self._rest = data[at:]
        self._unacknowledged += taken
        if self._unacknowledged >= CONNECTION_WINDOW // 4:
            self._acknowledge(0, self._unacknowledged)
            self._unacknowledged = 0
        return ended

    def _acknowledge(self, stream: int, size: int) -> None:
        self._out.append(frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", size)))

    def _control(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind in (SETTINGS, PING) and not flags & ACK:
            self._out.append(frame(kind, ACK, 0, payload if kind == PING else b""))
        elif kind == WINDOW_UPDATE and not stream:
            self._window += int.from_bytes(payload, "big")
        elif kind == GOAWAY:
            raise ConnectionError(f"the server goes away: {payload!r}")


def drive(
    port: int,
    method: str,
    message: bytes,
    *,
    connections: int,
    streams: int,
    seconds: float = 0.0,
    spread: float = 0.0,
) -> Calls:
    """Keeps `streams` calls under way over `connections` for `seconds`, or makes so many just once (0).

    The first ones begin within `spread` seconds. What has not ended GRACE seconds after the rest has failed.
    """
    done = Calls()
    late: list[float] = []
    start = time.monotonic()
    everyone = [Connection(port, method, late) for _ in range(connections)]
    begun = 0
    with select.epoll() as poll:
        at = {each.socket.fileno(): each for each in everyone}
        for each in everyone:
            poll.register(each.socket, select.EPOLLIN)
        while (passed := time.monotonic() - start) < seconds + spread + GRACE:
            while begun < streams and spread * begun <= passed * streams:
                everyone[begun % connections].ask(message)
                begun += 1
            for each in everyone:
                each.flush()
            if begun == streams and not any(each.calls for each in everyone):
                break
            for descriptor, _ in poll.poll(0.001 if begun < streams else 0.1):
                connection = at[descriptor]
                ended = connection.read()
                done.ended += ended
                if time.monotonic() - start < seconds:
                    for _ in ended:
                        connection.ask(message)
                connection.flush()
    for each in everyone:
        for call in each.calls.values():
            call.failure = "not answered in time"
            done.ended.append(call)
        each.socket.close()
    done.wall = time.monotonic() - start
    late.sort()
    done.late_p99 = late[len(late) * 99 // 100] if late else 0.0
    return done
