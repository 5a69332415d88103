"""A deadline clock whose time, timer and reactor are the test's own."""

from __future__ import annotations

import math
import os
import time
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.base import DelayedCall
from twisted.internet.task import Clock

from llmdsim.services import clock as clock_module
from llmdsim.services.clock import DeadlineClock


class Timer:
    """A timerfd that goes off when the rig says so; its descriptor is a pipe that holds nothing."""

    def __init__(self) -> None:
        self.fd, self._other_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.deadline = math.inf
        self.armed: list[float] = []

    def arm(self, deadline: float) -> None:
        self.deadline = deadline
        self.armed.append(deadline)

    def close(self) -> None:
        os.close(self._other_end)


class Reactor(Clock):
    """A reactor that keeps its readers and never looks at them."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: list[object] = []

    def callLater(self, delay: float, callable: Any, *args: Any, **kw: Any) -> DelayedCall:
        assert delay >= 0.0  # as Twisted's reactors insist
        return super().callLater(delay, callable, *args, **kw)

    def addReader(self, reader: object) -> None:
        self.readers.append(reader)

    def removeReader(self, reader: object) -> None:
        self.readers.remove(reader)


class ClockRig:
    """`go` moves time and lets the timer go off as the kernel would: once for each time it was armed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, timerfd: bool = True) -> None:
        self.now = 1024.0
        self.timers: list[Timer] = []
        self.reactor = Reactor()
        fake_time = SimpleNamespace(monotonic=lambda: self.now, CLOCK_MONOTONIC=time.CLOCK_MONOTONIC)
        monkeypatch.setattr(clock_module, "time", fake_time)
        monkeypatch.setattr(clock_module, "_timerfd", self._timer if timerfd else lambda: None)
        self.clock = DeadlineClock(self.reactor)

    def _timer(self) -> Timer:
        self.timers.append(Timer())
        return self.timers[-1]

    @property
    def timer(self) -> Timer:
        """The timer in use."""
        return self.timers[-1]

    def passes(self, most: int = 1000) -> int:
        """Run the passes that are due now; returns how many there were."""
        for done in range(most):
            if not self.reactor.readers or self.timer.deadline > self.now:
                return done
            self.timer.deadline = math.inf
            self.clock.doRead()
        raise AssertionError("the timer never comes to rest")

    def go(self, seconds: float = 0.0) -> int:
        """Let `seconds` pass, then run what is due, in one pass where the clock wants no more."""
        self.now += seconds
        return self.passes()

    def step(self, seconds: float) -> None:
        """Let `seconds` pass, stopping wherever the timer goes off."""
        end = self.now + seconds
        while self.timer.deadline <= end:
            self.now = max(self.now, self.timer.deadline)
            self.passes()
        self.now = end

    def close(self) -> None:
        self.clock.stop()
        for timer in self.timers:
            timer.close()
