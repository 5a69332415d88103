"""Which ports are opened, how a failure is told, and that all is closed again; no real port is opened."""

from __future__ import annotations

import errno
import io
import os
import resource
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactor
from twisted.logger import capturedLogs
from twisted.protocols.haproxy._wrapper import HAProxyWrappingFactory
from twisted.protocols.tls import TLSMemoryBIOFactory
from zope.interface import implementer

from llmdsim.config import parse
from llmdsim.services import listeners
from llmdsim.services.listeners import Listeners, raise_file_limit
from llmdsim.services.start_failure import StartFailure
from llmdsim.services.tls import TLS, tls_setup
from llmdsim.wire.tls import Encrypted
from llmdsim.wire.transport import BACKLOG
from tests.certificates import CA, write_pair


@implementer(IListeningPort)
class Port:
    """A port that is open until it is told to stop; it may take its time."""

    def __init__(self, what: tuple[Any, ...]) -> None:
        self.what = what
        self.factory = what[2]
        self.open = True
        self.closed: Deferred[None] | None = None

    def startListening(self) -> None:
        """It listens already."""

    def getHost(self) -> tuple[Any, ...]:
        return self.what

    def stopListening(self) -> Deferred[None] | None:
        assert self.open
        self.open = False
        return self.closed


class Reactor(MemoryReactor):  # type: ignore[misc]
    """A reactor that opens ports in memory; `refuse` has the errors of those that cannot be opened."""

    def __init__(self) -> None:
        super().__init__()
        self.ports: list[Port] = []
        self.refuse: dict[object, int] = {}

    def _open(self, key: object, *what: Any) -> Port:
        code = self.refuse.get(key)
        if code is not None:
            raise CannotListenError(what[0], what[1], OSError(code, os.strerror(code)))
        port = Port(what)
        self.ports.append(port)
        return port

    def listenTCP(self, port: int, factory: Factory, backlog: int = 50, interface: str = "") -> Port:
        return self._open((interface, port), interface, port, factory, backlog)

    def listenUNIX(
        self, address: str, factory: Factory, backlog: int = 50, mode: int = 0o666, wantPID: bool = False
    ) -> Port:
        return self._open(address, "unix", address, factory, wantPID)

    def listenSSL(
        self, port: int, factory: Factory, contextFactory: Any, backlog: int = 50, interface: str = ""
    ) -> Port:
        return self._open(
            (interface, port), interface, port, TLSMemoryBIOFactory(contextFactory, False, factory)
        )

    def adoptStreamPort(self, fileno: int, family: int, factory: Factory) -> Port:
        return self._open("adopted", "adopted", family, factory)

    def where(self) -> list[tuple[Any, ...]]:
        return [port.what[:2] for port in self.ports]


class Rig:
    def __init__(
        self, *flags: str, inherited: tuple[int, ...] = (), foreground: bool = True, tls: TLS | None = None
    ) -> None:
        self.reactor = Reactor()
        self.site = Factory()
        config = parse(["--model", "m", *flags], {})
        self.admin_site = Factory()
        sites = [self.site, self.admin_site]
        self.listeners = Listeners(config, sites, inherited, self.reactor, foreground, tls)

    def start(self) -> list[tuple[Any, ...]]:
        self.listeners.privilegedStartService()
        assert self.listeners.ports == self.reactor.ports
        return self.reactor.where()


@pytest.fixture(autouse=True)
def _leave_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))


@pytest.fixture
def stderr(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "__stderr__", stream)
    return stream


def handed_over(family: int = socket.AF_INET) -> int:
    """A descriptor such as systemd hands over, though not bound; adopting it closes it."""
    return socket.socket(family).detach()


# --- what is opened


@pytest.mark.parametrize(
    ("flags", "where"),
    [
        ([], [("::", 8000)]),
        (["--port", "9001"], [("::", 9001)]),
        (["--host", "127.0.0.1"], [("127.0.0.1", 8000)]),
        (["--host", "::1", "--port", "9"], [("::1", 9)]),
        (["--host", "0.0.0.0"], [("0.0.0.0", 8000)]),
        (["--listen", "tcp:7000"], [("", 7000)]),
        (["--listen", "tcp:7000:interface=127.0.0.1"], [("127.0.0.1", 7000)]),
        (["--listen", "tcp6:7000"], [("::", 7000)]),
        (["--listen", "unix:/tmp/s"], [("unix", "/tmp/s")]),
        (["--listen", "tcp:7000", "--listen", "unix:/tmp/s"], [("", 7000), ("unix", "/tmp/s")]),
        (["--listen", "tcp:7000", "--port", "8000"], [("", 7000), ("::", 8000)]),
        (["--listen", "tcp:7000", "--host", "::1", "--port", "9"], [("", 7000), ("::1", 9)]),
        (["--listen", "tcp:7000", "--host", "::1"], [("", 7000)]),
        (["--grpc-port", "50051"], [("::", 8000), ("::", 50051)]),
        (["--host", "::1", "--grpc-port", "50051"], [("::1", 8000), ("::1", 50051)]),
        (["--listen", "unix:/tmp/s", "--grpc-port", "8000"], [("unix", "/tmp/s"), ("::", 8000)]),
    ],
)
def test_the_ports_that_are_asked_for_are_opened(flags: list[str], where: list[tuple[Any, ...]]) -> None:
    rig = Rig(*flags)
    assert rig.start() == where
    assert all(port.what[2] is rig.site for port in rig.reactor.ports)


def test_a_port_of_ours_has_a_long_queue() -> None:
    rig = Rig()
    rig.start()
    assert rig.reactor.ports[0].what[3] == BACKLOG


@pytest.mark.parametrize("code", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
def test_a_machine_without_ipv6_is_served_on_ipv4(code: int) -> None:
    rig = Rig("--port", "9")
    rig.reactor.refuse["::", 9] = code
    assert rig.start() == [("0.0.0.0", 9)]


@pytest.mark.parametrize("code", [errno.EADDRINUSE, errno.EACCES])
def test_a_taken_port_is_not_tried_on_ipv4(stderr: io.StringIO, code: int) -> None:
    """Or half of the clients would reach somebody else."""
    rig = Rig("--port", "9")
    rig.reactor.refuse["::", 9] = code
    with pytest.raises(SystemExit):
        rig.start()
    assert rig.reactor.ports == []


def test_a_host_without_ipv6_is_told_so(stderr: io.StringIO) -> None:
    rig = Rig("--host", "::", "--port", "9")
    rig.reactor.refuse["::", 9] = errno.EAFNOSUPPORT
    with pytest.raises(SystemExit):
        rig.start()
    assert ":: port 9" in stderr.getvalue()
    assert rig.reactor.ports == []


def test_sockets_of_systemd_are_used_instead_of_the_port() -> None:
    descriptors = handed_over(), handed_over(socket.AF_INET6)
    rig = Rig(inherited=descriptors)
    assert rig.start() == [("adopted", socket.AF_INET), ("adopted", socket.AF_INET6)]
    # The reactor has its own copies by now.
    for descriptor in descriptors:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_sockets_of_systemd_and_endpoints() -> None:
    rig = Rig("--listen", "tcp:7000", inherited=(handed_over(),))
    assert rig.start() == [("adopted", socket.AF_INET), ("", 7000)]


@pytest.mark.parametrize("public", [[], ["--listen", "tcp:7000"], ["--port", "9"]])
def test_ports_for_administration_are_opened_besides(public: list[str]) -> None:
    alone = Rig(*public).start()
    rig = Rig(*public, "--admin-listen", "unix:/a", "--admin-listen", "tcp:7001:interface=127.0.0.1")
    rig.listeners.privilegedStartService()
    assert rig.reactor.where() == [*alone, ("unix", "/a"), ("127.0.0.1", 7001)]
    assert rig.listeners.ports + rig.listeners.admin_ports == rig.reactor.ports
    assert len(rig.listeners.admin_ports) == 2
    for port in rig.reactor.ports:
        administers = port in rig.listeners.admin_ports
        assert port.what[2] is (rig.admin_site if administers else rig.site)


def test_sockets_of_systemd_are_public() -> None:
    rig = Rig("--admin-listen", "tcp:7001", inherited=(handed_over(),))
    rig.listeners.privilegedStartService()
    assert rig.reactor.where() == [("adopted", socket.AF_INET), ("", 7001)]
    assert [port.what[2] for port in rig.reactor.ports] == [rig.site, rig.admin_site]


# --- what is encrypted


def self_signed() -> TLS:
    setup = tls_setup(parse(["--model", "m", "--self-signed-certs"], {}))
    assert setup is not None
    return TLS(setup, Clock())


@pytest.mark.parametrize("inherits", [False, True])
def test_every_tcp_port_is_encrypted_and_no_unix_socket_is(inherits: bool) -> None:
    flags = (
        *("--listen", "tcp:7000", "--listen", "unix:/s", "--listen", "tcp6:7001", "--port", "7002"),
        *("--listen", "haproxy:tcp:7003", "--listen", "haproxy:unix:/h"),
        *("--admin-listen", "tcp:7004", "--admin-listen", "unix:/a"),
    )
    rig = Rig(*flags, inherited=(handed_over(),) if inherits else (), tls=self_signed())
    rig.listeners.privilegedStartService()
    encrypted = set()
    for port in rig.reactor.ports:
        factory = port.factory
        if isinstance(factory, HAProxyWrappingFactory):
            # What the proxy tells of a client comes before TLS.
            factory = factory.wrappedFactory
        if isinstance(factory, TLSMemoryBIOFactory):
            # Not Twisted's own, which keeps small writes for the next turn.
            assert factory.protocol is Encrypted
            encrypted.add(port.what[1])
            factory = factory.wrappedFactory
        assert factory is (rig.admin_site if port in rig.listeners.admin_ports else rig.site)
    assert encrypted == {socket.AF_INET if inherits else 7002, 7000, 7001, 7003, 7004}


def test_where_tls_is_spoken_is_known(tmp_path: Path) -> None:
    certificate, key = write_pair(tmp_path, CA().issue())
    endpoint = f"ssl:7000:privateKey={key}:certKey={certificate}"
    flags = ("--listen", endpoint, "--listen", "unix:/s", "--port", "8000", "--admin-listen", "tcp:7001")
    plain, encrypting = Rig(*flags), Rig(*flags, tls=self_signed())
    for rig, expected in ((plain, {7000}), (encrypting, {7000, 7001, 8000})):
        rig.listeners.privilegedStartService()
        assert {address[1] for address in rig.listeners.encrypted} == expected
        # An endpoint with a certificate of its own is not encrypted twice.
        assert rig.reactor.ports[0].factory.wrappedFactory is rig.site


# --- what cannot be opened


FAILURES = [
    (["--port", "9"], {("::", 9): errno.EADDRINUSE}, "cannot listen on port 9: Address already in use"),
    (
        ["--host", "192.0.2.1", "--port", "9"],
        {("192.0.2.1", 9): errno.EADDRNOTAVAIL},
        "cannot listen on 192.0.2.1 port 9: Cannot assign requested address",
    ),
    (
        ["--listen", "tcp:7000"],
        {("", 7000): errno.EADDRINUSE},
        "--listen tcp:7000: Address already in use",
    ),
    (
        ["--listen", "unix:/nowhere/s"],
        {"/nowhere/s": errno.ENOENT},
        "--listen unix:/nowhere/s: No such file or directory",
    ),
    (
        ["--admin-listen", "tcp:7001"],
        {("", 7001): errno.EADDRINUSE},
        "--admin-listen tcp:7001: Address already in use",
    ),
    (["--admin-listen", "here"], {}, "--admin-listen here: not an endpoint: "),
    (["--listen", "carrier-pigeon:7000"], {}, "--listen carrier-pigeon:7000: not an endpoint: "),
    (["--listen", "tcp:lots"], {}, "--listen tcp:lots: not an endpoint: "),
    (["--listen", "tcp"], {}, "--listen tcp: not an endpoint: "),
]


@pytest.mark.parametrize(("flags", "refuse", "told"), FAILURES)
def test_in_the_foreground_a_failure_is_one_line_and_an_exit(
    stderr: io.StringIO, flags: list[str], refuse: dict[object, int], told: str
) -> None:
    rig = Rig(*flags)
    rig.reactor.refuse.update(refuse)
    with pytest.raises(SystemExit) as exit_:
        rig.start()
    assert exit_.value.code == 1
    (line,) = stderr.getvalue().splitlines()
    assert line.startswith("llmdsim: ")
    assert told in line


@pytest.mark.parametrize(("flags", "refuse", "told"), FAILURES)
def test_a_daemonized_failure_is_an_exception_of_one_line(
    stderr: io.StringIO, flags: list[str], refuse: dict[object, int], told: str
) -> None:
    rig = Rig(*flags, foreground=False)
    rig.reactor.refuse.update(refuse)
    with pytest.raises(StartFailure) as failure:
        rig.start()
    assert told in str(failure.value)
    assert "\n" not in str(failure.value)
    assert stderr.getvalue() == ""


@pytest.mark.parametrize("foreground", [True, False])
def test_what_was_opened_before_a_failure_is_closed(stderr: io.StringIO, foreground: bool) -> None:
    flags = ("--listen", "unix:/s", "--port", "9", "--admin-listen", "unix:/a", "--admin-listen", "unix:/b")
    rig = Rig(*flags, foreground=foreground)
    rig.reactor.refuse["/b"] = errno.EACCES
    with pytest.raises((SystemExit, StartFailure)):
        rig.start()
    assert [port.open for port in rig.reactor.ports] == [False] * 3


def test_a_socket_that_is_none_is_told(stderr: io.StringIO) -> None:
    reading, writing = os.pipe()
    try:
        for descriptor, told in ((reading, "non-socket"), (1_000_000, "Bad file descriptor")):
            with pytest.raises(SystemExit):
                Rig(inherited=(descriptor,)).start()
            line = stderr.getvalue().splitlines()[-1]
            assert line.startswith(f"llmdsim: socket {descriptor} of systemd: ")
            assert told in line
    finally:
        os.close(reading)
        os.close(writing)


def test_an_endpoint_that_takes_its_time_is_refused(
    monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO
) -> None:
    class Slow:
        def listen(self, factory: Factory) -> Deferred[Port]:
            return Deferred()

    monkeypatch.setattr(listeners, "serverFromString", lambda reactor, description: Slow())
    with pytest.raises(SystemExit):
        Rig("--listen", "onion:80").start()
    assert "onion:80: this kind of endpoint does not listen at once" in stderr.getvalue()


def test_an_endpoint_that_opens_no_port_is_refused(
    monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO
) -> None:
    class Standard:
        def listen(self, factory: Factory) -> Deferred[object]:
            return succeed(object())

    monkeypatch.setattr(listeners, "serverFromString", lambda reactor, description: Standard())
    with pytest.raises(SystemExit):
        Rig("--listen", "stdio:").start()
    assert stderr.getvalue().startswith("llmdsim: --listen stdio:")


# --- the end


def test_stopping_closes_everything_and_waits_for_it() -> None:
    flags = ("--listen", "unix:/s", "--listen", "tcp:7000", "--admin-listen", "unix:/a")
    rig = Rig(*flags, inherited=(handed_over(),))
    rig.listeners.privilegedStartService()
    slow = rig.reactor.ports[1]
    slow.closed = Deferred()
    ended: list[object] = []
    rig.listeners.stopService().addCallback(ended.append)
    assert [port.open for port in rig.reactor.ports] == [False] * 4
    assert ended == []
    slow.closed.callback(None)
    assert len(ended) == 1
    assert rig.listeners.ports == rig.listeners.admin_ports == []


def test_stopping_what_never_started_is_nothing() -> None:
    ended: list[object] = []
    Rig().listeners.stopService().addCallback(ended.append)
    assert ended == [[]]


# --- open files


@pytest.mark.parametrize(("limits", "calls"), [((1024, 4096), [(4096, 4096)]), ((4096, 4096), [])])
def test_as_many_files_as_the_system_allows(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], calls: list[tuple[int, int]]
) -> None:
    made: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: made.append(new))
    raise_file_limit()
    assert made == calls


def test_a_limit_that_cannot_be_raised_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    rig = Rig()
    with capturedLogs() as logged:
        assert rig.start() == [("::", 8000)]
    assert ["1024" in event["log_format"].format(**event) for event in logged] == [True]
