"""Ports that the main process opens and holds, and a rank's process serves."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory
from twisted.internet.unix import Port as UnixPort
from zope.interface import implementer

from llmdsim.config import parse
from llmdsim.services.handing_over import HandedOver, HeldListeners
from llmdsim.services.listeners import Listeners


@implementer(IListeningPort)
class Adopted:
    """A port that another has opened."""

    def startListening(self) -> None:
        """It does."""

    def stopListening(self) -> None:
        """It does not."""

    def getHost(self) -> str:
        return "somewhere"


class Reactor:
    """Opens real sockets and never looks at them; `reading` are the ports that would be."""

    def __init__(self) -> None:
        self.reading: list[Any] = []
        self.adopted: list[tuple[int, Any, Any]] = []
        self.opened: list[Any] = []

    def listenTCP(self, number: int, factory: Any, backlog: int = 50, interface: str = "") -> Any:
        from twisted.internet.tcp import Port

        return self._start(Port(number, factory, backlog, interface, self))  # type: ignore[no-untyped-call]

    def listenUNIX(
        self, address: str, factory: Any, backlog: int = 50, mode: int = 0o666, wantPID: int = 0
    ) -> Any:
        return self._start(UnixPort(address, factory, backlog, mode, self, wantPID))  # type: ignore[arg-type]

    def _start(self, port: Any) -> Any:
        port.startListening()
        self.opened.append(port)
        return port

    def adoptStreamPort(self, descriptor: int, family: Any, factory: Any) -> Any:
        self.adopted.append((os.dup(descriptor), family, factory))
        return Adopted()

    def addReader(self, port: Any) -> None:
        self.reading.append(port)

    def removeReader(self, port: Any) -> None:
        if port in self.reading:
            self.reading.remove(port)


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    made = Reactor()
    yield made
    for port in made.opened:
        port.socket.close()
    for descriptor, _, _ in made.adopted:
        os.close(descriptor)


def held(reactor: Reactor, *flags: str) -> HeldListeners:
    listeners = HeldListeners(parse(["--model", "m", *flags], {}), (), reactor, foreground=True)
    listeners.privilegedStartService()
    return listeners


def holders(opened: socket.socket) -> int:
    """How many descriptors of this process are of that socket."""
    wanted = os.fstat(opened.fileno()).st_ino
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found += os.fstat(int(name)).st_ino == wanted
    return found


def connects(address: Any) -> bool:
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as client:
        try:
            client.connect(address)
        except OSError:
            return False
        return True


def test_held_ports_are_open_and_not_served(reactor: Reactor, tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    listeners = held(reactor, "--listen", "tcp:0:interface=127.0.0.1", "--listen", f"unix:{path}")
    assert reactor.reading == []
    number = listeners.addresses[0].port
    assert connects(("127.0.0.1", number))
    assert connects(path)
    assert listeners.sockets == [port.fileno() for port in reactor.opened]


def test_once_handed_over_they_live_as_long_as_the_other_has_them(reactor: Reactor, tmp_path: Path) -> None:
    path = tmp_path / "s"
    listeners = held(reactor, "--listen", "tcp:0:interface=127.0.0.1", "--listen", f"unix:{path}")
    number = listeners.addresses[0].port
    with ExitStack() as others:
        for descriptor in listeners.sockets:
            others.callback(os.close, os.dup(descriptor))
        listeners.hand_over()
        assert connects(("127.0.0.1", number))
        assert connects(str(path))
    assert not connects(("127.0.0.1", number))
    assert not connects(str(path))
    # The other may have ended without removing it.
    assert path.exists()
    listeners.stopService()
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_gone_already_are_no_trouble(reactor: Reactor, tmp_path: Path) -> None:
    path = tmp_path / "s"
    listeners = held(reactor, "--listen", f"unix:{path}")
    listeners.hand_over()
    path.unlink()
    assert listeners.close().called
    assert list(tmp_path.iterdir()) == []


def test_the_ranks_process_serves_them_in_the_order_in_which_they_were_opened(
    reactor: Reactor, tmp_path: Path
) -> None:
    path = tmp_path / "s"
    flags = ("--model", "m", "--host", "127.0.0.1", "--port", "9", "--admin-listen", "tcp:8")
    config = parse([*flags, "--listen", "tcp:0", "--listen", f"unix:{path}:mode=600"], {})
    site, admin_site = Factory(), Factory()
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
        socket.create_server(("127.0.0.1", 0)) as three,
        socket.socket(socket.AF_UNIX) as unix,
    ):
        unix.bind(str(path))
        path.chmod(0o600)
        unix.listen()
        given = [os.dup(each.fileno()) for each in (one, unix, two, three)]
        handing = HandedOver(reactor, given)
        listeners = Listeners(config, [site, admin_site], (), handing, foreground=True)
        listeners.privilegedStartService()
        assert [factory for _, _, factory in reactor.adopted] == [site, site, admin_site]
        for (descriptor, _, _), opened in zip(reactor.adopted, (one, two, three), strict=True):
            assert os.path.sameopenfile(descriptor, opened.fileno())
        port = listeners.ports[1]
        assert isinstance(port, UnixPort)
        assert reactor.reading == [port]
        reactor.opened.append(port)
        assert path.stat().st_mode & 0o777 == 0o600
        for opened in (one, unix, two, three):
            assert holders(opened) == 2, "this test and the port: what else holds it would outlive the port"


def test_an_encrypted_endpoint_encrypts_in_the_ranks_process(reactor: Reactor) -> None:
    from twisted.internet.ssl import CertificateOptions
    from twisted.protocols.tls import TLSMemoryBIOFactory

    with socket.create_server(("127.0.0.1", 0)) as one:
        handing = HandedOver(reactor, [os.dup(one.fileno())])
        site = Factory()
        handing.listenSSL(0, site, CertificateOptions())
        ((_, _, factory),) = reactor.adopted
        assert isinstance(factory, TLSMemoryBIOFactory)
        assert factory.wrappedFactory is site
