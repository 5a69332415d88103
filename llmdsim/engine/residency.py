"""Which adapters are in memory: in a GPU slot, in CPU memory, or on their way there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import count
from typing import Protocol

from llmdsim.engine.adapters import Adapter


class ResidencySettings(Protocol):
    """The options it reads; the time in seconds."""

    @property
    def max_loras(self) -> int: ...
    @property
    def max_cpu_loras(self) -> int: ...
    @property
    def lora_load_time(self) -> float: ...
    @property
    def speed(self) -> float: ...


class Residency:
    """Memory as vLLM has it: `max_cpu_loras` adapters in CPU memory, `max_loras` of them in GPU slots too.

    Those of running sequences stay where they are; of the others, the one used least recently makes room.
    Sequences of one adapter share its slot, the base model needs none. From CPU memory into a slot takes no
    time.
    """

    def __init__(self, settings: ResidencySettings) -> None:
        self._max_loras = settings.max_loras
        self._max_cpu_loras = settings.max_cpu_loras
        self._running: dict[Adapter, int] = {}
        # Both from the least to the most recently used; of those that run the place means nothing.
        self._slots: dict[Adapter, int] = {}
        self._loaded_at: dict[Adapter, float] = {}
        #: Goes up whenever something comes into memory or leaves it.
        self.changes = 0
        self.configure(settings)

    def configure(self, settings: ResidencySettings) -> None:
        """Go by these times from now on, for what is not being loaded yet."""
        self.load_time = settings.lora_load_time / settings.speed

    @property
    def running(self) -> Collection[Adapter]:
        """The adapters of running sequences."""
        return self._running.keys()

    @property
    def slots(self) -> Mapping[Adapter, int]:
        """The GPU slot, from 1, of each adapter that has one; all of them are in CPU memory too."""
        return self._slots

    @property
    def loaded_at(self) -> Mapping[Adapter, float]:
        """When each adapter in CPU memory is there; in the future while it is being loaded."""
        return self._loaded_at

    def can_start(self, adapter: Adapter) -> bool:
        """Whether a sequence of `adapter` may run beside those that do."""
        return adapter in self._running or len(self._running) < self._max_loras

    def take(self, adapter: Adapter, now: float) -> float:
        """A sequence of `adapter`, which can start, does; returns when the adapter is loaded."""
        running = self._running.get(adapter, 0)
        self._running[adapter] = running + 1
        if not running:
            if adapter not in self._loaded_at:
                self._store(adapter, now + self.load_time)
            self._activate(adapter)
        return max(now, self._loaded_at[adapter])

    def release(self, adapter: Adapter) -> None:
        """A sequence of `adapter` has ended."""
        left = self._running[adapter] - 1
        if left:
            self._running[adapter] = left
            return
        del self._running[adapter]
        if adapter.known:
            self._loaded_at[adapter] = self._loaded_at.pop(adapter)
            self._slots[adapter] = self._slots.pop(adapter)
        else:
            self._drop(adapter)

    def load(self, adapter: Adapter) -> None:
        """`adapter` has been loaded just now, for the first time or anew.

        It has a slot then, unless all are in use, and is dropped again if so is all of CPU memory.
        """
        if adapter in self._running:
            return
        self._loaded_at.pop(adapter, None)
        self._store(adapter, 0.0)
        if adapter in self._loaded_at:
            self._activate(adapter)

    def unload(self, adapter: Adapter) -> None:
        """`adapter` is not known any more; what it has is free once none of its sequences runs."""
        if adapter not in self._running:
            self._drop(adapter)

    def _store(self, adapter: Adapter, at: float) -> None:
        # First the new one, then the least recently used leaves: it may be the new one, if all others run.
        self.changes += 1
        self._loaded_at[adapter] = at
        if len(self._loaded_at) > self._max_cpu_loras:
            self._drop(next(each for each in self._loaded_at if each not in self._running))

    def _activate(self, adapter: Adapter) -> None:
        slots = self._slots
        if adapter in slots:
            return
        if len(slots) == self._max_loras:
            idle = next((each for each in slots if each not in self._running), None)
            if idle is None:
                return
            del slots[idle]
        self.changes += 1
        taken = set(slots.values())
        slots[adapter] = next(slot for slot in count(1) if slot not in taken)

    def _drop(self, adapter: Adapter) -> None:
        self.changes += 1
        self._loaded_at.pop(adapter, None)
        self._slots.pop(adapter, None)
