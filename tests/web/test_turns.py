"""Long work in steps, one in each turn of a clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from llmdsim.web.turns import MOST_FIRST, Turns
from tests.web.rig import PassClock


def work(clock: PassClock, told: list[str], name: str, steps: int, seconds: float = 0.0) -> Iterator[None]:
    for step in range(steps):
        clock.rightNow += seconds
        told.append(f"{name}{step}")
        if step < steps - 1:
            yield


def test_first_steps_run_at_once_and_the_others_by_turns() -> None:
    clock, told = PassClock(), list[str]()
    turns = Turns(clock)
    assert turns.take(work(clock, told, "a", 1)) is None
    first, second = (turns.take(work(clock, told, name, 2)) for name in "bc")
    assert first is not None
    assert second is not None
    assert told == ["a0", "b0", "c0"]
    clock.advance(0)
    assert told[3:] == ["b1"]
    clock.advance(0)
    assert told[3:] == ["b1", "c1"]
    assert not turns.busy


def test_first_steps_that_take_long_have_those_of_others_wait() -> None:
    clock, told = PassClock(), list[str]()
    turns = Turns(clock)
    assert turns.take(work(clock, told, "a", 1, 2 * MOST_FIRST)) is None
    waiting = [turns.take(work(clock, told, name, 1, 2 * MOST_FIRST)) for name in "bc"]
    assert told == ["a0"]
    clock.advance(0)
    assert told == ["a0", "b0"]
    # Not before those that came earlier.
    last = turns.take(work(clock, told, "d", 1))
    clock.advance(0)
    assert told == ["a0", "b0", "c0"]
    clock.advance(0)
    assert told == ["a0", "b0", "c0", "d0"]
    assert last is not None
    assert last.called
    assert all(done is not None and done.called for done in waiting)
    assert turns.take(work(clock, told, "e", 1)) is None


def test_what_waits_for_its_first_step_can_be_cancelled() -> None:
    clock, told = PassClock(), list[str]()
    turns = Turns(clock)
    turns.take(work(clock, told, "a", 1, 2 * MOST_FIRST))
    waiting = turns.take(work(clock, told, "b", 1))
    assert waiting is not None
    waiting.addErrback(lambda _: None)
    waiting.cancel()
    clock.advance(0)
    assert told == ["a0"]
    assert not turns.busy


def waiting(told: list[str], awaited: Deferred[Any]) -> Iterator[Any]:
    told.append("before")
    yield awaited
    told.append("after")


def test_a_step_that_gives_a_deferred_is_followed_when_that_has_fired() -> None:
    clock, told = PassClock(), list[str]()
    turns = Turns(clock)
    awaited: Deferred[int] = Deferred()
    done = turns.take(waiting(told, awaited))
    assert done is not None
    # Others have their turns meanwhile, and nobody looks again and again.
    turns.take(work(clock, told, "a", 2))
    clock.advance(0)
    assert told == ["before", "a0", "a1"]
    assert turns.busy
    assert not clock.getDelayedCalls()
    awaited.callback(7)
    assert told[3:] == []
    clock.advance(0)
    assert told[3:] == ["after"]
    assert done.called
    assert not turns.busy
    assert awaited.result == 7


def test_so_it_is_when_that_fails() -> None:
    clock, told = PassClock(), list[str]()
    turns = Turns(clock)
    awaited: Deferred[int] = Deferred()
    turns.take(waiting(told, awaited))
    awaited.errback(Failure(ValueError()))
    clock.advance(0)
    assert told == ["before", "after"]
    awaited.addErrback(lambda failure: failure.trap(ValueError))


def test_work_that_waits_can_be_cancelled_and_given_up() -> None:
    clock, told = PassClock(), list[str]()
    turns = Turns(clock)
    first, second = Deferred[int](), Deferred[int]()
    cancelled, given_up = (turns.take(waiting(told, awaited)) for awaited in (first, second))
    assert cancelled is not None
    assert given_up is not None
    outcomes: list[Any] = []
    cancelled.addErrback(outcomes.append)
    given_up.addErrback(outcomes.append)
    cancelled.cancel()
    turns.give_up()
    assert not turns.busy
    first.callback(1)
    second.callback(1)
    clock.advance(0)
    assert told == ["before", "before"]
    assert outcomes[0].check(CancelledError)
    assert outcomes[1].value.status == 503


def threads() -> tuple[list[tuple[Callable[[], object], Deferred[Any]]], Callable[..., Deferred[Any]]]:
    """What was given to threads, and what gives it."""
    given: list[tuple[Callable[[], object], Deferred[Any]]] = []

    def in_thread(function: Callable[[], object]) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        given.append((function, done))
        return done

    return given, in_thread


def test_a_step_may_give_a_function_to_be_run_in_a_thread() -> None:
    clock, told = PassClock(), list[str]()
    given, in_thread = threads()
    turns = Turns(clock, in_thread)

    def steps() -> Iterator[Any]:
        told.append("before")
        yield lambda: told.append("in a thread")
        told.append("after")

    done = turns.take(steps())
    assert done is not None
    clock.advance(0)
    assert told == ["before"]
    assert turns.busy
    ((function, ran),) = given
    ran.callback(function())
    clock.advance(0)
    assert told == ["before", "in a thread", "after"]
    assert done.called
    assert not turns.busy


def test_what_a_function_in_a_thread_raises_ends_the_work() -> None:
    clock, failures = PassClock(), list[Failure]()
    given, in_thread = threads()
    turns = Turns(clock, in_thread)

    def steps() -> Iterator[Any]:
        yield lambda: None
        raise AssertionError("not reached")

    done = turns.take(steps())
    assert done is not None
    done.addErrback(failures.append)
    given[0][1].errback(ValueError("in a thread"))
    clock.advance(0)
    assert [failure.type for failure in failures] == [ValueError]
    assert not turns.busy


def test_work_that_was_cancelled_does_not_go_on_when_its_function_has_run() -> None:
    clock, told = PassClock(), list[str]()
    given, in_thread = threads()
    turns = Turns(clock, in_thread)

    def steps() -> Iterator[Any]:
        yield lambda: None
        told.append("went on")

    done = turns.take(steps())
    assert done is not None
    done.addErrback(lambda failure: failure.trap(CancelledError))
    done.cancel()
    given[0][1].errback(ValueError("nobody cares"))
    clock.advance(0)
    assert told == []
