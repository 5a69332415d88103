"""Unix sockets that another process has opened for us."""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory
from twisted.internet.unix import Port


def adopt_unix_socket(reactor: Any, descriptor: int, factory: Factory) -> IListeningPort:
    """A port that serves the listening socket of `descriptor`, of which it has a copy.

    The socket's file belongs to whoever opened it. Twisted's `adoptStreamPort` would let everybody connect,
    and remove the file at the end: then nobody could connect to systemd's socket any more, or to that of
    another server in the same place.
    """
    adopted: Any = Port
    port = adopted._fromListeningDescriptor(reactor, descriptor, factory)
    # The beginning of a name that has no file: what it takes for no file it leaves alone.
    port._bindPath = b"\0"
    port.startListening()
    listening: IListeningPort = port
    return listening
