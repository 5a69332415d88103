"""Unix sockets that another process has opened, whose files stay as they are, or has left behind."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory
from twisted.internet.unix import Port
from twisted.python.failure import Failure

from llmdsim.config import parse
from llmdsim.services.listeners import Listeners
from llmdsim.services.start_failure import StartFailure
from llmdsim.services.unix_socket import adopt_unix_socket, remove_own_remains


class Reactor:
    """Looks at nothing."""

    def __init__(self) -> None:
        self.reading: list[Any] = []

    def listenUNIX(
        self, address: str, factory: Any, backlog: int = 50, mode: int = 0o666, wantPID: int = 0
    ) -> Any:
        port = Port(address, factory, backlog, mode, self, wantPID)  # type: ignore[arg-type]
        port.startListening()  # type: ignore[no-untyped-call]
        return port

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


def left_behind(path: Path, number: int) -> None:
    """What a process of that number leaves when it is killed."""
    opened(path).close()
    path.with_name(f"{path.name}.lock").symlink_to(str(number))


@pytest.mark.parametrize("only_the_lock", [False, True])
def test_a_process_of_the_same_number_left_nothing_that_stops_us(tmp_path: Path, only_the_lock: bool) -> None:
    """In a container the number is the same at each start."""
    path, reactor = tmp_path / "s", Reactor()
    left_behind(path, os.getpid())
    if only_the_lock:
        path.unlink()
    config = parse(["--model", "m", "--listen", f"unix:{path}"], {})
    listeners = Listeners(config, [Factory()], (), reactor, foreground=False)
    listeners.privilegedStartService()
    (port,) = listeners.ports
    assert reactor.reading == [port]
    again = Listeners(config, [Factory()], (), reactor, foreground=False)
    with pytest.raises(StartFailure, match="Cannot acquire lock"):
        again.privilegedStartService()
    assert path.is_socket()
    ended(port)
    assert list(tmp_path.iterdir()) == []


def test_what_is_anothers_or_no_socket_is_left_alone(tmp_path: Path) -> None:
    left_behind(tmp_path / "a", os.getppid())
    remove_own_remains(str(tmp_path / "a"))
    left_behind(tmp_path / "b", os.getpid())
    (tmp_path / "b").unlink()
    (tmp_path / "b").write_text("mine")
    remove_own_remains(str(tmp_path / "b"))
    (tmp_path / "c.lock").write_text("no link")
    opened(tmp_path / "c").close()
    remove_own_remains(str(tmp_path / "c"))
    remove_own_remains(str(tmp_path / "d"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "a.lock", "b", "b.lock", "c", "c.lock"]
