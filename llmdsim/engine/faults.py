"""Decides which requests fail, and how."""

from __future__ import annotations

from collections import OrderedDict
from random import Random
from typing import Protocol, get_args

from llmdsim.config.fault import Fault, parse_fault
from llmdsim.config.table import FailureType
from llmdsim.engine.stats import Stats

#: Keys of faults whose requests are counted; the one not asked for the longest is forgotten.
MOST_KEYS = 4096

FAILURE_TYPES: tuple[FailureType, ...] = get_args(FailureType)


class FaultSettings(Protocol):
    """The options it reads; rates are percentages."""

    @property
    def failure_injection_rate(self) -> int: ...
    @property
    def failure_types(self) -> tuple[FailureType, ...]: ...
    @property
    def faults(self) -> tuple[str, ...]: ...
    @property
    def fault_rate(self) -> float: ...
    @property
    def seed(self) -> int | None: ...


class Faults:
    """For one rank. All chance comes from a source of its own: replies are the same with and without faults.

    With a seed, the same requests in the same order meet the same faults.
    """

    def __init__(self, settings: FaultSettings, stats: Stats) -> None:
        # Not the seed as it is, from which replies and latencies draw: chance would go by what they draw.
        self._random = Random(None if settings.seed is None else f"faults {settings.seed}")
        self._stats = stats
        self._asked: OrderedDict[str, int] = OrderedDict()
        self._drawn: OrderedDict[str, int] = OrderedDict()
        self._texts: tuple[str, ...] = ()
        self._faults: list[Fault] = []
        self.configure(settings)

    def configure(self, settings: FaultSettings) -> None:
        """Follow these settings from now on, but for the seed; `times` begin anew where faults change."""
        self._failure_rate = settings.failure_injection_rate
        self._failure_types = settings.failure_types or FAILURE_TYPES
        self._fault_rate = settings.fault_rate
        if settings.faults != self._texts:
            self._texts = settings.faults
            self._faults = [parse_fault(text) for text in settings.faults]
            self._drawn.clear()
        #: Whether any request may fail that does not ask for it.
        self.by_chance = bool(self._failure_rate or (self._faults and self._fault_rate))

    def draw_failure(self) -> FailureType | None:
        """The failure this request meets by chance, if any."""
        if self._failure_rate and self._random.randint(1, 100) <= self._failure_rate:
            return self._random.choice(self._failure_types)
        return None

    def draw_fault(self) -> Fault | None:
        """The fault this request meets by chance, if any."""
        if self._faults and self._random.random() * 100.0 < self._fault_rate:
            return _due(self._random.choice(self._faults), self._drawn)
        return None

    def asked_for(self, text: str) -> Fault | None:
        """The fault a request asks for, or None once its `times` are used up. Raises as `parse_fault`."""
        return _due(parse_fault(text), self._asked)

    def count(self, kind: str) -> None:
        """Count a fault, or failure, that a client gets to see."""
        self._stats.faults[kind] += 1


def _due(fault: Fault, met: OrderedDict[str, int]) -> Fault | None:
    if fault.times is None:
        return fault
    so_far = met.pop(fault.key, 0)
    met[fault.key] = min(so_far + 1, fault.times)
    if len(met) > MOST_KEYS:
        met.popitem(last=False)
    return fault if so_far < fault.times else None
