"""A channel that keeps what a request writes."""

from __future__ import annotations

from typing import Any

from twisted.internet.testing import StringTransport

from llmdsim.wire.request import Request

#: What every response says of the server and the time, under test.
DATE = b"server: llmdsim\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\n"

#: The head of a stream of events.
STREAM = (
    b"HTTP/1.1 200 OK\r\n" + DATE + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


class Recorder:
    """A channel that keeps what is written and tells what is done."""

    def __init__(self) -> None:
        self.write_paused = False
        self.transport: Any = StringTransport()
        self.writes: list[bytes] = []
        self.done: list[Request] = []

    def write(self, data: bytes) -> None:
        assert data, "an empty write"
        assert not self.done, "a write behind the end"
        self.writes.append(data)

    write_soon = write

    def request_done(self, request: Request) -> None:
        self.done.append(request)

    def refuse(self, request: Request, status: int, message: str) -> None:
        request.respond(status, b'{"error": "%b"}' % message.encode())


def made(method: bytes = b"GET", uri: bytes = b"/", **headers: bytes) -> tuple[Request, Recorder]:
    channel = Recorder()
    return Request(channel, method, uri, {k.encode(): v for k, v in headers.items()}), channel
