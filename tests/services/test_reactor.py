"""The lean reactor: serves events as Twisted's does, and ends its turns."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from twisted.internet.main import CONNECTION_DONE
from twisted.logger import capturedLogs

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="epoll is Linux's")


class Reader:
    """Reads from one end of a socket pair; `result` is what `doRead` returns, or raises."""

    made: ClassVar[list[Reader]] = []

    def __init__(self, result: object = None) -> None:
        self.here, self.there = socket.socketpair()
        self.result = result
        self.reads = 0
        self.lost: list[Any] = []
        self.made.append(self)

    def fileno(self) -> int:
        return self.here.fileno()

    def logPrefix(self) -> str:
        return "reader"

    def doRead(self) -> object:
        self.reads += 1
        self.here.recv(100)
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result

    def readConnectionLost(self, reason: object) -> None:
        self.lost.append(reason)

    def connectionLost(self, reason: object) -> None:
        self.lost.append(reason)

    def close(self) -> None:
        self.here.close()
        self.there.close()


@pytest.fixture
def reactor() -> Iterator[Any]:
    from llmdsim.services.reactor import LeanEPollReactor

    made = LeanEPollReactor()
    yield made
    made.removeAll()
    for reader in Reader.made:
        reader.close()
    Reader.made.clear()
    for waker in list(made._internalReaders):
        waker.connectionLost(None)


def test_readers_are_read(reactor: Any) -> None:
    readers = [Reader() for _ in range(3)]
    for reader in readers:
        reactor.addReader(reader)
        reader.there.send(b"x")
    reactor.doIteration(1)
    assert [reader.reads for reader in readers] == [1, 1, 1]


def test_an_end_disconnects(reactor: Any) -> None:
    reader = Reader(CONNECTION_DONE)
    reactor.addReader(reader)
    reader.there.send(b"x")
    reactor.doIteration(1)
    assert len(reader.lost) == 1
    assert reader not in reactor.getReaders()


@pytest.mark.parametrize("fault", [ValueError("on purpose"), SystemExit(3)])
def test_a_fault_disconnects_its_reader_alone_and_is_logged(reactor: Any, fault: BaseException) -> None:
    bad, good = Reader(fault), Reader()
    for reader in (bad, good):
        reactor.addReader(reader)
        reader.there.send(b"x")
    with capturedLogs() as events:
        reactor.doIteration(1)
    assert (good.reads, len(bad.lost), len(events)) == (1, 1, 1)
    assert reactor.getReaders().count(good) == 1
    assert bad not in reactor.getReaders()


def test_one_removed_by_another_in_the_same_turn_is_not_read(reactor: Any) -> None:
    first, second = Reader(), Reader()

    def remove_the_other(reader: Reader, other: Reader) -> None:
        real = reader.doRead

        def do_read() -> object:
            reactor.removeReader(other)
            return real()

        reader.doRead = do_read  # type: ignore[method-assign]

    remove_the_other(first, second)
    remove_the_other(second, first)
    for reader in (first, second):
        reactor.addReader(reader)
        reader.there.send(b"x")
    reactor.doIteration(1)
    assert first.reads + second.reads == 1


def test_a_hang_up_is_told(reactor: Any) -> None:
    reader = Reader()
    reactor.addReader(reader)
    reader.there.close()
    reactor.doIteration(1)
    assert reader.reads == 1 or reader.lost


class Waiting:
    """Counts its flushes, as a transport that has something to send."""

    def __init__(self) -> None:
        self.flushes = 0

    def flush(self) -> None:
        self.flushes += 1


def test_what_was_left_to_send_goes_before_the_reactor_waits(reactor: Any) -> None:
    waiting = Waiting()
    reactor.turn.add(waiting)
    reactor.doIteration(0)
    reactor.doIteration(0)
    assert waiting.flushes == 1


def test_what_threads_and_timers_leave_to_send_goes_before_the_reactor_waits(reactor: Any) -> None:
    waiting = Waiting()
    seen: list[int] = []
    reactor.callFromThread(reactor.turn.add, waiting)
    reactor.callLater(0, lambda: None)
    poll = reactor._poller.poll

    class Poller:
        def poll(self, *args: Any) -> Any:
            seen.append(waiting.flushes)
            return poll(0)

    reactor._poller = Poller()
    reactor.runUntilCurrent()
    reactor.doIteration(0)
    assert seen == [1]


def test_another_twisted_gets_its_own_reactor() -> None:
    program = (
        "from llmdsim.services import reactor as ours; ours.PRIVATE += ('_gone',); ours.install();"
        "from twisted.internet import reactor; print(type(reactor).__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.strip() == "EPollReactor"


def test_it_is_installed_only_where_there_is_none() -> None:
    program = (
        "import sys; from llmdsim.services.reactor import install; {}install();"
        "from twisted.internet import reactor; print(type(reactor).__name__)"
    )
    names = [
        subprocess.run(
            [sys.executable, "-c", program.format(first)],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        ).stdout.strip()
        for first in ("", "import twisted.internet.selectreactor as s; s.install();")
    ]
    assert names == ["LeanEPollReactor", "SelectReactor"]
