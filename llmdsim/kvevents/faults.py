"""Decides which batches of events go wrong, and how."""

from __future__ import annotations

from random import Random
from typing import Protocol

from llmdsim.config.event_fault import EventFault, parse_event_fault
from llmdsim.kvevents.counts import EventCounts


class EventFaultSettings(Protocol):
    """The options it reads; the rate is a percentage."""

    @property
    def kv_event_faults(self) -> tuple[str, ...]: ...
    @property
    def kv_event_fault_rate(self) -> float: ...
    @property
    def seed(self) -> int | None: ...


class EventFaults:
    """For one rank. With a seed, the same batches in the same order meet the same faults."""

    def __init__(self, settings: EventFaultSettings, counts: EventCounts) -> None:
        # Its own source, so that replies are the same with and without faults.
        self._random = Random(None if settings.seed is None else f"kv events {settings.seed}")
        self._texts: tuple[str, ...] = ()
        self._faults: list[EventFault] = []
        self._met: list[int] = []
        self._counts = counts.faults
        self.configure(settings)

    def configure(self, settings: EventFaultSettings) -> None:
        """Follow these settings from now on, but for the seed; `times` begin anew where faults change."""
        self._rate = settings.kv_event_fault_rate
        if settings.kv_event_faults != self._texts:
            self._texts = settings.kv_event_faults
            self._faults = [parse_event_fault(text) for text in self._texts]
            self._met = [0] * len(self._faults)

    def draw(self) -> EventFault | None:
        """The fault that the next batch meets, if any."""
        if not self._faults or not self._rate or self._random.random() * 100.0 >= self._rate:
            return None
        index = self._random.randrange(len(self._faults))
        fault = self._faults[index]
        if fault.times is not None and self._met[index] >= fault.times:
            return None
        self._met[index] += 1
        self._counts[fault.kind] += 1
        return fault
