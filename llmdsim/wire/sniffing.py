"""Which version of HTTP a connection speaks: by what TLS agreed on, or by its first bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IProtocol
from twisted.internet.protocol import Protocol

from llmdsim.wire.http1 import HTTP1
from llmdsim.wire.http2.frames import PREFACE
from llmdsim.wire.peer import peer_name
from llmdsim.wire.transport import close_outright

if TYPE_CHECKING:
    from llmdsim.wire.site import Site


class Sniffing(Protocol):
    """Keeps bytes until they tell, then leaves the connection to the protocol they belong to."""

    transport: Any
    busy = False

    def __init__(self, site: Site) -> None:
        self._site = site
        self._first = b""
        self._began = site.now

    def connectionMade(self) -> None:
        self._site.connected(self)
        set_no_delay = getattr(self.transport, "setTcpNoDelay", None)
        if set_no_delay is not None:
            set_no_delay(True)

    def dataReceived(self, data: bytes) -> None:
        first = self._first + data if self._first else data
        agreed = getattr(self.transport, "negotiatedProtocol", None)
        if agreed == b"h2" or first.startswith(PREFACE):
            self._leave_to_http2(first)
        elif agreed is None and PREFACE.startswith(first):
            self._first = first
        else:
            self._leave_to(HTTP1(self._site), first)

    def connectionLost(self, reason: object = None) -> None:
        self._site.disconnected(self)

    def _leave_to_http2(self, first: bytes) -> None:
        from llmdsim.wire.http2.connection import HTTP2  # noqa: PLC0415 - takes a while to load

        self._leave_to(HTTP2(self._site), first)

    def _leave_to(self, protocol: IProtocol, first: bytes) -> None:
        self._site.connections.discard(self)
        transport = self.transport
        # TLS has its protocol in the one place, sockets in the other.
        name = "wrappedProtocol" if hasattr(transport, "wrappedProtocol") else "protocol"
        setattr(transport, name, protocol)
        protocol.makeConnection(transport)
        if first:
            protocol.dataReceived(first)

    # --- what the site asks for

    @property
    def peer(self) -> str:
        """The client's address and port, or `unix`."""
        return peer_name(self.transport)

    def check_time(self, now: float, patience: float) -> None:
        """End a connection that has said nothing for `patience` seconds."""
        if now - self._began > patience:
            if self._first:
                self._leave_to(HTTP1(self._site), self._first)
            else:
                self.close()

    def close(self) -> None:
        """End the connection."""
        self.transport.loseConnection()
        close_outright(self.transport)

    close_if_idle = close

    def send_calls_elsewhere(self) -> None:
        """There are none."""
