"""Gauges that are numbers, or functions of time which are computed again and again."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from llmdsim.config import MetricFunction, parse_function
from llmdsim.metrics.scripted.functions import value_at

log = Logger()

#: Seconds; functions are not computed more often. Nobody scrapes faster, and one microsecond, which the peer
#: lets through, would take the whole core.
SHORTEST = 0.001


class Gauge:
    """`value` is a number, or that of a function since `began`; counts (`whole`) are cut toward zero."""

    __slots__ = ("_function", "_whole", "began", "value")

    def __init__(self, given: float | str, whole: bool, now: float) -> None:
        self._function: MetricFunction | None = None
        self._whole = whole
        self.began = now
        if isinstance(given, str):
            self._function = parse_function(given)
            self.compute(now)
        else:
            self.value = given

    @property
    def moves(self) -> bool:
        """Whether it is a function."""
        return self._function is not None

    def compute(self, now: float) -> None:
        """Bring a function's value up to date."""
        if self._function is not None:
            value = value_at(self._function, now - self.began)
            self.value = float(math.trunc(value)) if self._whole else value


class Gauges:
    """Gauges by name. Once started, functions are computed every `interval` seconds of `clock`.

    Each has its own time, which begins when it is put here, or with `start`, if that comes later.
    """

    def __init__(self, clock: Any, interval: float) -> None:
        self._clock = clock
        self._interval = max(interval, SHORTEST)
        self._gauges: dict[str, Gauge] = {}
        self._started = False
        self._call = LoopingCall(self._compute)
        self._call.clock = clock

    def put(self, name: str, given: float | str | None, whole: bool) -> None:
        """Have `name` be a number or a function; None takes it away."""
        if given is None:
            self._gauges.pop(name, None)
        else:
            self._gauges[name] = Gauge(given, whole, self._clock.seconds())
        self._run()

    def reader(self, name: str) -> Callable[[], float]:
        """What reads the value until the gauge is put anew."""
        return partial(getattr, self._gauges[name], "value")

    def value(self, name: str) -> float | None:
        """The value now, or None where there is no such gauge."""
        gauge = self._gauges.get(name)
        return None if gauge is None else gauge.value

    def start(self) -> None:
        """Let functions move."""
        self._started = True
        now = self._clock.seconds()
        for gauge in self._gauges.values():
            gauge.began = now
        self._run()

    def stop(self) -> None:
        """Let all stand as they are."""
        self._started = False
        self._run()

    def _run(self) -> None:
        """Have the call run while there is something to compute, and only then."""
        wanted = self._started and any(gauge.moves for gauge in self._gauges.values())
        if wanted and not self._call.running:
            self._call.start(self._interval, now=False).addErrback(
                lambda failure: log.failure("functions of metrics stand still", failure)
            )
        elif not wanted and self._call.running:
            self._call.stop()

    def _compute(self) -> None:
        now = self._clock.seconds()
        for gauge in self._gauges.values():
            gauge.compute(now)
