"""The `python_*` and `process_*` families, from prometheus_client's own collectors.

The library takes 45 ms to import and a reading 0.13 ms, 0.7 ms with a thousand open sockets (it lists them).
So it is imported at start-up, not during somebody's stream, and a reading is kept for a second.
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

#: Seconds for which one reading is served again.
KEPT = 1.0


class ProcessBlock:
    """Python's and the process's families in vLLM's order."""

    __slots__ = ("_clock", "_expires", "_registry", "_text")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._expires = float("-inf")
        self._text = b""
        self._registry = CollectorRegistry()
        GCCollector(self._registry)
        PlatformCollector(self._registry)
        ProcessCollector(registry=self._registry)

    def render(self) -> bytes:
        """The families' text, at most `KEPT` seconds old."""
        now = self._clock()
        if now >= self._expires:
            self._text = generate_latest(self._registry)
            self._expires = now + KEPT
        return self._text
