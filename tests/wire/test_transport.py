"""Direct send: what the socket takes goes at once, the rest through Twisted's buffer, all in order."""

from __future__ import annotations

import errno
import socket
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet import tcp, unix
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import MemoryReactorClock

from llmdsim.wire.transport import BACKLOG, DirectServer, DirectUnixServer, Turn, use_direct_send


class Socket:
    """A socket whose every `send` takes as much as `takes` says next; an errno there is raised instead."""

    def __init__(self, *takes: int | OSError) -> None:
        self.takes = list(takes)
        self.taken: list[bytes] = []

    def send(self, data: bytes) -> int:
        step = self.takes.pop(0) if self.takes else len(data)
        if isinstance(step, Exception):
            raise step
        part = bytes(data[:step])
        self.taken.append(part)
        return len(part)

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def fileno(self) -> int:
        return 9

    def shutdown(self, how: int) -> None:
        pass

    def close(self) -> None:
        pass


class Producer:
    """Counts what a transport tells its producer."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def pauseProducing(self) -> None:
        self.told.append("pause")

    def resumeProducing(self) -> None:
        self.told.append("resume")

    def stopProducing(self) -> None:
        self.told.append("stop")


FULL = OSError(errno.EAGAIN, "would block")


def connected(
    kind: type[Any], *takes: int | OSError, turn: Turn | None = None
) -> tuple[Any, Socket, MemoryReactorClock]:
    reactor = MemoryReactorClock()
    if turn is not None:
        reactor.turn = turn  # type: ignore[attr-defined]
    fake = Socket(*takes)
    if kind is DirectServer:
        return DirectServer(fake, Protocol(), ("::1", 1), None, 0, reactor), fake, reactor
    return DirectUnixServer(fake, Protocol(), "client", None, 0, reactor), fake, reactor


def flush(transport: Any, reactor: MemoryReactorClock) -> Any:
    """Do what the reactor does while the socket is writable; returns how the connection ended, if it did."""
    for _ in range(1000):
        if transport not in reactor.getWriters():
            return None
        end = transport.doWrite()
        if end is not None:
            return end
    raise AssertionError("writes for ever")


both = pytest.mark.parametrize("kind", [DirectServer, DirectUnixServer])


@both
def test_what_the_socket_takes_leaves_at_once(kind: type[Any]) -> None:
    transport, fake, reactor = connected(kind)
    transport.write(b"hello")
    transport.write(b"world")
    assert fake.taken == [b"hello", b"world"]
    assert reactor.getWriters() == []


@both
@pytest.mark.parametrize("takes", [0, 2, 4])
def test_the_rest_is_buffered_and_later_writes_go_behind_it(kind: type[Any], takes: int) -> None:
    transport, fake, reactor = connected(kind, takes)
    transport.write(b"hello")
    transport.write(b" world")
    transport.writeSequence([b" and", b" all"])
    assert b"".join(fake.taken) == b"hello"[:takes]
    assert reactor.getWriters() == [transport]
    assert flush(transport, reactor) is None
    assert b"".join(fake.taken) == b"hello world and all"
    transport.write(b"!")
    assert fake.taken[-1] == b"!"
    assert reactor.getWriters() == []


@both
def test_a_half_flushed_buffer_is_not_overtaken(kind: type[Any]) -> None:
    transport, fake, reactor = connected(kind, 1, 2)
    transport.write(b"hello")
    assert transport.doWrite() is None
    transport.write(b"world")
    assert fake.taken == [b"h", b"el"]
    flush(transport, reactor)
    assert b"".join(fake.taken) == b"helloworld"


@both
@pytest.mark.parametrize(
    "error", [FULL, OSError(errno.ENOBUFS, "no buffers"), InterruptedError(errno.EINTR, "again")]
)
def test_a_full_socket_is_left_to_twisted(kind: type[Any], error: OSError) -> None:
    transport, fake, reactor = connected(kind, error, FULL)
    transport.write(b"hello")
    assert fake.taken == []
    assert flush(transport, reactor) is None
    assert fake.taken == [b"hello"]


@both
@pytest.mark.parametrize("number", [errno.EPIPE, errno.ECONNRESET, errno.ETIMEDOUT])
def test_a_broken_connection_is_reported_by_twisted_and_not_raised(kind: type[Any], number: int) -> None:
    transport, fake, reactor = connected(kind, OSError(number, "gone"), OSError(number, "gone"))
    transport.write(b"hello")
    assert flush(transport, reactor) is CONNECTION_LOST
    assert fake.taken == []


def test_nothing_is_sent_in_the_clear_under_tls() -> None:
    transport, fake, _ = connected(DirectServer)
    sealed: list[bytes] = []

    class Sealing(Protocol):
        def write(self, data: bytes) -> None:
            sealed.append(data)

    transport.TLS = True
    transport.protocol = Sealing()
    transport.write(b"secret")
    assert fake.taken == []
    assert sealed == [b"secret"]


@both
def test_nothing_is_sent_after_the_end(kind: type[Any]) -> None:
    transport, fake, reactor = connected(kind)
    transport.connected = 0
    transport.write(b"lost")
    transport.connected = 1
    transport.loseWriteConnection()
    flush(transport, reactor)
    sent = list(fake.taken)
    transport.write(b"behind FIN")
    assert fake.taken == sent
    assert b"".join(sent) == b""


@both
def test_nothing_is_sent_once_the_connection_is_aborted(kind: type[Any]) -> None:
    transport, fake, _ = connected(kind)
    transport.write(b"before")
    transport.abortConnection()
    transport.write(b"after")
    assert fake.taken == [b"before"]


@both
def test_closing_waits_for_the_rest(kind: type[Any]) -> None:
    transport, fake, reactor = connected(kind, 2)
    transport.write(b"hello")
    transport.loseConnection()
    assert fake.taken == [b"he"]
    assert flush(transport, reactor) is CONNECTION_DONE
    assert b"".join(fake.taken) == b"hello"


@both
def test_a_producer_is_paused_by_a_full_buffer_and_resumed_when_it_is_empty(kind: type[Any]) -> None:
    transport, fake, reactor = connected(kind, 10, FULL)
    producer = Producer()
    transport.registerProducer(producer, True)
    transport.write(b"x" * 1000)
    assert producer.told == []
    transport.write(b"y" * transport.bufferSize)
    assert producer.told == ["pause"]
    assert flush(transport, reactor) is None
    assert producer.told == ["pause", "resume"]
    assert b"".join(fake.taken) == b"x" * 1000 + b"y" * transport.bufferSize


class Listener(Protocol):
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.given: list[bytes] = []

    def dataReceived(self, data: bytes) -> None:
        self.given.append(data)


@both
def test_what_comes_is_handed_on_until_the_peer_is_gone(kind: type[Any]) -> None:
    here, there = socket.socketpair()
    listener = Listener()
    client = "client" if kind is DirectUnixServer else ("::1", 1)
    transport = kind(here, listener, client, None, 0, MemoryReactorClock())
    assert transport.doRead() is None, "nothing has come"
    there.send(b"one")
    assert transport.doRead() is None
    there.send(b"two")
    there.close()
    assert transport.doRead() is None
    assert listener.given == [b"one", b"two"]
    assert transport.doRead() is CONNECTION_DONE
    here.close()
    assert transport.doRead() is CONNECTION_LOST


@pytest.mark.parametrize("by_fin", [True, False])
def test_whether_the_peer_has_left_is_seen_without_reading(by_fin: bool) -> None:
    transport, _, _ = connected(DirectServer)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        for leaves in ("fin", "rst"):
            peer = socket.create_connection(listening.getsockname())
            with listening.accept()[0] as ours:
                transport.socket = ours
                peer.sendall(b"x" * 1000)
                assert not transport.peer_left(by_fin)
                if leaves == "rst":
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                peer.close()
                seen = False
                for _ in range(1000):
                    seen = seen or transport.peer_left(by_fin)
                assert seen is (by_fin or leaves == "rst")


@given(
    writes=st.lists(st.binary(max_size=20) | st.none(), max_size=30),
    takes=st.lists(st.integers(0, 12) | st.just(FULL), max_size=60),
)
@settings(deadline=None)
def test_bytes_arrive_whole_and_in_order(writes: list[bytes | None], takes: list[int | OSError]) -> None:
    """None is a turn of the reactor in which the socket is writable."""
    transport, fake, reactor = connected(DirectServer, *takes)
    for data in writes:
        if data is not None:
            transport.write(data)
        elif transport in reactor.getWriters():
            assert transport.doWrite() is None
    assert flush(transport, reactor) is None
    assert b"".join(fake.taken) == b"".join(data for data in writes if data)


# --- ports


class Listening(socket.socket):
    """A socket that remembers its backlog."""

    backlog = 0

    def listen(self, backlog: int = 0) -> None:
        self.backlog = backlog


@pytest.mark.parametrize(
    ("port", "family", "transport"),
    [
        (lambda: tcp.Port(0, Factory(), reactor=MemoryReactorClock()), socket.AF_INET, DirectServer),
        (
            lambda: unix.Port("/nowhere", Factory(), reactor=MemoryReactorClock()),
            socket.AF_UNIX,
            DirectUnixServer,
        ),
    ],
    ids=["tcp", "unix"],
)
def test_listening_ports_get_our_transports_and_a_long_backlog(
    port: Any, family: int, transport: type[Any]
) -> None:
    listening = port()
    with Listening(family) as fake:
        listening.socket = fake
        use_direct_send(listening)
        assert (listening.transport, fake.backlog) == (transport, BACKLOG)


def test_peers_that_vanish_are_found_in_the_end() -> None:
    port = tcp.Port(0, Factory(), reactor=MemoryReactorClock())
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port.socket = listening
        use_direct_send(port)
        with socket.create_connection(listening.getsockname()), listening.accept()[0] as accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_ports_of_other_kinds_are_left_as_they_are() -> None:
    class Other:
        transport = "its own"

    port = Other()
    use_direct_send(port)
    assert port.transport == "its own"
