"""The deadline clock: when calls run, in which passes, and what stops them."""

from __future__ import annotations

import errno
import os

import pytest
from twisted.internet.interfaces import IReactorTime, IReadDescriptor
from twisted.internet.task import LoopingCall, deferLater
from twisted.logger import LogEvent
from zope.interface.verify import verifyObject

from tests.services.clock_rig import ClockRig


def test_the_interfaces(rig: ClockRig) -> None:
    verifyObject(IReactorTime, rig.clock)
    verifyObject(IReadDescriptor, rig.clock)
    assert rig.clock.logPrefix()


# --- when calls run


def test_calls_run_in_the_order_of_their_deadlines(rig: ClockRig) -> None:
    ran: list[str] = []
    rig.clock.callLater(3.0, ran.append, "c")
    rig.clock.callLater(1.0, ran.append, "a")
    rig.clock.callLater(2.0, ran.append, "b")
    rig.go(3.0)
    assert ran == ["a", "b", "c"]


def test_calls_of_one_deadline_run_in_the_order_they_were_made(rig: ClockRig) -> None:
    ran: list[int] = []
    for index in range(20):
        rig.clock.call_at(rig.now + 1.0, ran.append, index)
    rig.go(1.0)
    assert ran == list(range(20))


def test_nothing_runs_early_and_everything_once(rig: ClockRig) -> None:
    ran: list[str] = []
    rig.clock.callLater(1.0, ran.append, "a")
    rig.go(0.999)
    assert ran == []
    rig.go(0.001)
    rig.go(10.0)
    assert ran == ["a"]


def test_arguments_are_passed_on(rig: ClockRig) -> None:
    got: list[object] = []

    def take(*args: object, **kw: object) -> None:
        got.append((args, kw))

    rig.clock.callLater(0.0, take, 1, two=2)
    rig.clock.call_at(rig.now, take, 3, four=4)
    rig.go()
    assert got == [((1,), {"two": 2}), ((3,), {"four": 4})]


def test_the_timer_is_armed_for_absolute_deadlines(rig: ClockRig) -> None:
    start = rig.now
    rig.clock.call_at(start + 2.5, lambda: None)
    assert rig.timer.armed == [start + 2.5]
    rig.now += 0.75
    rig.clock.callLater(1.0, lambda: None)
    assert rig.timer.armed == [start + 2.5, start + 1.75]


def test_the_timer_is_armed_anew_for_earlier_deadlines_only(rig: ClockRig) -> None:
    start = rig.now
    for seconds in (5.0, 6.0, 4.0, 4.5, 4.0, 3.0):
        rig.clock.callLater(seconds, lambda: None)
    assert rig.timer.armed == [start + 5.0, start + 4.0, start + 3.0]
    rig.go(3.0)
    assert rig.timer.armed[3:] == [start + 4.0]


def test_calls_made_in_a_pass_arm_the_timer_once_when_it_ends(rig: ClockRig) -> None:
    start = rig.now

    def make_three() -> None:
        for seconds in (9.0, 8.0, 7.0):
            rig.clock.callLater(seconds, lambda: None)

    rig.clock.callLater(1.0, make_three)
    rig.go(1.0)
    assert rig.timer.armed == [start + 1.0, start + 8.0]


def test_absolute_deadlines_do_not_drift(rig: ClockRig) -> None:
    ran: list[float] = []
    start = rig.now

    def again(number: int) -> None:
        ran.append(rig.now)
        if number < 100:
            rig.clock.call_at(start + (number + 1) * 0.25, again, number + 1)

    rig.clock.call_at(start, again, 0)
    while len(ran) < 101:
        rig.now = max(rig.now, rig.timer.deadline) + 0.125  # every pass is late
        rig.passes()
    assert ran == [start + number * 0.25 + 0.125 for number in range(101)]


@pytest.mark.parametrize("ago", [0.0, 1e-9, 5.0, 2000.0])
def test_a_call_in_the_past_runs_at_once(rig: ClockRig, ago: float) -> None:
    ran: list[str] = []
    rig.clock.call_at(rig.now - ago, ran.append, "a")
    assert ran == []  # but not before the reactor had a turn
    rig.go()
    assert ran == ["a"]


def test_seconds_are_monotonic_seconds(rig: ClockRig) -> None:
    assert rig.clock.seconds() == rig.now
    assert rig.clock.callLater(2.0, lambda: None).getTime() == rig.now + 2.0


# --- passes


def test_calls_made_in_a_pass_wait_for_the_next(rig: ClockRig) -> None:
    ran: list[str] = []

    def first() -> None:
        rig.clock.callLater(0.0, ran.append, "late")
        rig.clock.call_at(rig.now - 1.0, ran.append, "later still")
        ran.append("first")

    rig.clock.callLater(0.0, first)
    rig.clock.callLater(0.0, ran.append, "second")
    rig.clock.doRead()
    assert ran == ["first", "second"]
    assert rig.timer.deadline <= rig.now  # goes off at once, but after the sockets had their turn
    rig.clock.doRead()
    assert ran == ["first", "second", "later still", "late"]


def test_an_endless_chain_of_calls_is_one_call_a_pass(rig: ClockRig) -> None:
    ran = 0

    def again() -> None:
        nonlocal ran
        ran += 1
        rig.clock.callLater(0.0, again)

    again()
    for _ in range(10):
        rig.clock.doRead()
    assert ran == 11


def test_calls_that_fall_due_while_a_pass_runs_wait_for_the_next(rig: ClockRig) -> None:
    ran: list[str] = []

    def slow() -> None:
        rig.now += 5.0
        ran.append("slow")

    rig.clock.callLater(1.0, slow)
    rig.clock.callLater(2.0, ran.append, "b")
    assert rig.go(1.0) == 2
    assert ran == ["slow", "b"]


def test_a_wake_up_too_early_runs_nothing_and_loses_nothing(rig: ClockRig) -> None:
    ran: list[str] = []
    rig.clock.callLater(1.0, ran.append, "a")
    rig.now += 0.5
    rig.timer.deadline = rig.now
    rig.passes()
    assert ran == []
    rig.go(0.5)
    assert ran == ["a"]


@pytest.mark.parametrize("fault", [ValueError("no"), SystemExit(3)], ids=repr)
def test_an_exception_in_one_call_does_not_stop_others(
    rig: ClockRig, logged: list[LogEvent], fault: BaseException
) -> None:
    ran: list[str] = []

    def fail() -> None:
        raise fault

    rig.clock.callLater(1.0, ran.append, "before")
    rig.clock.callLater(1.0, fail)
    rig.clock.callLater(1.0, ran.append, "after")
    rig.clock.callLater(2.0, ran.append, "next")
    rig.go(1.0)
    assert ran == ["before", "after"]
    assert [event["log_failure"].value for event in logged] == [fault]
    rig.go(1.0)
    assert ran == ["before", "after", "next"]


def test_a_read_that_finds_nothing_is_survived(rig: ClockRig) -> None:
    # The timer of the rig never has anything to read.
    with pytest.raises(BlockingIOError):
        os.read(rig.clock.fileno(), 8)
    ran: list[str] = []
    rig.clock.callLater(1.0, ran.append, "a")
    rig.clock.doRead()
    assert ran == []
    rig.now += 1.0
    rig.clock.doRead()
    assert ran == ["a"]


# --- life


def test_calls_made_before_the_start_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = ClockRig(monkeypatch)
    ran: list[str] = []
    rig.clock.callLater(1.0, ran.append, "a")
    assert rig.timers == []  # a descriptor made now would be lost in a fork
    assert rig.clock.fileno() == -1
    rig.clock.start()
    assert rig.reactor.readers == [rig.clock]
    assert rig.clock.fileno() == rig.timer.fd
    rig.go(1.0)
    assert ran == ["a"]
    rig.close()


def test_a_second_start_changes_nothing(rig: ClockRig) -> None:
    rig.clock.start()
    assert len(rig.timers) == 1
    assert rig.reactor.readers == [rig.clock]


def test_stop_releases_the_descriptor(rig: ClockRig) -> None:
    ran: list[str] = []
    rig.clock.callLater(1.0, ran.append, "a")
    descriptor = rig.timer.fd
    rig.clock.stop()
    assert rig.reactor.readers == []
    assert rig.clock.fileno() == -1
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.fstat(descriptor)
    rig.now += 1.0
    rig.clock.doRead()  # the reactor may have had it at hand already
    assert ran == []
    rig.clock.stop()


def test_calls_outlive_stop_and_start(rig: ClockRig) -> None:
    ran: list[str] = []
    rig.clock.callLater(2.0, ran.append, "a")
    rig.clock.stop()
    rig.clock.callLater(1.0, ran.append, "b")
    rig.clock.start()
    assert len(rig.timers) == 2
    rig.step(2.0)
    assert ran == ["b", "a"]


def test_nothing_further_runs_after_a_stop_within_a_pass(rig: ClockRig) -> None:
    ran: list[str] = []
    rig.clock.callLater(1.0, rig.clock.stop)
    after = rig.clock.callLater(1.0, ran.append, "after")
    rig.go(1.0)
    assert ran == []
    assert after.active()
    rig.clock.start()
    rig.go()
    assert ran == ["after"]


def test_the_reactors_goodbye_is_taken_quietly(rig: ClockRig) -> None:
    rig.clock.connectionLost(ValueError())


# --- Twisted's own tools


def test_a_looping_call_runs_on_it(rig: ClockRig) -> None:
    start = rig.now
    ran: list[float] = []
    looping = LoopingCall(lambda: ran.append(rig.now - start))
    looping.clock = rig.clock
    looping.start(0.25, now=False)
    rig.step(1.125)
    assert ran == [0.25, 0.5, 0.75, 1.0]
    looping.stop()
    rig.step(1.0)
    assert len(ran) == 4


def test_defer_later_runs_on_it(rig: ClockRig) -> None:
    got: list[object] = []
    deferLater(rig.clock, 1.5, lambda: "a").addCallback(got.append)
    rig.step(1.25)
    assert got == []
    rig.step(0.25)
    assert got == ["a"]


def test_a_cancelled_defer_later_takes_its_call_along(rig: ClockRig) -> None:
    ran: list[str] = []
    waiting = deferLater(rig.clock, 1.5, ran.append, "a")
    waiting.addErrback(lambda failure: None)
    waiting.cancel()
    assert not rig.clock.getDelayedCalls()
    rig.step(2.0)
    assert ran == []
