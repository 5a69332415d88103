"""What all connections have in common, whichever listener they came by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from twisted.internet.interfaces import IProtocolNegotiationFactory
from twisted.internet.protocol import Factory
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from zope.interface import implementer

from llmdsim.wire.known_heads import KnownHeads
from llmdsim.wire.limits import Limits
from llmdsim.wire.request import Request
from llmdsim.wire.sniffing import Sniffing

log = Logger()

#: What TLS is to agree on, by ALPN, in the order in which we prefer it.
PROTOCOLS = (b"h2", b"http/1.1")


class Connection(Protocol):
    """What a site asks of its connections."""

    transport: Any

    @property
    def peer(self) -> str:
        """The client's address and port, or `unix`."""

    @property
    def busy(self) -> bool:
        """Whether there is a request to answer, or an answer that is not wholly sent."""

    def check_time(self, now: float, patience: float) -> None:
        """End what has been silent for `patience` seconds."""

    def send_calls_elsewhere(self) -> None:
        """Have a client of gRPC, if it is one, make its next calls over another connection."""

    def close_if_idle(self) -> None:
        """End the connection, after what it is in the middle of."""

    def close(self) -> None:
        """End the connection when what is written has been sent."""


class Answerer(Protocol):
    """What answers requests."""

    def handle(self, request: Request) -> None:
        """Answer it."""

    def refuse(self, request: Request, status: int, message: str) -> None:
        """Answer it with an error that HTTP has this status for."""


class Calls(Answerer, Protocol):
    """What answers the requests over HTTP/2 that it takes, in place of the site itself."""

    def takes(self, request: Request) -> bool:
        """Whether `request`, of which only the head may be known, is one of them."""

    def takes_pieces(self, request: Request) -> bool:
        """Whether it is, and is to be handled as soon as its head has come.

        Its `on_body` is then given each piece of its body, and None behind the last.
        """


@implementer(IProtocolNegotiationFactory)
class Site(Factory):
    """`handle` is given each complete request; `error_body` makes the body of errors the protocols give.

    `common_headers` gives header lines for responses to what is refused before it is handed on. `are_plain`
    tells whether headers have no say in the answer (`Request.plain`). `clock` is an `IReactorTime`; `now` is
    its time, for time-outs, brought up to date twice a second: it is that of the next look at all
    connections, lest these end before their time.
    """

    noisy = False

    def __init__(
        self,
        handle: Callable[[Request], None],
        error_body: Callable[[int, bytes, str], bytes],
        limits: Limits,
        clock: Any,
        common_headers: Callable[[Request], bytes] | None = None,
        are_plain: Callable[[Mapping[bytes, bytes]], bool] | None = None,
    ) -> None:
        self.handle = handle
        self.error_body = error_body
        self.limits = limits
        self.common_headers = common_headers
        self.clock = clock
        self.seconds: Callable[[], float] = clock.seconds
        patience = limits.idle_time
        self._between_looks = min(0.5, patience / 8) if patience else 1.0
        self.now: float = clock.seconds() + self._between_looks
        self.connections: set[Connection] = set()
        self.known_heads = KnownHeads(are_plain)
        #: What requests are made of, and whether the log tells of connections.
        self.request_type = Request
        self.tells_connections = False
        #: Told of each request whose response is complete or whose client left, refused ones included.
        self.on_ended: list[Callable[[Request], None]] = []
        #: What answers some requests over HTTP/2, if there is anything.
        self.calls: Calls | None = None
        #: Set while draining: connections end with the response under way.
        self.closing = False
        self._sweep = LoopingCall(self._look_round)
        self._sweep.clock = clock

    def buildProtocol(self, addr: object) -> Sniffing:
        return Sniffing(self)

    def refuse(self, request: Request, status: int, message: str) -> None:
        """Answer `request` with an error."""
        request.respond(status, self.error_body(status, request.path, message))

    def connected(self, connection: Connection) -> None:
        """There is a new connection."""
        self.connections.add(connection)
        if self.tells_connections:
            log.debug("{client} connected", client=connection.peer, v=5)

    def disconnected(self, connection: Connection) -> None:
        """A connection is no more."""
        self.connections.discard(connection)
        if self.tells_connections:
            log.debug("{client} disconnected", client=connection.peer, v=5)

    def tell_ended(self, request: Request) -> None:
        """The response of `request` is complete, or its client has left."""
        for ended in self.on_ended:
            try:
                ended(request)
            except Exception:
                log.failure("the end of a request could not be noted")
        if request.account is not None:
            request.account = None  # what it knows leads back to the request

    def acceptableProtocols(self) -> list[bytes]:
        """What Twisted's own TLS, that of `ssl:` endpoints, is to agree on."""
        return list(PROTOCOLS)

    def start(self) -> None:
        """Begin to watch over time-outs."""
        # The first look sets `now`, which may be long past when a service starts later than it was made.
        self._sweep.start(self._between_looks)

    def stop(self) -> None:
        """End every connection."""
        if self._sweep.running:
            self._sweep.stop()
        for connection in list(self.connections):
            connection.close()

    def send_calls_elsewhere(self) -> None:
        """Have clients of gRPC make their next calls over other connections; those under way go on."""
        for connection in list(self.connections):
            connection.send_calls_elsewhere()

    def close_idle(self) -> None:
        """End connections that are between requests, and the others after their response."""
        self.closing = True
        for connection in list(self.connections):
            connection.close_if_idle()

    @property
    def busy(self) -> bool:
        """Whether a connection has a request to answer or an answer to send."""
        return any(connection.busy for connection in self.connections)

    def _look_round(self) -> None:
        now = self.clock.seconds()
        self.now = now + self._between_looks
        patience = self.limits.idle_time
        if patience:
            for connection in list(self.connections):
                try:
                    connection.check_time(now, patience)
                except Exception:
                    # Here, or the watch over all others would end.
                    log.failure("a connection could not be checked")
                    connection.transport.abortConnection()
