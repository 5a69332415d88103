"""Requests as they come over a connection, from their heads to what answers them."""

from __future__ import annotations

import re
from copy import copy
from typing import TYPE_CHECKING

from h2.errors import ErrorCodes
from twisted.python.failure import Failure

from llmdsim.wire import grpc
from llmdsim.wire.http2 import frames
from llmdsim.wire.http2.heads import RequestHead, encoded
from llmdsim.wire.http2.state import STREAM_WINDOW
from llmdsim.wire.http2.stream import Stream
from llmdsim.wire.limits import MAX_HEADERS

if TYPE_CHECKING:
    from llmdsim.wire.http2.connection import HTTP2

#: Bytes kept for windows to open, beyond which no further request is answered.
MOST_KEPT = 64 << 20

#: What a path and query may be; HTTP/1's parser goes by the same, but for whole URLs.
_TARGET = re.compile(rb"/[\x21-\x7e]*|\*")


class Arrivals:
    """Those of `connection`. They are handed on whole, or in pieces where the site wants them so."""

    def __init__(self, connection: HTTP2) -> None:
        self._connection = connection
        self._site = connection.site
        self._limits = connection.site.limits
        self._h2 = connection.h2
        self._streams = connection.streams
        #: Bytes of requests that are not answered yet.
        self.held = 0
        #: Complete requests that are answered when the client reads on.
        self.waiting: dict[Stream, None] = {}
        #: Whether there were calls of gRPC among them.
        self.had_calls = False

    # --- heads

    def begin(self, stream_id: int, head: RequestHead, complete: bool) -> None:
        """The head of a request has come, and with `complete` all of it."""
        connection = self._connection
        if connection.gone or len(self._streams) >= self._limits.streams:
            connection.refuse_stream(stream_id)
            return
        site = self._site
        stream = Stream(connection, stream_id)
        stream.heard = site.now
        self._streams[stream_id] = stream
        known = head.request
        if known is None:
            self._begin_new(stream, head, complete)
        else:
            # As heads over HTTP/1 that are known (`RequestReader.whole`).
            stream.request = request = known.__copy__()  # type: ignore[attr-defined]
            request.channel = stream
            if request.route is grpc.ROUTE and site.calls is not None:
                stream.answerer = site.calls
                self.had_calls = True
        if site.closing:
            connection.close_if_idle()
        if complete:
            self.end(stream)

    def _begin_new(self, stream: Stream, head: RequestHead, complete: bool) -> None:
        """Have a stream's request be what its head says, or refused for it."""
        site = self._site
        request = site.request_type(stream, head.method, head.uri, head.headers)
        request.clientproto = b"HTTP/2"
        stream.request = request
        calls = site.calls
        if calls is not None and calls.takes(request):
            request.route = grpc.ROUTE
            stream.answerer = calls
            self.had_calls = True
        if head.size > self._limits.header_size or head.count > MAX_HEADERS:
            limit = self._limits.header_size
            self.refuse(
                stream, 431, f"The request has more than {limit} bytes or {MAX_HEADERS} lines of headers"
            )
        elif head.method == b"CONNECT":
            self.refuse(stream, 501, "CONNECT is not supported")
        elif not stream.is_call and not _TARGET.fullmatch(head.uri):
            self.refuse(stream, 400, "Malformed HTTP request: the path is none")
        elif self._too_long(stream, head.length or 0):
            pass
        elif calls is not None and stream.is_call and calls.takes_pieces(request):
            self._answer(stream)
        elif head.continues:
            if not complete:
                self._connection.put_headers(stream.id, encoded([(b":status", b"100")]), False)
        else:
            head.request = known = copy(request)
            known.channel = None  # type: ignore[assignment]

    # --- bodies

    def take(self, stream: Stream, data: bytes, taken: int, ended: bool) -> None:
        """A piece of a body has come, which takes up so much of the windows; the last, if `ended`."""
        request = stream.request
        stream.room -= taken
        if stream.complete or stream.room < 0:
            self.acknowledge(taken)
            code = ErrorCodes.STREAM_CLOSED if stream.complete else ErrorCodes.FLOW_CONTROL_ERROR
            stream.break_off(code)
            return
        stream.heard = self._site.now
        if request.finished:
            self.acknowledge(taken, stream)
        elif request.on_body is not None:
            stream.unacknowledged += taken
            request.on_body(data)
            # What is not read must not be answered to without end.
            if not stream.write_paused:
                stream.acknowledge()
        elif ended and not stream.body:
            # As nearly all bodies are.
            self.acknowledge(taken)
            self._too_long(stream, len(data))
            if not request.finished:
                self._complete(stream, data)
                return
        else:
            self.acknowledge(taken, stream)
            stream.body += data
            self.held += len(data)
            if self.held > 2 * self._limits.body_size:
                self.refuse(stream, 413, "The requests on this connection are too large together")
            else:
                self._too_long(stream, len(stream.body))
        if ended:
            self.end(stream)

    def _too_long(self, stream: Stream, length: int) -> bool:
        """Refuse a body of so many bytes if that is more than any may have."""
        most = self._limits.body_size
        if length <= most or (stream.is_call and length <= most + grpc.PREFIX):
            return False
        self.refuse(stream, 413, f"The request's body is larger than {most} bytes")
        return True

    def acknowledge(self, size: int, stream: Stream | None = None) -> None:
        """Have the client send as much again, when there is enough of it to tell."""
        connection = self._connection
        if connection.closing:
            return
        opened = self._h2.give_back(size)
        if opened:
            connection.put(frames.window_update(0, opened))
        if stream is None:
            return
        stream.dealt_with += size
        if stream.dealt_with > STREAM_WINDOW // 2:
            connection.put(frames.window_update(stream.id, stream.dealt_with))
            stream.room += stream.dealt_with
            stream.dealt_with = 0

    # --- ends

    def end(self, stream: Stream) -> None:
        """All of a request has come."""
        if stream.id not in self._streams:
            return
        request = stream.request
        if request.finished:
            stream.complete = True
            stream.request_ended()
        elif request.on_body is not None:
            stream.complete = True
            request.on_body(None)
        else:
            self._complete(stream, bytes(stream.body))

    def _complete(self, stream: Stream, body: bytes) -> None:
        """Answer a request, all of which has come, now or when there is room for the answer."""
        stream.complete = True
        request = stream.request
        length = request.headers.get(b"content-length")
        if length is not None:
            if int(length) != len(body):
                stream.break_off(ErrorCodes.PROTOCOL_ERROR)
                return
            request.content_length = len(body)
        if self.waiting or not self._has_room:
            if not stream.body:
                stream.body += body
                self.held += len(body)
            self.waiting[stream] = None
            return
        request.body = body
        if stream.body:
            self._let_go(stream)
        self._answer(stream)

    @property
    def _has_room(self) -> bool:
        """Whether the client reads what it is sent, as far as can be told."""
        connection = self._connection
        return not connection.write_paused and not connection.closing and connection.kept < MOST_KEPT

    def answer_waiting(self) -> None:
        """Answer what has been read, as far as the client's reading allows."""
        while self.waiting and self._has_room:
            stream = next(iter(self.waiting))
            del self.waiting[stream]
            stream.request.body = bytes(stream.body)
            self._let_go(stream)
            self._answer(stream)

    def _answer(self, stream: Stream) -> None:
        request = stream.request
        request.began = self._site.seconds()
        try:
            stream.answerer.handle(request)
        except Exception:
            request.fail(Failure())  # type: ignore[no-untyped-call]

    def refuse(self, stream: Stream, status: int, message: str) -> None:
        """Answer so, whatever else comes of the request."""
        site, request = self._site, stream.request
        self._let_go(stream)
        request.began = site.seconds()
        if site.common_headers is not None:
            request.common_headers = site.common_headers(request)
        stream.refuse(request, status, message)

    def _let_go(self, stream: Stream) -> None:
        """Hold the body of a request no longer."""
        self.held -= len(stream.body)
        stream.body.clear()

    def drop(self, stream: Stream) -> None:
        """Nothing more is read on a stream, or answered."""
        if self.waiting:
            self.waiting.pop(stream, None)
        if stream.body:
            self._let_go(stream)

    def check_time(self, now: float, patience: float) -> None:
        """Refuse what does not arrive: nothing more of it has come for `patience` seconds."""
        for stream in list(self._streams.values()):
            request = stream.request
            if stream.complete or request.finished or request.on_body is not None:
                continue
            if now - stream.heard > patience:
                self.refuse(stream, 408, f"The request did not arrive within {patience:g} seconds")
