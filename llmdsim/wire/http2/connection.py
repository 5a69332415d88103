"""The HTTP/2 server protocol: many requests at a time, each on a stream of its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any

from h2 import events
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes
from twisted.internet.interfaces import IPushProducer, ISSLTransport
from twisted.internet.protocol import Protocol
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from llmdsim.wire import grpc
from llmdsim.wire.http2 import frames
from llmdsim.wire.http2.allowance import RESET, Allowance
from llmdsim.wire.http2.heads import NO_TABLE, RequestHead, encoded
from llmdsim.wire.http2.reader import Fault, FrameReader
from llmdsim.wire.http2.state import STREAM_WINDOW, ServerConnection
from llmdsim.wire.http2.stream import Stream
from llmdsim.wire.limits import LINGER_SECONDS, MAX_HEADERS
from llmdsim.wire.peer import peer_name
from llmdsim.wire.request import Request
from llmdsim.wire.transport import close_outright, turn_of

if TYPE_CHECKING:
    from llmdsim.wire.site import Site

log = Logger()

#: Frames read before others have their turn.
MOST_FRAMES = 64

#: Bytes that wait for the end of the turn at most.
MOST_OUT = 1 << 16

#: Bytes kept for windows to open, beyond which no further request is answered.
MOST_KEPT = 64 << 20

#: The id that a first GOAWAY names: requests on their way are answered yet.
_LAST_POSSIBLE = 2**31 - 1

#: What a path and query may be; HTTP/1's parser goes by the same, but for whole URLs.
_TARGET = re.compile(rb"/[\x21-\x7e]*|\*")

#: How long a client has to learn that we are about to close, in seconds.
GOAWAY_SECONDS = 1.0


@implementer(IPushProducer)
class HTTP2(Protocol):
    """One connection. Requests are handed on whole, or in pieces where the site wants them so.

    Its first bytes may have been read before, by whoever found out that this is HTTP/2.
    """

    transport: Any

    def __init__(self, site: Site) -> None:
        self.site = site
        self.h2 = ServerConnection(site.limits)
        self.streams: dict[int, Stream] = {}
        self.write_paused = False
        #: Bytes that streams keep until windows open.
        self.kept = 0
        self._limits = site.limits
        #: Bytes that the client takes on a new stream.
        self._window = self.h2.remote_settings.initial_window_size
        self._peer = ""
        self._reader = FrameReader(self)
        self._reading_call: Any = None
        self._out: list[bytes] = []
        self._out_size = 0
        #: How many of these the client has asked for by frames that ask for nothing else.
        self._out_idle = 0
        self._turn: Any = None
        #: What the first header block begins with.
        self._before_block = NO_TABLE
        self._allowance = Allowance(site.now)
        #: Bytes of requests that are not answered yet.
        self._held = 0
        #: Complete requests that are answered when the client reads on.
        self._waiting: dict[Stream, None] = {}
        #: Streams that keep something which windows may take.
        self._blocked: dict[Stream, None] = {}
        self._pushing = False
        self._heard = site.now
        #: No more requests are welcome; and those begun from now on are not even answered.
        self._going = self._gone = False
        #: Whether it has been used for calls of gRPC.
        self._has_calls = False
        #: No more are once those under way are answered.
        self._leaving = False
        self._goaway_call: Any = None
        self.closing = False
        self._linger_call: Any = None
        self._on: dict[type[events.Event], Callable[[Any], None]] = {
            events.TrailersReceived: self._trailers_came,
            events.RemoteSettingsChanged: self._settings_changed,
            events.PingAckReceived: self._ping_answered,
            events.ConnectionTerminated: self._client_goes,
        }

    # --- Protocol

    def connectionMade(self) -> None:
        self.site.connections.add(self)
        self.transport.registerProducer(self, True)
        self._turn = turn_of(self.transport)
        self.put_answers()

    def dataReceived(self, data: bytes) -> None:
        if self.closing:
            return
        self._heard = self.site.now
        self._reader.feed(data)
        if self._reading_call is None:
            self._read()

    def connectionLost(self, reason: object = None) -> None:
        self.site.disconnected(self)
        self.closing = True
        self._reader.clear()
        self._out.clear()
        for call in (self._reading_call, self._goaway_call, self._linger_call):
            if call is not None:
                call.cancel()
        self._reading_call = self._goaway_call = self._linger_call = None
        streams = list(self.streams.values())
        self.streams.clear()
        for request in [self._drop(stream) for stream in streams]:
            self.lose(request)

    # --- IPushProducer, towards the transport's buffer

    def pauseProducing(self) -> None:
        """The client does not read as fast as we write."""
        self.write_paused = True
        for stream in self.streams.values():
            stream.connection_paused(True)

    def resumeProducing(self) -> None:
        """What was buffered has been sent."""
        self.write_paused = False
        for stream in self.streams.values():
            stream.connection_paused(False)
        self._push()
        for stream in list(self.streams.values()):
            if self.write_paused:
                return
            if stream.id in self.streams and not stream.write_paused:
                stream.drained()
        self._answer_waiting()

    def stopProducing(self) -> None:
        """The connection is lost; `connectionLost` sees to it."""

    # --- writing

    def put(self, data: bytes) -> None:
        """Send bytes of whole frames by the end of the turn."""
        out = self._out
        out.append(data)
        self._out_size += len(data)
        if self._turn is None or self._out_size > MOST_OUT:
            self.flush()
        elif len(out) == 1:
            # This may end the turn at once.
            self._turn.add(self)

    def flush(self) -> None:
        """Send what `put` was given."""
        out, self._out, self._out_size = self._out, [], 0
        idle, self._out_idle = self._out_idle, 0
        if out:
            # A client answers what it is sent, with windows at least.
            self._allowance.earn(len(out) - idle)
            self.transport.write(b"".join(out))

    def _put_idle(self, data: bytes) -> None:
        """Send what earns a client nothing, as it could have it without end."""
        self._out_idle += 1
        self.put(data)

    def put_answers(self) -> None:
        """Send what h2 has to say."""
        data = self.h2.data_to_send()
        if data:
            self._put_idle(data)

    def put_headers(self, stream_id: int, block: bytes, end: bool) -> None:
        """Send a header block; with `end` it is one of trailers."""
        if self._before_block:
            block = self._before_block + block
            self._before_block = b""
        self.put(frames.headers(stream_id, block, end, self.h2.max_outbound_frame_size))

    def wait_for_window(self, stream: Stream) -> None:
        """Have `stream` send what it keeps, as soon as windows allow."""
        self._blocked[stream] = None
        self._push()

    def _push(self) -> None:
        """Send what is kept, a frame of each stream in turn."""
        if self._pushing:
            return
        self._pushing = True
        blocked = self._blocked
        try:
            while blocked and not self.write_paused and self.h2.outbound_flow_control_window > 0:
                stream = next(iter(blocked))
                del blocked[stream]
                if stream.push():
                    blocked[stream] = None
        finally:
            self._pushing = False

    # --- reading

    def _read(self) -> None:
        """Read a portion of what has come, and the rest in further turns."""
        self._reading_call = None
        try:
            more = self._reader.read(MOST_FRAMES)
        except ProtocolError as problem:
            # h2 has told the client.
            log.debug("{client}: {problem}", client=self.peer, problem=problem)
            self._close_lingering()
        except Fault as fault:
            self._end_with(fault.code, str(fault))
        else:
            if more and not self.closing:
                self.transport.pauseProducing()
                self._reading_call = self.site.clock.callLater(0, self._read_on)

    def _read_on(self) -> None:
        self.transport.resumeProducing()
        self._read()

    def spend(self, frames: int) -> None:
        """So many frames have come that ask for nothing."""
        if not self.closing and not self._allowance.spend(frames, self.site.seconds()):
            self._end_with(ErrorCodes.ENHANCE_YOUR_CALM, "too many frames that ask for nothing")

    def told(self, event: events.Event) -> None:
        """h2 has read something other than a request."""
        act = self._on.get(type(event))
        if act is not None and not self.closing:
            act(event)

    def request_began(self, stream_id: int, head: RequestHead, complete: bool) -> None:
        """The head of a request has come, and with `complete` all of it."""
        if self._gone or len(self.streams) >= self._limits.streams:
            self._put_idle(frames.rst_stream(stream_id, ErrorCodes.REFUSED_STREAM))
            self.h2.ended(stream_id, by_reset=True)
            self.spend(1)
            return
        site = self.site
        stream = Stream(self, stream_id, self._window)
        stream.heard = site.now
        self.streams[stream_id] = stream
        known = head.request
        if known is None:
            self._new_request(stream, head, complete)
        else:
            # As heads over HTTP/1 that are known (`RequestReader.whole`).
            stream.request = request = known.__copy__()  # type: ignore[attr-defined]
            request.channel = stream
            stream.is_call = request.route is grpc.ROUTE
        self._has_calls |= stream.is_call
        if site.closing:
            self.close_if_idle()
        if complete:
            self._request_ended(stream)

    def _new_request(self, stream: Stream, head: RequestHead, complete: bool) -> None:
        """Have a stream's request be what its head says, or refused for it."""
        site = self.site
        request = site.request_type(stream, head.method, head.uri, head.headers)
        request.clientproto = b"HTTP/2"
        stream.request = request
        calls = site.calls
        if calls is not None and calls.takes(request):
            stream.is_call = True
            request.route = grpc.ROUTE
        if head.size > self._limits.header_size or head.count > MAX_HEADERS:
            limit = self._limits.header_size
            self._refuse(
                stream, 431, f"The request has more than {limit} bytes or {MAX_HEADERS} lines of headers"
            )
        elif head.method == b"CONNECT":
            self._refuse(stream, 501, "CONNECT is not supported")
        elif not stream.is_call and not _TARGET.fullmatch(head.uri):
            self._refuse(stream, 400, "Malformed HTTP request: the path is none")
        elif self._too_long(stream, head.length or 0):
            pass
        elif stream.is_call and calls is not None and calls.takes_pieces(request):
            self._answer(stream)
        elif head.continues:
            if not complete:
                self.put_headers(stream.id, encoded([(b":status", b"100")]), False)
        else:
            head.request = known = copy(request)
            known.channel = None  # type: ignore[assignment]

    def _too_long(self, stream: Stream, length: int) -> bool:
        """Refuse a body of so many bytes if that is more than any may have."""
        most = self._limits.body_size
        if length <= (most + grpc.PREFIX if stream.is_call else most):
            return False
        self._refuse(stream, 413, f"The request's body is larger than {most} bytes")
        return True

    def data_came(self, stream: Stream, data: bytes, taken: int, ended: bool) -> None:
        """A piece of a body has come, which takes up so much of the windows; the last, if `ended`."""
        request = stream.request
        stream.room -= taken
        if stream.complete or stream.room < 0:
            self.acknowledge(taken)
            code = ErrorCodes.STREAM_CLOSED if stream.complete else ErrorCodes.FLOW_CONTROL_ERROR
            stream.break_off(code)
            return
        stream.heard = self.site.now
        if request.finished:
            self.acknowledge(taken, stream)
        elif request.on_body is not None:
            stream.unacknowledged += taken
            request.on_body(data)
            # What is not read must not be answered to without end.
            if not stream.write_paused:
                stream.acknowledge()
        else:
            self.acknowledge(taken, stream)
            stream.body += data
            self._held += len(data)
            if self._held > 2 * self._limits.body_size:
                self._refuse(stream, 413, "The requests on this connection are too large together")
            else:
                self._too_long(stream, len(stream.body))
        if ended:
            self._request_ended(stream)

    def acknowledge(self, size: int, stream: Stream | None = None) -> None:
        """Have the client send as much again, when there is enough of it to tell."""
        if self.closing:
            return
        opened = self.h2.give_back(size)
        if opened:
            self.put(frames.window_update(0, opened))
        if stream is None:
            return
        stream.dealt_with += size
        if stream.dealt_with > STREAM_WINDOW // 2:
            self.put(frames.window_update(stream.id, stream.dealt_with))
            stream.room += stream.dealt_with
            stream.dealt_with = 0

    def _trailers_came(self, event: events.TrailersReceived) -> None:
        stream = self.streams.get(event.stream_id)
        if stream is not None:
            self._request_ended(stream)

    def _request_ended(self, stream: Stream) -> None:
        if stream.id not in self.streams:
            return
        stream.complete = True
        request = stream.request
        if request.finished:
            stream.request_ended()
            return
        if request.on_body is not None:
            request.on_body(None)
            return
        length = request.headers.get(b"content-length")
        if length is not None:
            if int(length) != len(stream.body):
                stream.break_off(ErrorCodes.PROTOCOL_ERROR)
                return
            request.content_length = len(stream.body)
        self._waiting[stream] = None
        self._answer_waiting()

    def _answer_waiting(self) -> None:
        """Answer what has been read, as far as the client's reading allows."""
        while self._waiting and not self.closing and not self.write_paused and self.kept < MOST_KEPT:
            stream = next(iter(self._waiting))
            del self._waiting[stream]
            stream.request.body = bytes(stream.body)
            self._let_go(stream)
            self._answer(stream)

    def _answer(self, stream: Stream) -> None:
        request = stream.request
        request.began = self.site.seconds()
        calls = self.site.calls
        try:
            if stream.is_call and calls is not None:
                calls.handle(request)
            else:
                self.site.handle(request)
        except Exception:
            request.fail(Failure())  # type: ignore[no-untyped-call]

    def _refuse(self, stream: Stream, status: int, message: str) -> None:
        """Answer so, whatever else comes of the request."""
        site, request = self.site, stream.request
        self._let_go(stream)
        request.began = site.seconds()
        if site.common_headers is not None:
            request.common_headers = site.common_headers(request)
        stream.refuse(request, status, message)

    # --- streams

    def stream_reset(self, stream: Stream) -> None:
        """The client has ended a stream at once."""
        request = stream.request
        self.forget(stream, by_reset=True)
        self.lose(request)

    def _drop(self, stream: Stream) -> Request:
        """Nothing more is sent or read on a stream; returns what was its request."""
        request = stream.request
        stream.drop()
        # The request knows the stream: together they would stay until Python looks for such pairs.
        del stream.request
        self._blocked.pop(stream, None)
        self._waiting.pop(stream, None)
        self._let_go(stream)
        return request

    def _let_go(self, stream: Stream) -> None:
        """Hold the body of a request no longer."""
        self._held -= len(stream.body)
        stream.body.clear()

    def lose(self, request: Request) -> None:
        """The client will not have the rest of a response."""
        if not request.finished:
            try:
                request.connection_lost()
            except Exception:
                log.failure("a request could not be ended")
            finally:
                self.request_over(request)

    def request_over(self, request: Request) -> None:
        """A response is complete, or its client has left."""
        request.on_body = None  # it leads back to the request
        if request.timer is not None:
            request.timer.cancel()
            request.timer = None
        self.site.tell_ended(request)

    def forget(self, stream: Stream, by_reset: bool) -> None:
        """A stream is over."""
        if self.streams.pop(stream.id, None) is None:
            return
        self._drop(stream)
        self.h2.ended(stream.id, by_reset)
        if not by_reset:
            self._allowance.earn(RESET)
        self._close_if_done()

    def window_opened(self) -> None:
        """The client takes more than it did."""
        if self._blocked or self._waiting:
            self._push()
            self._answer_waiting()

    def _settings_changed(self, event: events.RemoteSettingsChanged) -> None:
        changed = event.changed_settings.get(SettingCodes.INITIAL_WINDOW_SIZE)
        if changed is not None:
            more = changed.new_value - self._window
            self._window = changed.new_value
            for stream in list(self.streams.values()):
                stream.window += more
                if stream.window > frames.LARGEST_WINDOW:
                    raise Fault(ErrorCodes.FLOW_CONTROL_ERROR, "a window is larger than any may be")
                if stream.write_paused:
                    self._blocked[stream] = None
        self.window_opened()

    def pong(self, data: bytes) -> None:
        """The client wants an answer, to see that there is somebody."""
        self._put_idle(frames.ping(data, frames.ACK))

    # --- ends

    def close_soon(self, at_once: bool) -> None:
        """Take no more requests, at once or when none is under way, and close.

        gRPC's clients bear it with requests under way; many of HTTP take GOAWAY for the end of these.
        """
        self._leaving = True
        if at_once:
            self.close_after_streams()
        else:
            self._close_if_done()

    def close_after_streams(self) -> None:
        """Take no more requests, and close when those that are under way are answered."""
        if self._going or self.closing:
            return
        self._going = True
        # Requests may be on their way: the client is told first, and has time to hear it (RFC 9113 6.8).
        # Clients for whom GOAWAY is the end take nothing else behind it.
        self.put(frames.ping(b"going---") + frames.goaway(_LAST_POSSIBLE))
        self._goaway_call = self.site.clock.callLater(GOAWAY_SECONDS, self._go)

    def _ping_answered(self, event: events.PingAckReceived) -> None:
        if self._goaway_call is not None:
            self._goaway_call.cancel()
            self._go()

    def _go(self) -> None:
        self._goaway_call = None
        self._gone = True
        self.put(frames.goaway(self.h2.highest_inbound_stream_id))
        self._close_if_done()

    def _client_goes(self, event: events.ConnectionTerminated) -> None:
        self._going = self._gone = True
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self.streams:
            return
        if self._gone:
            self.close()
        elif self._leaving:
            self.close_after_streams()

    def _end_with(self, code: ErrorCodes, why: str) -> None:
        log.debug("{client}: {why}", client=self.peer, why=why)
        self.put(frames.goaway(self.h2.highest_inbound_stream_id, code, why.encode()))
        self._close_lingering()

    def close(self) -> None:
        """End the connection when what is written has been sent."""
        if self.closing:
            return
        if not self._gone:
            self.put(frames.goaway(self.h2.highest_inbound_stream_id))
        self._close_lingering()

    def _close_lingering(self) -> None:
        if self.closing:
            return
        self.closing = True
        self.flush()
        self.transport.unregisterProducer()
        self._reader.clear()
        self._linger_call = self.site.clock.callLater(LINGER_SECONDS, self._end_lingering)
        # A reset, which closing with unread input would cause, could destroy the GOAWAY on its way.
        if ISSLTransport.providedBy(self.transport):
            self.transport.loseConnection()
        else:
            self.transport.loseWriteConnection()

    def _end_lingering(self) -> None:
        self._linger_call = None
        close_outright(self.transport)

    def abortConnection(self) -> None:
        """End the connection at once."""
        self.transport.abortConnection()

    @property
    def peer(self) -> str:
        """The client's address and port, or `unix`."""
        if not self._peer:
            self._peer = peer_name(self.transport)
        return self._peer

    # --- what the site asks for

    def check_time(self, now: float, patience: float) -> None:
        """End what has been silent for `patience` seconds: the connection, or requests that do not arrive."""
        if self.closing or self.write_paused:
            return
        if not self.streams:
            if now - self._heard > patience:
                self.close()
            return
        for stream in list(self.streams.values()):
            request = stream.request
            if stream.complete or request.finished or request.on_body is not None:
                continue
            if now - stream.heard > patience:
                self._refuse(stream, 408, f"The request did not arrive within {patience:g} seconds")

    @property
    def busy(self) -> bool:
        """Whether there is a request to answer, or an answer that is not wholly sent."""
        # Requests that have come in part are none yet.
        return self.write_paused or self.kept > 0 or any(stream.complete for stream in self.streams.values())

    def send_calls_elsewhere(self) -> None:
        """Have a client of gRPC make its next calls over another connection."""
        if self._has_calls and all(stream.is_call for stream in self.streams.values()):
            self.close_after_streams()

    def close_if_idle(self) -> None:
        """End the connection, after the responses to requests that have come."""
        self.close_soon(at_once=all(stream.is_call for stream in self.streams.values()))
