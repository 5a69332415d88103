"""The HTTP/2 server protocol: many requests at a time, each on a stream of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from h2 import events
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes
from twisted.internet.interfaces import IPushProducer, ISSLTransport
from twisted.internet.protocol import Protocol
from twisted.logger import Logger
from zope.interface import implementer

from llmdsim.wire.http2 import frames
from llmdsim.wire.http2.allowance import RESET, Allowance
from llmdsim.wire.http2.arrivals import Arrivals
from llmdsim.wire.http2.heads import NO_TABLE
from llmdsim.wire.http2.reader import Fault, FrameReader
from llmdsim.wire.http2.state import ServerConnection
from llmdsim.wire.http2.stream import Stream
from llmdsim.wire.limits import LINGER_SECONDS
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

#: Answers to frames that ask for nothing else, kept for a client that does not read.
MOST_UNREAD = 1000

#: The id that a first GOAWAY names: requests on their way are answered yet.
_LAST_POSSIBLE = 2**31 - 1

#: How long a client has to learn that we are about to close, in seconds.
GOAWAY_SECONDS = 1.0


@implementer(IPushProducer)
class HTTP2(Protocol):
    """One connection. Its first bytes may have been read before, by whoever found out that this is HTTP/2."""

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
        self.window = self.h2.remote_settings.initial_window_size
        self._peer = ""
        self.arrivals = Arrivals(self)
        self._reader = FrameReader(self)
        self._reading_call: Any = None
        self._out: list[bytes] = []
        self._out_size = 0
        #: How many of these the client has asked for by frames that ask for nothing else.
        self._out_idle = 0
        #: How many of these wait for the client to read on.
        self._unread = 0
        self._turn: Any = None
        #: What the first header block begins with.
        self._before_block = NO_TABLE
        self._allowance = Allowance(site.now)
        #: Streams that keep something which windows may take.
        self._blocked: dict[Stream, None] = {}
        self._pushing = False
        self._heard = site.now
        #: No more requests are welcome; and those begun from now on are not even answered.
        self._going = self.gone = False
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
        self._unread = 0
        for stream in self.streams.values():
            stream.connection_paused(False)
        self._push()
        for stream in list(self.streams.values()):
            if self.write_paused:
                return
            if stream.id in self.streams and not stream.write_paused:
                stream.drained()
        self.arrivals.answer_waiting()

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
        if self.write_paused and not self.closing:
            self._unread += 1
            if self._unread > MOST_UNREAD:
                self._end_with(ErrorCodes.ENHANCE_YOUR_CALM, "answers are asked for, and not read")

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

    # --- streams

    def refuse_stream(self, stream_id: int) -> None:
        """Have a request that has begun not be: its client may ask again."""
        self._put_idle(frames.rst_stream(stream_id, ErrorCodes.REFUSED_STREAM))
        self.h2.ended(stream_id, by_reset=True)
        self.spend(1)

    def _trailers_came(self, event: events.TrailersReceived) -> None:
        stream = self.streams.get(event.stream_id)
        if stream is not None:
            self.arrivals.end(stream)

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
        if self._blocked:
            self._blocked.pop(stream, None)
        self.arrivals.drop(stream)
        return request

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
        if not self.streams:
            self._close_if_done()

    def window_opened(self) -> None:
        """The client takes more than it did."""
        if self._blocked or self.arrivals.waiting:
            self._push()
            self.arrivals.answer_waiting()

    def _settings_changed(self, event: events.RemoteSettingsChanged) -> None:
        changed = event.changed_settings.get(SettingCodes.INITIAL_WINDOW_SIZE)
        if changed is not None:
            more = changed.new_value - self.window
            self.window = changed.new_value
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
        self.gone = True
        self.put(frames.goaway(self.h2.highest_inbound_stream_id))
        self._close_if_done()

    def _client_goes(self, event: events.ConnectionTerminated) -> None:
        self._going = self.gone = True
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self.streams:
            return
        if self.gone:
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
        if not self.gone:
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
        self.arrivals.check_time(now, patience)

    @property
    def busy(self) -> bool:
        """Whether there is a request to answer, or an answer that is not wholly sent."""
        # Requests that have come in part are none yet.
        return self.write_paused or self.kept > 0 or any(stream.complete for stream in self.streams.values())

    def send_calls_elsewhere(self) -> None:
        """Have a client of gRPC make its next calls over another connection."""
        if self.arrivals.had_calls and all(stream.is_call for stream in self.streams.values()):
            self.close_after_streams()

    def close_if_idle(self) -> None:
        """End the connection, after the responses to requests that have come."""
        self.close_soon(at_once=all(stream.is_call for stream in self.streams.values()))
