"""Which adapters have a GPU slot: at most `max_loras` of those that run together."""

from __future__ import annotations

from llmdsim.engine.adapters import Adapter


class Residency:
    """Slots for `max_loras` adapters; sequences of one adapter share its slot, the base model needs none."""

    def __init__(self, max_loras: int) -> None:
        self._max_loras = max_loras
        self._running: dict[Adapter, int] = {}

    def can_start(self, adapter: Adapter) -> bool:
        """Whether a sequence of `adapter` may run beside those that do."""
        return adapter in self._running or len(self._running) < self._max_loras

    def take(self, adapter: Adapter) -> None:
        """A sequence of `adapter` starts."""
        self._running[adapter] = self._running.get(adapter, 0) + 1

    def release(self, adapter: Adapter) -> None:
        """A sequence of `adapter` has ended."""
        left = self._running[adapter] - 1
        if left:
            self._running[adapter] = left
        else:
            del self._running[adapter]
