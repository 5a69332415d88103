"""Long work of routes, done in steps between which everybody else has a turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.python.failure import Failure

from llmdsim.web.errors import shutting_down

#: Steps, each a millisecond long at most. One that gives a Deferred is followed by the next when that has
#: fired, whatever with; one that gives a function, when that has run in a thread; the others give None. What
#: such a function raises ends the work.
Steps = Iterator[Any]

_OVER: Any = object()

#: Bytes of a body above which to read it is a step of its own.
LONG_BODY = 1 << 17

#: Seconds of first steps after which those of other requests wait for a turn: many clients may send what
#: takes milliseconds to read, and the reactor would look at all of them before anything else.
MOST_FIRST = 5e-3

#: Seconds up to which a first step does not count: nearly all of them, however many clients there are.
SHORT_STEP = 2e-4


class Turns:
    """Runs one step in each turn of `clock`, an `IReactorTime`; all that have any left take turns."""

    def __init__(
        self, clock: Any, in_thread: Callable[[Callable[[], object]], Deferred[Any]] = deferToThread
    ) -> None:
        self.clock = clock
        self._in_thread = in_thread
        self.seconds: Callable[[], float] = clock.seconds
        self._call: Any = None
        self._under_way: dict[Deferred[None], Steps] = {}
        #: What has not had its first step, in the order in which it came.
        self._late: dict[Deferred[None], Steps] = {}
        #: What waits for something else.
        self._waiting: dict[Deferred[None], Steps] = {}
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
                awaited = next(steps, _OVER)
            finally:
                took = self.seconds() - started
                if took > SHORT_STEP:
                    self._first += took
            if awaited is _OVER:
                return None
            done: Deferred[None] = Deferred(self._drop)
            self._go_on(done, steps, awaited)
        else:
            done = Deferred(self._drop)
            self._late[done] = steps
        self._arm()
        return done

    @property
    def busy(self) -> bool:
        """Whether any work is under way."""
        return bool(self._under_way or self._late or self._waiting)

    def give_up(self) -> None:
        """End all work as the engine ends its own when the time for draining is over."""
        under_way = [*self._under_way, *self._late, *self._waiting]
        self._under_way, self._late, self._waiting = {}, {}, {}
        for done in under_way:
            done.errback(shutting_down())

    def _drop(self, done: Deferred[None]) -> None:
        for work in (self._under_way, self._late, self._waiting):
            work.pop(done, None)

    def _go_on(
        self, done: Deferred[None], steps: Steps, awaited: Deferred[Any] | Callable[[], object] | None
    ) -> None:
        """Have the next step follow, now or when `awaited` has fired, or has run."""
        if awaited is None:
            self._under_way[done] = steps
            return
        self._waiting[done] = steps
        if callable(awaited):
            self._in_thread(awaited).addCallbacks(
                self._come_back, self._fail, callbackArgs=(done,), errbackArgs=(done,)
            )
        else:
            awaited.addBoth(self._come_back, done)

    def _come_back(self, result: object, done: Deferred[None]) -> object:
        steps = self._waiting.pop(done, None)
        if steps is not None:
            self._under_way[done] = steps
            self._arm()
        return result

    def _fail(self, failure: Failure, done: Deferred[None]) -> None:
        if self._waiting.pop(done, None) is not None:
            done.errback(failure)

    def _arm(self) -> None:
        if self._call is None and (self._under_way or self._late):
            self._call = self.clock.callLater(0, self._turn)

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
            awaited = next(steps)
        except StopIteration:
            done.callback(None)
        except Exception:
            done.errback()
        else:
            self._go_on(done, steps, awaited)
