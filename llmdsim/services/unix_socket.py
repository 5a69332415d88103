"""Unix sockets that another process has opened for us, or has left behind."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from pathlib import Path
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


def remove_own_remains(path: str) -> None:
    """Remove the socket and the lock at `path` that a process with our number has left behind.

    Twisted takes such a lock for one that is held, and in a container each start has the same number: after a
    kill there would be none any more.
    """
    lock = f"{path}.lock"
    with suppress(OSError):
        if os.readlink(lock) != str(os.getpid()) or _in_use(path):
            return
        Path(path).unlink(missing_ok=True)
        os.unlink(lock)


def _in_use(path: str) -> bool:
    """Whether there is more than a socket that nobody listens on: it may be one that we have opened."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except FileNotFoundError:
            return False
        except ConnectionRefusedError:
            return not stat.S_ISSOCK(os.stat(path).st_mode)
    return True
