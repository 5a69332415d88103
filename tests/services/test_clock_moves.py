"""Calls of the deadline clock that are cancelled, put off or brought forward."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.error import AlreadyCalled, AlreadyCancelled

from tests.services.clock_rig import ClockRig


def test_a_cancelled_call_does_not_run(rig: ClockRig) -> None:
    ran: list[str] = []
    call = rig.clock.callLater(1.0, ran.append, "a")
    rig.clock.callLater(1.0, ran.append, "b")
    call.cancel()
    assert not call.active()
    rig.go(1.0)
    assert ran == ["b"]
    with pytest.raises(AlreadyCancelled):
        call.cancel()


def test_a_call_that_ran_cannot_be_cancelled(rig: ClockRig) -> None:
    call = rig.clock.callLater(1.0, lambda: None)
    rig.go(1.0)
    assert not call.active()
    with pytest.raises(AlreadyCalled):
        call.cancel()


def test_a_call_is_no_longer_active_while_it_runs(rig: ClockRig) -> None:
    found: list[bool] = []
    call = rig.clock.callLater(1.0, lambda: found.append(call.active()))
    rig.go(1.0)
    assert found == [False]


def test_cancelling_the_earliest_leaves_the_others(rig: ClockRig) -> None:
    ran: list[str] = []
    first = rig.clock.callLater(1.0, ran.append, "a")
    rig.clock.callLater(2.0, ran.append, "b")
    first.cancel()
    rig.clock.callLater(3.0, ran.append, "c")
    rig.step(2.0)
    assert ran == ["b"]
    rig.step(1.0)
    assert ran == ["b", "c"]


def test_a_call_may_cancel_another_of_the_same_pass(rig: ClockRig) -> None:
    ran: list[str] = []

    def cancel() -> None:
        victim.cancel()

    rig.clock.callLater(1.0, cancel)
    victim = rig.clock.callLater(1.0, ran.append, "victim")
    rig.clock.callLater(1.0, ran.append, "other")
    rig.go(1.0)
    assert ran == ["other"]


@pytest.mark.parametrize("how", ["reset", "delay"])
def test_a_call_may_be_put_off(rig: ClockRig, how: str) -> None:
    ran: list[str] = []
    call = rig.clock.callLater(1.0, ran.append, "a")
    if how == "reset":
        rig.now += 0.5
        call.reset(2.5)
    else:
        call.delay(2.0)
    rig.clock.callLater(0.75, ran.append, "b")
    rig.step(2.25)
    assert ran == ["b"]
    rig.step(0.75)
    assert ran == ["b", "a"]


@pytest.mark.parametrize("how", ["reset", "delay"])
def test_a_call_may_be_brought_forward(rig: ClockRig, how: str) -> None:
    ran: list[str] = []
    call = rig.clock.callLater(10.0, ran.append, "a")
    if how == "reset":
        call.reset(1.0)
    else:
        call.delay(-9.0)
    rig.step(1.0)
    assert ran == ["a"]
    rig.step(20.0)
    assert ran == ["a"]


@pytest.mark.parametrize("how", ["reset", "delay"])
def test_a_call_put_off_may_be_brought_forward_again(rig: ClockRig, how: str) -> None:
    # Twisted's DelayedCall says nothing when it moves to a time after the one it had at first.
    ran: list[float] = []
    start = rig.now
    call = rig.clock.callLater(1.0, lambda: ran.append(rig.now - start))
    call.delay(9.0)
    rig.step(2.0)  # its first time is over, and the clock knows that it comes later
    if how == "reset":
        call.reset(3.0)
    else:
        call.delay(-5.0)
    rig.step(20.0)
    assert ran == [5.0]


@pytest.mark.parametrize("how", ["reset", "delay"])
def test_a_call_may_put_off_another_of_the_same_pass(rig: ClockRig, how: str) -> None:
    # As an idle time-out is by a token that leaves in the same pass.
    ran: list[str] = []

    def put_off() -> None:
        getattr(other, how)(5.0)

    rig.clock.callLater(1.0, put_off)
    other = rig.clock.callLater(1.0, ran.append, "other")
    rig.go(1.0)
    assert ran == []
    assert other.active()
    rig.step(5.0)
    assert ran == ["other"]


def test_to_and_fro(rig: ClockRig) -> None:
    ran: list[float] = []
    start = rig.now
    call = rig.clock.callLater(10.0, lambda: ran.append(rig.now - start))
    for seconds in (5.0, 12.0, 3.0, 12.0):
        call.reset(seconds)
    rig.step(30.0)
    assert ran == [12.0]


def test_the_delayed_calls(rig: ClockRig) -> None:
    calls = [rig.clock.callLater(seconds, lambda: None) for seconds in (1.0, 2.0, 3.0)]
    assert set(rig.clock.getDelayedCalls()) == set(calls)
    calls[1].cancel()
    rig.go(1.0)
    assert list(rig.clock.getDelayedCalls()) == [calls[2]]
    calls[2].reset(0.5)
    assert list(rig.clock.getDelayedCalls()) == [calls[2]]
    for call in rig.clock.getDelayedCalls():
        call.cancel()
    assert not rig.clock.getDelayedCalls()


def test_cancelled_calls_do_not_pile_up(rig: ClockRig) -> None:
    # The one in front keeps the others from being met while looking for the earliest.
    kept = rig.clock.callLater(60.0, lambda: None)
    alive = most = 0

    def died() -> None:
        nonlocal alive
        alive -= 1

    for _ in range(20_000):
        call = rig.clock.callLater(3600.0, lambda: None)
        weakref.finalize(call, died)
        alive += 1
        call.cancel()
        del call
        most = max(most, alive)
    assert kept.active()
    assert most < 1000


operations = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 40)),
        st.tuples(st.just("cancel"), st.integers(0, 9)),
        st.tuples(st.just("reset"), st.integers(0, 9), st.integers(0, 40)),
        st.tuples(st.just("delay"), st.integers(0, 9), st.integers(-20, 20)),
        st.tuples(st.just("step"), st.integers(0, 30)),
        st.tuples(st.just("add in a call"), st.integers(0, 40), st.integers(0, 40)),
        st.tuples(st.just("reset in a call"), st.integers(0, 40), st.integers(0, 9), st.integers(0, 40)),
        st.tuples(st.just("cancel in a call"), st.integers(0, 40), st.integers(0, 9)),
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(operations)
def test_every_call_runs_once_at_its_time(plan: list[tuple[str, int]]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        rig = ClockRig(monkeypatch)
        rig.clock.start()
        try:
            _play(rig, plan)
        finally:
            rig.close()


def _play(rig: ClockRig, plan: list[tuple[str, int]]) -> None:
    unit = 1 / 8
    calls: list[Any] = []
    due: dict[int, float] = {}  # of those still to run
    wrong: list[int] = []  # those that ran twice or at another time

    def ran(number: int, deed: Callable[[], None] | None) -> None:
        # Noted, not asserted: the clock takes what calls raise. Time stops at each deadline: nothing is late.
        if due.pop(number, None) != rig.now:
            wrong.append(number)
        if deed is not None:
            deed()

    def add(delay: int, deed: Callable[[], None] | None = None) -> None:
        due[len(calls)] = rig.now + delay * unit
        calls.append(rig.clock.callLater(delay * unit, ran, len(calls), deed))

    def change(operation: str, number: int, *by: int) -> None:
        if number not in due:
            return
        call = calls[number]
        if operation == "cancel":
            del due[number]
            call.cancel()
        elif operation == "reset":
            due[number] = rig.now + by[0] * unit
            call.reset(by[0] * unit)
        else:
            due[number] = max(rig.now, due[number] + by[0] * unit)
            call.delay(due[number] - call.getTime())

    for operation, *values in plan:
        if operation == "add":
            add(*values)
        elif operation == "step":
            rig.step(values[0] * unit)
            assert not any(deadline <= rig.now for deadline in due.values())
        elif operation == "add in a call":
            add(values[0], lambda values=values: add(values[1]))
        elif operation.endswith("in a call"):
            add(
                values[0],
                lambda operation=operation, values=values: change(operation.split()[0], *values[1:]),
            )
        else:
            change(operation, *values)
    assert len(rig.clock.getDelayedCalls()) == len(due)
    rig.step(1000 * unit)
    assert due == {}
    assert wrong == []
