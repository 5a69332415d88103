"""Downloads with a server that the test plays: time-outs, progress, and what stays on the disk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.python.failure import Failure
from twisted.web import client
from twisted.web.client import ResponseDone
from twisted.web.iweb import UNKNOWN_LENGTH

from llmdsim.services.download import STALL, TELL_EVERY, DownloadError, download


class Response:
    """A response whose body the test sends; it is a transport to the protocol that takes it."""

    def __init__(self, code: int = 200, length: Any = UNKNOWN_LENGTH) -> None:
        self.code = code
        self.length = length
        self.closed = False
        self.protocol: Any = None

    def deliverBody(self, protocol: Any) -> None:
        self.protocol = protocol
        protocol.makeConnection(self)

    def loseConnection(self) -> None:
        self.closed = True

    def send(self, data: bytes) -> None:
        self.protocol.dataReceived(data)

    def end(self, reason: Exception | None = None) -> None:
        self.protocol.connectionLost(Failure(reason or ResponseDone()))


class Rig:
    """One download to `target`; `outcome` is what became of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, target: Path) -> None:
        self.clock = Clock()
        self.target = target
        self.checked: list[bytes] = []
        self.answered: Deferred[Any] = Deferred()
        self.outcome: list[Any] = []
        monkeypatch.setattr(client, "Agent", lambda *_, **__: None)
        agent = SimpleNamespace(request=lambda *_: self.answered)
        monkeypatch.setattr(client, "RedirectAgent", lambda _: agent)
        self.done = Deferred.fromCoroutine(
            download("http://h/d", target, self._check, SimpleNamespace(), self.clock)
        )
        self.done.addBoth(self.outcome.append)

    def _check(self, path: Path) -> Awaitable[None]:
        self.checked.append(path.read_bytes())
        return succeed(None)

    def answer(self, response: Response) -> Response:
        self.answered.callback(response)
        return response

    @property
    def failure(self) -> str:
        (failure,) = self.outcome
        assert failure.check(DownloadError), failure
        return str(failure.value)


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Rig:
    return Rig(monkeypatch, tmp_path / "new" / "d")


def test_it_is_at_its_place_once_it_is_complete_and_found_good(rig: Rig) -> None:
    response = rig.answer(Response())
    for _ in range(3):
        response.send(b"data")
    (part,) = rig.target.parent.iterdir()
    assert part.name.startswith(".d.")
    response.end()
    assert rig.outcome == [None]
    assert rig.checked == [b"data" * 3]
    assert list(rig.target.parent.iterdir()) == [rig.target]
    assert not rig.clock.getDelayedCalls()


def never(rig: Rig) -> None:
    for _ in range(int(STALL)):
        assert not rig.outcome
        rig.clock.advance(1)


def silence(rig: Rig) -> None:
    response = rig.answer(Response())
    rig.clock.pump([1] * int(STALL - 1))
    response.send(b"x")
    rig.clock.pump([1] * int(STALL - 1))
    assert not rig.outcome
    rig.clock.pump([1] * 2)
    assert response.closed
    response.end(ConnectionError())


def refused(rig: Rig) -> None:
    rig.answered.errback(Failure(ConnectionRefusedError()))


def not_found(rig: Rig) -> None:
    rig.answer(Response(404))


def nothing(rig: Rig) -> None:
    rig.answer(Response()).end()


def cut(rig: Rig) -> None:
    response = rig.answer(Response(length=10))
    response.send(b"x")
    response.end(client.ResponseFailed([Failure(ConnectionError())]))


@pytest.mark.parametrize(
    ("play", "what"),
    [
        (never, "nothing came for 30 seconds"),
        (silence, "nothing came for 30 seconds"),
        (refused, "refused"),
        (not_found, "answers 404"),
        (nothing, "empty"),
        (cut, ""),
    ],
)
def test_whatever_goes_wrong_leaves_nothing(rig: Rig, play: Callable[[Rig], None], what: str) -> None:
    play(rig)
    assert what in rig.failure
    assert not rig.target.parent.exists()
    assert not rig.clock.getDelayedCalls()


def test_folders_that_others_use_stay(rig: Rig) -> None:
    (rig.target.parent / "theirs").write_text("x")
    not_found(rig)
    assert [path.name for path in rig.target.parent.iterdir()] == ["theirs"]


def test_a_disk_that_is_full_is_one_line(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    response = rig.answer(Response())

    def full(_: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(response.protocol, "_file", SimpleNamespace(write=full, name="f", close=lambda: None))
    response.send(b"x")
    assert rig.failure == "f: No space left on device"
    assert not rig.target.parent.exists()


def test_cancelling_ends_it_at_once(rig: Rig) -> None:
    response = rig.answer(Response())
    response.send(b"x")
    rig.done.cancel()
    assert rig.outcome[0].check(CancelledError)
    assert response.closed
    assert not rig.target.parent.exists()


def test_progress_is_told_by_time_and_by_tenths(rig: Rig) -> None:
    def told() -> list[str]:
        return [
            event["log_format"].format(**event) for event in logged if "downloaded" in event["log_format"]
        ]

    with capturedLogs() as logged:
        response = rig.answer(Response(length=100))
        response.send(b"x" * 9)
        assert told() == []
        response.send(b"x")
        assert told() == ["downloaded 10 % of 100 bytes"]
        response.send(b"x" * 55)
        response.send(b"x")
        assert told()[1:] == ["downloaded 65 % of 100 bytes"]
        rig.clock.pump([1] * int(TELL_EVERY))
        assert told()[2:] == ["downloaded 66 % of 100 bytes"]
        response.send(b"x" * 34)
        response.end()
        assert told()[3:] == ["downloaded 100 % of 100 bytes"]
