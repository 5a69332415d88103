"""The HTTP/1.1 server protocol: keep-alive, pipelining in order, and an end for every kind of client."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IHalfCloseableProtocol, IPushProducer, ISSLTransport
from twisted.internet.protocol import Protocol
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from llmdsim.wire.limits import LINGER_BYTES, LINGER_SECONDS, PIPELINE_BYTES
from llmdsim.wire.peer import peer_name
from llmdsim.wire.reader import Refusal, RequestReader
from llmdsim.wire.request import Request
from llmdsim.wire.transport import DirectSend, close_outright

if TYPE_CHECKING:
    from llmdsim.wire.site import Site

log = Logger()

#: Pipelined requests answered before others have their turn.
MOST_ANSWERS = 32

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@implementer(IHalfCloseableProtocol, IPushProducer)
class HTTP1(Protocol):
    """One connection. Requests are handed on one at a time, whole, in the order they came."""

    transport: Any
    #: Sends bytes as they are, now or when the reactor's turn ends.
    write: Callable[[bytes], None]
    write_soon: Callable[[bytes], None]

    def __init__(self, site: Site) -> None:
        self.write_paused = False
        self._site = site
        self._limits = site.limits
        self._reader = RequestReader(self, site.limits, site.known_heads, site.request_type)
        self._found = self._reader.found
        self._current: Request | None = None
        self._held = bytearray()
        self._reading_paused = False
        self._pumping = False
        self._peer_finished = False
        self._closing = False
        self._lingering = False
        self._peer = ""
        self._discarded = 0
        self._linger_call: Any = None
        #: Something came that is not going to be answered.
        self._ignored = False
        #: Our side is closed, and everything before it sent.
        self._all_sent = False
        #: `Site.now` when the last bytes of a message came, and when that message began, or its turn came.
        self._heard = self._began = site.now

    # --- Protocol

    def connectionMade(self) -> None:
        self._site.connections.add(self)
        self.transport.registerProducer(self, True)
        # By type: a protocol of TLS lends its transport's other methods, past its own encryption.
        transport = self.transport
        self.write = transport.write
        self.write_soon = transport.write_soon if isinstance(transport, DirectSend) else transport.write

    def _peer_left(self, by_fin: bool) -> bool:
        peer_left = getattr(self.transport, "peer_left", None)
        return peer_left is not None and peer_left(by_fin)

    def dataReceived(self, data: bytes) -> None:
        if self._current is not None or self._pumping or self.write_paused or self._found or self._closing:
            self._put_off(data)
            return
        request = self._reader.whole(data)
        if request is not None:
            self._answer(request)
        else:
            self._feed(data)
            self._pump()

    def connectionLost(self, reason: object = None) -> None:
        self._site.disconnected(self)
        self._closing = True
        self._found.clear()
        self._held.clear()
        if self._linger_call is not None:
            self._linger_call.cancel()
            self._linger_call = None
        self._lose_current()

    def readConnectionLost(self) -> None:
        """The client sent FIN, which cannot be told from `close()`."""
        self._peer_finished = True
        if self._lingering:
            self.transport.loseConnection()
        elif self._current is None and not self._found and not self._held:
            self.close()
        elif not self._limits.serve_half_closed:
            # One pass of the clock from now, so that what is due already is written first.
            self._site.clock.callLater(0, self._client_gone)

    def writeConnectionLost(self) -> None:
        """Our side is closed; the rest is read and discarded."""
        self._all_sent = True

    def _client_gone(self) -> None:
        try:
            self._lose_current()
        finally:
            self.close()

    def _lose_current(self) -> None:
        current, self._current = self._current, None
        if current is not None and not current.finished:
            try:
                current.connection_lost()
            finally:
                self._site.tell_ended(current)

    # --- IPushProducer, towards the transport's buffer

    def pauseProducing(self) -> None:
        """The client does not read as fast as we write."""
        self.write_paused = True

    def resumeProducing(self) -> None:
        """What was buffered has been sent."""
        self.write_paused = False
        if self._current is not None:
            self._current.drained()
        else:
            self._pump()

    def stopProducing(self) -> None:
        """The connection is lost; `connectionLost` sees to it."""

    # --- reading

    def _put_off(self, data: bytes) -> None:
        # Kept being read while a request is answered, or a client's leaving would go unseen.
        if self._lingering:
            self._discarded += len(data)
            if self._discarded > LINGER_BYTES:
                self.transport.abortConnection()
            return
        if self._closing:
            return
        if self._current is not None and not self._current.keep_alive:
            self._ignored = True  # it asked for the connection to be closed
            return
        self._held += data
        if len(self._held) > PIPELINE_BYTES and not self._reading_paused:
            self._reading_paused = True
            self.transport.pauseProducing()

    def _feed(self, data: bytes) -> None:
        reader = self._reader
        if not reader.in_message:
            self._began = self._site.now
        reader.feed(data)
        if reader.in_message:
            # Blank lines before a request are no reason to wait longer.
            self._heard = self._site.now

    def _read_on(self) -> None:
        if self._reading_paused:
            self._reading_paused = False
            self.transport.resumeProducing()

    # --- answering in order

    def _pump(self) -> None:
        """Answer what has been read, as far as one request at a time and the client's reading allow."""
        if self._pumping:
            return
        self._pumping = True
        answers = 0
        try:
            while self._current is None and not self._closing and not self.write_paused:
                if answers == MOST_ANSWERS:
                    self._site.clock.callLater(0, self._pump)
                    return
                if self._found:
                    answers += 1
                    found = self._found.popleft()
                    if isinstance(found, Refusal):
                        self._answer_refusal(found)
                    else:
                        self._answer(found)
                elif self._held:
                    data = bytes(self._held)
                    self._held.clear()
                    self._read_on()
                    self._feed(data)
                elif self._peer_finished:
                    self.close()
                else:
                    break
        finally:
            self._pumping = False
        incoming = self._reader.incoming
        if incoming is not None and incoming.expects_continue and self._current is None and not self._found:
            incoming.expects_continue = False
            self.write(_CONTINUE)

    def _answer(self, request: Request) -> None:
        site = self._site
        self._current = request
        request.began = site.seconds()
        if site.closing:
            request.keep_alive = False
        try:
            site.handle(request)
        except Exception:
            request.fail(Failure())  # type: ignore[no-untyped-call]

    def request_done(self, request: Request) -> None:
        """The response of the current request is written."""
        self._site.tell_ended(request)
        if request is not self._current:
            return
        self._current = None
        site = self._site
        self._heard = self._began = site.now
        if not request.keep_alive or site.closing:
            self.close()
        elif self._held or self._found or self._peer_finished or self._reader.in_message:
            self._pump()

    def refuse(self, request: Request, status: int, message: str) -> None:
        """Answer `request` with an error."""
        self._site.refuse(request, status, message)

    def _answer_refusal(self, refusal: Refusal) -> None:
        status = refusal.status
        request = self._site.request_type(self, refusal.method, refusal.uri, refusal.headers)
        request.keep_alive = False
        request.began = self._site.seconds()
        if self._site.common_headers is not None:
            request.common_headers = self._site.common_headers(request)
        self._ignored = True
        self.refuse(request, status, refusal.message)
        self.close()

    def close(self) -> None:
        """End the connection when what is written has been sent."""
        if self._closing:
            return
        self._closing = True
        self.transport.unregisterProducer()
        if ISSLTransport.providedBy(self.transport):
            # Closed in its own terms, it reads on until the client has closed as well, if that ever comes.
            self._all_sent = not self.write_paused
            if self._all_sent:
                self._linger()
            self.transport.loseConnection()
        elif not self._peer_finished and (self._ignored or self._found or self._held):
            # A reset, which closing with unread input would cause, could destroy the answer on its way.
            self._linger()
            self.transport.loseWriteConnection()
        else:
            self.transport.loseConnection()

    def _linger(self) -> None:
        """Read on for a while, and discard."""
        self._lingering = True
        self._held.clear()
        self._read_on()
        self._linger_call = self._site.clock.callLater(LINGER_SECONDS, self._end_lingering)

    def _end_lingering(self) -> None:
        self._linger_call = None
        close_outright(self.transport)

    @property
    def peer(self) -> str:
        """The client's address and port, or `unix`."""
        # Not a cached property, which makes all attributes of the object slower.
        if not self._peer:
            self._peer = peer_name(self.transport)
        return self._peer

    # --- what the site asks for

    def check_time(self, now: float, patience: float) -> None:
        """End the connection when its client has been silent, or slow with a head, for `patience` seconds.

        Or has left, which goes unseen while it is not read from because too much is pipelined.
        """
        if self._reading_paused and self._peer_left(not self._limits.serve_half_closed):
            self._peer_finished = True
            self._client_gone()
        if self._closing or self._current is not None or self.write_paused:
            return
        if not self._reader.in_message:
            if now - self._heard > patience:
                self.close()
        elif now - (self._began if self._reader.in_head else self._heard) > patience:
            self._reader.refuse(408, f"The request did not arrive within {patience:g} seconds")
            self._pump()

    @property
    def busy(self) -> bool:
        """Whether there is a request to answer, or an answer that is not wholly sent."""
        return not self._all_sent and bool(self._closing or self._current or self._found or self.write_paused)

    def send_calls_elsewhere(self) -> None:
        """There are none."""

    def close_if_idle(self) -> None:
        """End the connection, after its response where it is in the middle of a request."""
        if self._current is not None:
            self._current.keep_alive = False
        elif not self._found and not self._held and not self._reader.in_message:
            self.close()
