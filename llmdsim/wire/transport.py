"""Server transports that try the socket at once and leave to Twisted only what it would not take."""

from __future__ import annotations

import socket
from typing import Any

from twisted.internet import tcp, unix

#: Connections the kernel may hold before we accept them; endpoint strings default to 50.
BACKLOG = 4096


class Turn:
    """Transports that have something to send when the reactor's turn ends.

    Sending wakes a client that sleeps, which costs us a third of what a whole request does. Responses sent
    right after one another find their client awake, so whole ones wait for the end of the turn, or for `MOST`
    of them. Nothing waits unless a reactor that ends turns has said so by setting `ends`.
    """

    MOST = 16

    def __init__(self) -> None:
        self.ends = False
        self._waiting: list[_DirectSend] = []

    def add(self, transport: _DirectSend) -> None:
        """Flush `transport` at the end of the turn."""
        self._waiting.append(transport)
        if len(self._waiting) >= self.MOST:
            self.end()

    def end(self) -> None:
        """Send what waits."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for transport in waiting:
                transport.flush()


turn = Turn()


class _DirectSend:
    """Sends at once what the socket takes, unless bytes are buffered already or TLS is to encrypt them."""

    socket: Any
    connected: int
    dataBuffer: bytes
    TLS: bool
    _tempDataLen: int
    _writeDisconnected: bool
    _aborting: bool
    _soon = b""

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

    def write_soon(self, data: bytes) -> None:
        """Send `data` before the reactor waits again."""
        if not turn.ends:
            self.write(data)
        elif self._soon:
            self._soon += data
        else:
            self._soon = data
            turn.add(self)

    def flush(self) -> None:
        """Send what `write_soon` was given."""
        if self._soon:
            self.write(b"")

    def loseConnection(self) -> None:
        """Close when everything is sent."""
        self.flush()
        super().loseConnection()  # type: ignore[misc]

    def loseWriteConnection(self) -> None:
        """Close our side when everything is sent."""
        self.flush()
        super().loseWriteConnection()  # type: ignore[misc]

    def abortConnection(self) -> None:
        """Close at once."""
        self.flush()
        super().abortConnection()  # type: ignore[misc]


class DirectServer(_DirectSend, tcp.Server):
    """A TCP connection with direct send."""


class DirectUnixServer(_DirectSend, unix.Server):
    """A Unix socket connection with direct send."""


def use_direct_send(port: Any) -> None:
    """Give a listening port of Twisted's our transports and a long backlog.

    Ports of other kinds (TLS ones wrap a plain port, which is given here by its own) are left as they are.
    """
    if isinstance(port, unix.Port):
        port.transport = DirectUnixServer
    elif isinstance(port, tcp.Port):
        port.transport = DirectServer
    listening = getattr(port, "socket", None)
    if isinstance(listening, socket.socket):
        listening.listen(BACKLOG)
