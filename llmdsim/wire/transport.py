"""Server transports that try the socket at once and leave to Twisted only what it would not take."""

from __future__ import annotations

import select
import socket
from typing import Any, Protocol

from twisted.internet import abstract, tcp, unix
from twisted.internet.interfaces import ISSLTransport
from twisted.logger import Logger

log = Logger()

#: Connections the kernel may hold before we accept them; endpoint strings default to 50.
BACKLOG = 4096

_POLLRDHUP: int = getattr(select, "POLLRDHUP", 0)

#: What Twisted keeps to itself and direct send depends on.
PRIVATE = ("TLS", "_aborting", "_tempDataLen", "_writeDisconnected", "dataBuffer")


class Flushed(Protocol):
    """What may have something to send when a turn ends."""

    def flush(self) -> None:
        """Send it."""

    def abortConnection(self) -> None:
        """End the connection, which could not be sent to."""


class Turn:
    """Transports that have something to send when their reactor's turn ends.

    Sending wakes a client that sleeps, which costs us a third of what a whole request does. Responses sent
    right after one another find their client awake, so whole ones wait for the end of the turn, or for `MOST`
    of them.
    """

    MOST = 32

    def __init__(self) -> None:
        self._waiting: list[Flushed] = []

    def add(self, transport: Flushed) -> None:
        """Flush `transport` at the end of the turn."""
        self._waiting.append(transport)
        if len(self._waiting) >= self.MOST:
            self.end()

    def end(self) -> None:
        """Send what waits."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for transport in waiting:
            try:
                transport.flush()
            except Exception:
                log.failure("sending failed")
                transport.abortConnection()


class DirectSend:
    """Sends at once what the socket takes, unless bytes are buffered already or TLS is to encrypt them."""

    reactor: Any
    socket: Any
    connected: int
    dataBuffer: bytes
    TLS: bool
    _tempDataLen: int
    _writeDisconnected: bool
    _aborting: bool
    _soon = b""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.turn: Turn | None = getattr(self.reactor, "turn", None)

    def write(self, data: bytes) -> None:
        """Send `data` now."""
        if self._soon:
            data, self._soon = self._soon + data, b""
        if self.connected and not (
            self.dataBuffer or self._tempDataLen or self.TLS or self._writeDisconnected or self._aborting
        ):
            try:
                sent = self.socket.send(data)
            except OSError:
                # Full, or gone: Twisted's own write finds out which, in its turn, and reports it.
                pass
            else:
                if sent == len(data):
                    return
                data = data[sent:]
        if not self._aborting:
            super().write(data)  # type: ignore[misc]

    def peer_left(self, by_fin: bool) -> bool:
        """Whether the peer has reset the connection or, with `by_fin`, closed its side; read or not."""
        poll = select.poll()
        poll.register(self.socket, _POLLRDHUP if by_fin else 0)
        return bool(poll.poll(0))

    def write_soon(self, data: bytes) -> None:
        """Send `data` before the reactor waits again, if it has turns (`Turn`), else now.

        A second response does not wait: one that no client takes must be felt before a third is made.
        """
        if self.turn is None or self._soon:
            self.write(data)
        else:
            self._soon = data
            self.turn.add(self)

    def flush(self) -> None:
        """Send what `write_soon` was given."""
        if self._soon:
            data, self._soon = self._soon, b""
            self.write(data)

    def loseConnection(self) -> None:
        """Close when everything is sent."""
        self.flush()
        super().loseConnection()  # type: ignore[misc]

    def loseWriteConnection(self) -> None:
        """Close our side when everything is sent."""
        self.flush()
        super().loseWriteConnection()  # type: ignore[misc]

    def abortConnection(self) -> None:
        """Close at once; what was written before goes first, as it would have without a turn to wait for."""
        self.flush()
        super().abortConnection()  # type: ignore[misc]


class DirectServer(DirectSend, tcp.Server):
    """A TCP connection with direct send."""


class DirectUnixServer(DirectSend, unix.Server):
    """A Unix socket connection with direct send."""


def close_outright(transport: Any) -> None:
    """Close when what is written has been sent, without waiting for a client's TLS to agree."""
    tls = ISSLTransport.providedBy(transport)
    (transport.transport if tls else transport).loseConnection()


def turn_of(transport: Any) -> Turn | None:
    """The turn at whose end `transport`, or what is beneath it, may send."""
    while transport is not None:
        if isinstance(transport, DirectSend):
            return transport.turn
        transport = getattr(transport, "transport", None)
    return None


def twisted_is_as_expected() -> bool:
    """Whether this Twisted has what direct send needs of its inside; it promises none of it."""
    probe: Any = abstract.FileDescriptor(object())  # type: ignore[arg-type]
    return all(hasattr(tcp.Server, name) or hasattr(probe, name) for name in PRIVATE)


def use_direct_send(port: Any) -> None:
    """Give a listening port of Twisted's our transports and a long backlog.

    A TLS port's connections are plain ones under a protocol that encrypts, and get them too.
    """
    listening = getattr(port, "socket", None)
    if isinstance(listening, socket.socket):
        listening.listen(BACKLOG)
        # Accepted sockets inherit it: peers that vanish without a word are found in the end.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if not twisted_is_as_expected():
        log.warn("this version of Twisted is unknown: replies are sent in its own, slower way")
    elif isinstance(port, unix.Port):
        port.transport = DirectUnixServer
    elif isinstance(port, tcp.Port):
        port.transport = DirectServer
