"""Long work of routes, done in steps between which everybody else has a turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from twisted.internet.defer import Deferred

from llmdsim.web.errors import shutting_down

#: Steps, each a millisecond long at most.
Steps = Iterator[None]

#: Bytes of a body above which to read it is a step of its own.
LONG_BODY = 1 << 17

#: Seconds of first steps after which those of other requests wait for a turn: many clients may send what
#: takes milliseconds to read, and the reactor would look at all of them before anything else.
MOST_FIRST = 5e-3

#: Seconds up to which a first step does not count: nearly all of them, however many clients there are.
SHORT_STEP = 2e-4


class Turns:
    """Runs one step in each turn of `clock`, an `IReactorTime`; all that have any left take turns."""

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self.seconds: Callable[[], float] = clock.seconds
        self._call: Any = None
        self._under_way: dict[Deferred[None], Steps] = {}
        #: What has not had its first step, in the order in which it came.
        self._late: dict[Deferred[None], Steps] = {}
        #: How long the longer ones among first steps took since the last turn.
        self._first = 0.0

    def take(self, steps: Steps) -> Deferred[None] | None:
        """Run the first step now, if there was not much else to do, and the others, if there are any, later.

        The Deferred fires after the last, and fails with what a step raises; cancelling it ends the work.
        Raises what the first step raises.
        """
        if self._first < MOST_FIRST and not self._late:
            started = self.seconds()
            try:
                for _ in steps:
                    waiting = self._under_way
                    break
                else:
                    return None
            finally:
                took = self.seconds() - started
                if took > SHORT_STEP:
                    self._first += took
        else:
            waiting = self._late
        done: Deferred[None] = Deferred(self._drop)
        waiting[done] = steps
        self._arm()
        return done

    @property
    def busy(self) -> bool:
        """Whether any work is under way."""
        return bool(self._under_way or self._late)

    def give_up(self) -> None:
        """End all work as the engine ends its own when the time for draining is over."""
        under_way = [*self._under_way, *self._late]
        self._under_way, self._late = {}, {}
        for done in under_way:
            done.errback(shutting_down())

    def _drop(self, done: Deferred[None]) -> None:
        del (self._under_way if done in self._under_way else self._late)[done]

    def _arm(self) -> None:
        if self._call is None and self.busy:
            self._call = self._clock.callLater(0, self._turn)

    def _turn(self) -> None:
        self._call = None
        self._first = 0.0
        while self._late and self._first < MOST_FIRST:
            started = self.seconds()
            self._step(self._late)
            self._first += self.seconds() - started
        if self._under_way:
            self._step(self._under_way)
        self._arm()

    def _step(self, waiting: dict[Deferred[None], Steps]) -> None:
        """Run a step of what has waited longest."""
        done = next(iter(waiting))
        steps = waiting.pop(done)
        try:
            next(steps)
        except StopIteration:
            done.callback(None)
        except Exception:
            done.errback()
        else:
            self._under_way[done] = steps
