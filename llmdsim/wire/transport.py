"""Server transports that try the socket at once and leave to Twisted only what it would not take."""

from __future__ import annotations

import socket
from typing import Any

from twisted.internet import tcp, unix

#: Connections the kernel may hold before we accept them; endpoint strings default to 50.
BACKLOG = 4096


class _DirectSend:
    """Sends at once what the socket takes, unless bytes are buffered already or TLS is to encrypt them."""

    socket: Any
    connected: int
    dataBuffer: bytes
    TLS: bool
    _tempDataLen: int
    _writeDisconnected: bool
    _aborting: bool

    def write(self, data: bytes) -> None:
        """Send `data` as soon as possible."""
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
        if self._aborting:
            return
        super().write(data)  # type: ignore[misc]


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
