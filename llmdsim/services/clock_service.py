"""Runs the deadline clock while the daemon runs."""

from __future__ import annotations

from twisted.application.service import Service

from llmdsim.services.clock import DeadlineClock


class ClockService(Service):
    """Starts `clock` after any fork and stops it with the daemon."""

    def __init__(self, clock: DeadlineClock) -> None:
        self._clock = clock

    def startService(self) -> None:
        super().startService()  # type: ignore[no-untyped-call]
        self._clock.start()

    def stopService(self) -> None:
        super().stopService()  # type: ignore[no-untyped-call]
        self._clock.stop()
