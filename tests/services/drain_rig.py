"""A rank that is to end: its drain, a reactor that is stopped, and signals."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pytest
from twisted.logger import capturedLogs

from llmdsim.services.drain import Drain
from llmdsim.services.exit_code import ExitCode
from llmdsim.services.signals import Signals
from tests.web.rig import RankRig
from tests.wire.channel import get, read_replies

PACED = ("--time-to-first-token", "1s", "--inter-token-latency", "1s", "--max-num-seqs", "1")


class Reactor:
    """What a drain needs of a reactor; what signals call waits until `turn`."""

    def __init__(self) -> None:
        self.running = True
        self.stops = 0
        self.hooks: list[Callable[[], None]] = []
        self.calls: list[Callable[[], None]] = []

    def callWhenRunning(self, hook: Callable[..., None], *arguments: Any) -> None:
        self.hooks.append(lambda: hook(*arguments))

    def callFromThread(self, function: Callable[..., None], *arguments: Any) -> None:
        self.calls.append(lambda: function(*arguments))

    def turn(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()

    def stop(self) -> None:
        assert self.running, "stopped twice"
        self.running = False
        self.stops += 1


def masked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, set[int]]]:
    """What is done to the mask of signals, which stays as it is."""
    calls: list[tuple[int, set[int]]] = []
    monkeypatch.setattr(signal, "pthread_sigmask", lambda how, numbers: calls.append((how, set(numbers))))
    return calls


class DrainRig(RankRig):
    """A rank with a drain that lasts `timeout` seconds at most, and signals that `kill` sends it.

    Without `noted`, signals are nobody's business.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *flags: str,
        timeout: float = 60.0,
        noted: tuple[str, ...] | None = (),
        crew: Any = None,
        found: Mapping[int, Any] = MappingProxyType({}),
    ) -> None:
        super().__init__(*(flags or PACED))
        self.reactor = Reactor()
        self.installed: dict[int, Any] = {}
        monkeypatch.setattr(signal, "signal", self.installed.__setitem__)
        self.masked = masked(monkeypatch)
        monkeypatch.setattr(signal, "getsignal", {signal.SIGHUP: signal.SIG_DFL, **found}.get)
        self.open = True
        self.exit_code = ExitCode()
        self.reloads = 0
        self.drain = Drain(
            [self.rank],
            timeout,
            self.clock,
            self.reactor,
            self.close_ports,
            self.exit_code,
            crew,
        )
        self.rank.context.ready = True
        self.drain.startService()
        if noted is not None:
            Signals(noted, self.reactor, self.drain.begin, self.reload).startService()
        assert self.installed == {}, "Twisted would put its own in their place"
        assert self.masked == []
        for hook in self.reactor.hooks:
            hook()

    def reload(self) -> None:
        self.reloads += 1

    def close_ports(self) -> None:
        assert self.open
        assert self.rank.engine.idle
        self.open = False

    def kill(self, number: int = signal.SIGTERM) -> None:
        with capturedLogs():
            self.installed[number](number, None)
            self.reactor.turn()

    def wait(self, seconds: float) -> None:
        with capturedLogs():
            self.clock.pump([0.125] * round(seconds * 8))

    def status(self, path: bytes) -> int:
        client = self.connect().send(get(path))
        (reply,) = read_replies(client.received, [b"GET"], ended=True)
        client.rst()
        return reply.status
