"""What wakes the deadline clock: the kernel's timers, or the reactor where there are none."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from llmdsim.services import clock as clock_module
from llmdsim.services.clock import DeadlineClock
from tests.services.clock_rig import ClockRig, Reactor

# --- without a timerfd


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[ClockRig]:
    rig = ClockRig(monkeypatch, timerfd=False)
    rig.clock.start()
    yield rig
    rig.close()


def both_go(rig: ClockRig, seconds: float) -> None:
    """Let time pass for the clock and for the reactor that wakes it."""
    rig.now += seconds
    rig.reactor.advance(seconds)


def test_the_reactor_wakes_the_clock_where_there_is_no_timerfd(plain: ClockRig) -> None:
    ran: list[str] = []
    plain.clock.callLater(2.0, ran.append, "b")
    plain.clock.callLater(1.0, ran.append, "a")
    assert plain.reactor.readers == []
    assert plain.clock.fileno() == -1
    both_go(plain, 1.0)
    assert ran == ["a"]
    both_go(plain, 1.0)
    assert ran == ["a", "b"]
    assert plain.reactor.getDelayedCalls() == []


def test_one_call_of_the_reactor_is_enough(plain: ClockRig) -> None:
    for seconds in (3.0, 1.0, 2.0):
        plain.clock.callLater(seconds, lambda: None)
    (call,) = plain.reactor.getDelayedCalls()
    assert call.getTime() == plain.reactor.seconds() + 1.0


def test_a_reactor_that_wakes_the_clock_early_is_asked_again(plain: ClockRig) -> None:
    ran: list[str] = []
    plain.clock.callLater(1.0, ran.append, "a")
    plain.now += 0.5
    plain.reactor.advance(1.0)
    assert ran == []
    both_go(plain, 0.5)
    assert ran == ["a"]


def test_stop_takes_the_call_of_the_reactor_along(plain: ClockRig) -> None:
    ran: list[str] = []
    plain.clock.callLater(1.0, ran.append, "a")
    plain.clock.stop()
    assert plain.reactor.getDelayedCalls() == []
    plain.clock.start()
    both_go(plain, 1.0)
    assert ran == ["a"]


def test_a_past_deadline_asks_the_reactor_for_no_negative_time(plain: ClockRig) -> None:
    ran: list[str] = []
    plain.clock.call_at(plain.now - 5.0, ran.append, "a")
    assert ran == []
    both_go(plain, 0.0)
    assert ran == ["a"]


@pytest.mark.parametrize(("platform", "there"), [("linux", True), ("darwin", False), ("freebsd14", False)])
def test_where_there_is_a_timerfd(monkeypatch: pytest.MonkeyPatch, platform: str, there: bool) -> None:
    monkeypatch.setattr(clock_module.sys, "platform", platform)
    monkeypatch.setattr(clock_module, "_CtypesTimerfd", lambda: "ctypes")
    monkeypatch.setattr(clock_module, "_StandardTimerfd", lambda: "standard")
    monkeypatch.delattr(os, "timerfd_create", raising=False)
    assert clock_module._timerfd() == ("ctypes" if there else None)
    monkeypatch.setattr(os, "timerfd_create", None, raising=False)
    assert clock_module._timerfd() == ("standard" if there else None)


# --- the kernel's timers


def _standard_through_ctypes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give an older Python the two functions of 3.13, with their signatures."""
    timers: dict[int, clock_module._CtypesTimerfd] = {}

    def timerfd_create(clockid: int, /, *, flags: int = os.O_CLOEXEC) -> int:
        assert (clockid, flags) == (time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        timer = clock_module._CtypesTimerfd()
        timers[timer.fd] = timer
        return timer.fd

    def timerfd_settime(
        fd: int, /, *, flags: int = 0, initial: float = 0.0, interval: float = 0.0
    ) -> tuple[float, float]:
        assert (flags, interval) == (1, 0.0)
        assert initial > 0.0  # zero would disarm it, less is refused
        timers[fd].arm(initial)
        return (0.0, 0.0)

    monkeypatch.setattr(os, "timerfd_create", timerfd_create, raising=False)
    monkeypatch.setattr(os, "timerfd_settime", timerfd_settime, raising=False)


@pytest.fixture(params=["ctypes", "standard"])
def real(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[DeadlineClock]:
    if not sys.platform.startswith("linux"):
        pytest.skip("timerfd is of Linux")
    if request.param == "ctypes":
        monkeypatch.delattr(os, "timerfd_create", raising=False)
    elif not hasattr(os, "timerfd_create"):
        _standard_through_ctypes(monkeypatch)
    clock = DeadlineClock(Reactor())
    clock.start()
    yield clock
    clock.stop()


def fire(clock: DeadlineClock, within: float = 2.0) -> bool:
    """Wait until the timer goes off, and make the pass; False when it does not."""
    readable, _, _ = select.select([clock], [], [], within)
    if readable:
        clock.doRead()
    return bool(readable)


def test_the_kernels_timer_goes_off_in_time(real: DeadlineClock) -> None:
    ran: list[float] = []
    start = real.seconds()
    for seconds in (0.0102, 0.0101, 0.0005):
        real.call_at(start + seconds, lambda seconds=seconds: ran.append(real.seconds() - start - seconds))
    while len(ran) < 3:
        assert fire(real)
    assert min(ran) >= 0.0
    assert max(ran) < 0.5


@pytest.mark.parametrize("deadline", [-5.5, -0.25, 0.0, 1e-12, 1.0])
def test_the_kernels_timer_goes_off_for_what_is_past(real: DeadlineClock, deadline: float) -> None:
    ran: list[str] = []
    real.call_at(deadline, ran.append, "a")
    assert fire(real)
    assert ran == ["a"]


def test_the_kernels_timer_is_quiet_after_it_went_off(real: DeadlineClock) -> None:
    real.callLater(0.0, lambda: None)
    assert fire(real)
    assert not fire(real, within=0.0)


def test_the_kernels_timer_can_be_brought_forward(real: DeadlineClock) -> None:
    ran: list[str] = []
    real.callLater(3600.0, ran.append, "late")
    real.callLater(0.001, ran.append, "early")
    assert fire(real)
    assert ran == ["early"]
    assert not fire(real, within=0.0)


def test_a_deadline_of_a_whole_second_arms_the_kernels_timer(real: DeadlineClock) -> None:
    ran: list[str] = []
    real.call_at(float(int(real.seconds())), ran.append, "a")
    assert fire(real)
    assert ran == ["a"]


def test_the_kernels_timer_does_not_block_and_is_closed_on_exec(real: DeadlineClock) -> None:
    assert not os.get_blocking(real.fileno())
    assert not os.get_inheritable(real.fileno())


@pytest.fixture
def epoll() -> Iterator[Any]:
    """A reactor of one's own, to be iterated by hand."""
    if not sys.platform.startswith("linux"):
        pytest.skip("epoll is of Linux")
    from twisted.internet.epollreactor import EPollReactor

    reactor = EPollReactor()
    yield reactor
    for reader in [*reactor.removeAll(), *reactor._internalReaders]:
        reader.connectionLost(None)
    reactor._poller.close()


@pytest.mark.parametrize("fault", [ValueError("no"), SystemExit(3)], ids=repr)
def test_a_reactor_keeps_the_clock_whatever_calls_do(epoll: Any, fault: BaseException) -> None:
    clock = DeadlineClock(epoll)
    ran: list[str] = []

    def fail() -> None:
        raise fault

    clock.start()
    clock.callLater(0.0, fail)
    clock.callLater(0.0005, ran.append, "a")
    clock.callLater(0.001, ran.append, "b")
    iterate(epoll, lambda: len(ran) == 2)
    assert ran == ["a", "b"]
    clock.stop()


def test_a_clock_may_stop_in_a_call_under_a_reactor(epoll: Any) -> None:
    clock = DeadlineClock(epoll)
    ran: list[str] = []
    clock.start()
    clock.callLater(0.0, clock.stop)
    iterate(epoll, lambda: clock.fileno() == -1)
    assert clock not in epoll.getReaders()
    clock.start()
    clock.callLater(0.0, ran.append, "a")
    iterate(epoll, lambda: bool(ran))
    assert ran == ["a"]
    clock.stop()


def iterate(reactor: Any, done: Callable[[], bool]) -> None:
    """Iterate until `done`, two seconds at most."""
    give_up = time.monotonic() + 2.0
    while not done() and time.monotonic() < give_up:
        reactor.doIteration(0.1)
