"""Requests and responses in full, for `--log-http`: secrets masked, bodies bounded, streams left out."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator

from twisted.logger import Logger

from llmdsim.logs.masks import address_shown, header_shown
from llmdsim.wire import grpc
from llmdsim.wire.request import Request

log = Logger()

#: Bytes of a body that are shown.
MOST = 512 << 10


class DumpedRequest(Request, eq=False):
    """A request that keeps what it was answered."""

    response_head: bytes = b""
    response_body: bytes | None = None
    told: bool = False

    def respond(
        self, status: int, body: bytes, content_type: bytes = b"application/json", extra: bytes = b""
    ) -> None:
        if not self.started:
            self.response_body = b"" if self.method == b"HEAD" else body
        super().respond(status, body, content_type, extra)

    def respond_empty(self, status: int, extra: bytes = b"") -> None:
        if not self.started:
            self.response_body = b""
        super().respond_empty(status, extra)

    def _head(self, status: int, lines: bytes) -> bytes:
        self.response_head = super()._head(status, lines)
        return self.response_head


def dumping(handle: Callable[[Request], None]) -> Callable[[Request], None]:
    """`handle`, with each request told before it."""

    def told(request: Request) -> None:
        if isinstance(request, DumpedRequest):
            request.told = True
        log.info(
            "request: {method} {uri} {protocol} from {client}, headers {headers}, body {body}",
            **_addressed(request),
            headers=_headers(request.headers.items()),
            body=body_shown(request.body, request.route == grpc.ROUTE),
        )
        handle(request)

    return told


def dump_response(request: Request) -> None:
    """Tell what a request that ended was answered."""
    if not isinstance(request, DumpedRequest):
        return
    to = _addressed(request)
    if not request.told:
        # Refused by the protocol: its headers and body were not taken.
        log.info("request: {method} {uri} {protocol} from {client}, refused unread", **to)
    if not request.status:
        log.info("response: none to {method} {uri}, {client} left before it", **to)
        return
    if request.response_body is None:
        body = "a stream, cut when the client left" if request.lost else "a stream"
        if request.trailers and not request.lost:
            body += f", trailers {_headers(_pairs(request.trailers))}"
    else:
        body = body_shown(request.response_body)
    log.info(
        "response: {status} to {method} {uri} from {client}, headers {headers}, body {body}",
        **to,
        status=request.status,
        headers=_headers(_pairs(request.response_head.partition(b"\r\n")[2])),
        body=body,
    )


def body_shown(body: bytes, binary: bool = False) -> str:
    """A body as text, or its length and its bytes escaped where it is none; cut after `MOST` bytes."""
    if not body:
        return "empty"
    shown, cut = body[:MOST], len(body) - MOST
    rest = f" ({cut} bytes more)" if cut > 0 else ""
    if binary:
        return f"{len(body)} bytes {shown!r}{rest}"
    try:
        # A cut may go through a character.
        text = codecs.getincrementaldecoder("utf-8")().decode(shown, final=cut <= 0)
    except UnicodeDecodeError:
        return f"{len(body)} bytes {shown!r}{rest}"
    return text + rest


def _addressed(request: Request) -> dict[str, str]:
    return {
        "method": request.method.decode("latin-1"),
        "uri": address_shown(request.uri.decode("latin-1")),
        "protocol": request.clientproto.decode("latin-1"),
        "client": request.channel.peer,
    }


def _pairs(lines: bytes) -> Iterator[tuple[bytes, bytes]]:
    for line in lines.rstrip(b"\r\n").split(b"\r\n"):
        name, _, value = line.partition(b": ")
        yield name, value


def _headers(pairs: Iterable[tuple[bytes, bytes]]) -> str:
    shown = []
    for raw_name, raw_value in pairs:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        shown.append(f"{name}: {header_shown(name, value)}")
    return f"[{', '.join(shown)}]"
