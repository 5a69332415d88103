"""Gauges that move: when functions are computed, by whose time, and when nothing is."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from llmdsim.metrics.scripted.gauges import SHORTEST, Gauges

#: Whole in binary, so that calls come when they are due exactly.
TICK = 0.125


def running(interval: float = TICK, **given: float | str) -> tuple[Gauges, Clock]:
    clock = Clock()
    gauges = Gauges(clock, interval)
    for name, value in given.items():
        gauges.put(name, value, whole=name != "usage")
    gauges.start()
    return gauges, clock


def test_functions_are_computed_at_each_interval_and_not_between() -> None:
    gauges, clock = running(running="ramp:0:80:1s")
    seen = []
    for _ in range(20):
        clock.advance(TICK / 2)
        seen.append(gauges.value("running"))
    assert seen == [0, 10, 10, 20, 20, 30, 30, 40, 40, 50, 50, 60, 60, 70, 70, 80, 80, 80, 80, 80]


def test_the_first_value_is_that_of_the_beginning() -> None:
    gauges, _ = running(running="oscillate:0:11:1s", usage="oscillate:0:0.5:1s", waiting="squarewave:3:4:1s")
    assert [gauges.value(name) for name in ("running", "usage", "waiting")] == [5, 0.25, 3]


def test_counts_are_cut_and_the_usage_is_not() -> None:
    gauges, clock = running(running="ramp:0:2:1s", usage="ramp:0:2:1s", waiting=2.5)
    clock.advance(7 * TICK)
    assert gauges.value("running") == 1
    assert gauges.value("usage") == 1.75
    assert gauges.value("waiting") == 2.5, "a number is shown as it was given"


def test_each_function_has_its_own_time() -> None:
    gauges, clock = running(running="ramp:0:100:10s")
    clock.advance(5)
    gauges.put("waiting", "ramp:0:100:10s", whole=True)
    assert gauges.value("waiting") == 0
    clock.advance(5)
    assert (gauges.value("running"), gauges.value("waiting")) == (100, 50)
    gauges.put("running", "ramp:100:0:10s", whole=True)
    clock.advance(5)
    assert (gauges.value("running"), gauges.value("waiting")) == (50, 100)


def test_time_begins_with_the_start() -> None:
    clock = Clock()
    gauges = Gauges(clock, TICK)
    gauges.put("running", "ramp:0:100:10s", whole=True)
    clock.advance(5)
    assert gauges.value("running") == 0
    assert not clock.calls
    gauges.start()
    clock.advance(1)
    assert gauges.value("running") == 10


def test_the_call_runs_while_there_is_a_function_and_only_then() -> None:
    gauges, clock = running(running=1)
    assert not clock.calls
    gauges.put("waiting", "ramp:0:100:10s", whole=True)
    gauges.put("usage", "ramp:0:1:10s", whole=False)
    assert len(clock.calls) == 1
    gauges.put("waiting", 3, whole=True)
    assert len(clock.calls) == 1
    gauges.put("usage", None, whole=False)
    assert not clock.calls
    assert (gauges.value("waiting"), gauges.value("usage")) == (3, None)
    gauges.put("usage", "ramp:0:1:10s", whole=False)
    clock.advance(5)
    assert gauges.value("usage") == 0.5
    gauges.stop()
    assert not clock.calls
    assert gauges.value("usage") == 0.5


def test_a_reader_follows_its_gauge() -> None:
    gauges, clock = running(running="squarewave:1:2:1s")
    read = gauges.reader("running")
    assert read() == 1
    clock.advance(0.5)
    assert read() == 2


@pytest.mark.parametrize("interval", [1e-6, SHORTEST])
def test_the_shortest_interval_is_a_millisecond(interval: float) -> None:
    _, clock = running(interval, running="ramp:0:100:10s")
    calls = 0
    for _ in range(5000):
        before = clock.calls[0]
        clock.advance(1e-5)
        calls += clock.calls[0] is not before
    assert calls == pytest.approx(50, abs=1)


def test_a_clock_that_stood_still_costs_one_call() -> None:
    gauges, clock = running(running="ramp:0:1000:1000s")
    clock.advance(500)
    assert gauges.value("running") == 500
    assert len(clock.calls) == 1
