"""Unix sockets that another process has opened, and whose files stay as they are."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory
from twisted.internet.unix import Port
from twisted.python.failure import Failure

from llmdsim.config import parse
from llmdsim.services.listeners import Listeners
from llmdsim.services.unix_socket import adopt_unix_socket


class Reactor:
    """Looks at nothing."""

    def __init__(self) -> None:
        self.reading: list[Any] = []

    def addReader(self, port: Any) -> None:
        self.reading.append(port)

    def removeReader(self, port: Any) -> None:
        if port in self.reading:
            self.reading.remove(port)

    def removeWriter(self, port: Any) -> None:
        """It was none."""


def opened(path: Path) -> socket.socket:
    """A listening socket that only its owner may connect to."""
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    path.chmod(0o600)
    made.listen()
    return made


def ended(port: Any) -> None:
    port.connectionLost(Failure(ConnectionDone()))  # type: ignore[no-untyped-call]


def test_the_file_keeps_its_mode_and_is_there_at_the_end(tmp_path: Path) -> None:
    path, reactor = tmp_path / "s", Reactor()
    with opened(path) as unix:
        port: Any = adopt_unix_socket(reactor, unix.fileno(), Factory())
        assert reactor.reading == [port]
        assert port.getHost().name == os.fsencode(path)
        assert path.stat().st_mode & 0o777 == 0o600
        ended(port)
    assert path.is_socket()


def test_the_file_of_another_who_took_the_place_is_left_alone(tmp_path: Path) -> None:
    """As where a rank's process outlives the main one, and the server is started anew."""
    path, reactor = tmp_path / "s", Reactor()
    with opened(path) as unix:
        port: Any = adopt_unix_socket(reactor, unix.fileno(), Factory())
        path.unlink()
        path.write_text("another's")
        ended(port)
    assert path.read_text() == "another's"


def test_one_of_systemd_is_served_and_does_not_block(tmp_path: Path) -> None:
    path, reactor = tmp_path / "s", Reactor()
    with opened(path) as unix:
        descriptor = os.dup(unix.fileno())
        config = parse(["--model", "m"], {})
        listeners = Listeners(config, [Factory()], (descriptor,), reactor, foreground=True)
        listeners.privilegedStartService()
        (port,) = listeners.ports
        assert isinstance(port, Port)
        assert reactor.reading == [port]
        assert not os.get_blocking(unix.fileno())
        assert path.stat().st_mode & 0o777 == 0o600
        assert not os.path.exists(f"/proc/self/fd/{descriptor}"), "the port has its own"
        ended(port)
    assert path.is_socket()
