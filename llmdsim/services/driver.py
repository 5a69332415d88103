"""Drives one engine from one deadline on a clock."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from twisted.logger import Logger

from llmdsim.engine.engine import Engine
from llmdsim.engine.sequence import Sequence

log = Logger()

#: How far apart passes are kept, in seconds: a little for each running sequence, and never much. A pass costs
#: more than the tokens in it when each has one to itself; with absolute deadlines lateness does not add up.
SPACING_PER_SEQUENCE = 10e-6
MOST_SPACING = 1e-3


class EngineDriver:
    """Passes time to the engine: at its deadlines, and at once where something is due already.

    `clock` is an `IReactorTime` with a `call_at` (a `DeadlineClock`), or any `IReactorTime` in tests.
    """

    def __init__(self, engine: Engine, clock: Any) -> None:
        self.engine = engine
        self._clock = clock
        self._seconds = clock.seconds
        self._call: Any = None
        self._due = 0.0
        self._last_pass = 0.0
        self._in_pass = False

    def submit(self, sequences: Collection[Sequence]) -> None:
        """Hand a request's sequences to the engine; nothing is revealed before `run`. May raise QueueFull."""
        self.engine.submit(sequences, self._seconds())
        if self.engine.faults:
            self._log_faults()

    def abort(self, sequence: Sequence) -> None:
        """End a sequence whose client left."""
        self.engine.abort(sequence, self._seconds())
        if not self._in_pass:
            self._arm(self.engine.pacing.next_deadline())

    def abort_all(self) -> None:
        """End everything, telling the sinks."""
        self.engine.abort_all(self._seconds())

    def run(self) -> None:
        """Reveal what is due now and arm the clock for what comes next."""
        if self._in_pass:
            return  # a sink's doing; the pass under way arms the clock when it ends
        self._in_pass = True
        self._last_pass = now = self._seconds()
        try:
            deadline = self.engine.advance(now)
        finally:
            self._in_pass = False
        if self.engine.faults:
            self._log_faults()
        self._arm(deadline)

    def _arm(self, deadline: float | None) -> None:
        call = self._call
        if call is not None:
            if deadline is not None and self._due <= deadline:
                return  # it comes early enough, and arms anew
            call.cancel()
            self._call = None
        if deadline is not None:
            spacing = min(MOST_SPACING, self.engine.stats.running * SPACING_PER_SEQUENCE)
            self._due = deadline = max(deadline, self._last_pass + spacing)
            self._call = self._clock.callLater(max(0.0, deadline - self._seconds()), self._fire)

    def _fire(self) -> None:
        self._call = None
        self.run()

    def _log_faults(self) -> None:
        faults, self.engine.faults = self.engine.faults, []
        for _, fault in faults:
            log.error("a sequence failed: {fault!r}", fault=fault, log_failure=_failure(fault))


def _failure(fault: Exception) -> object:
    from twisted.python.failure import Failure  # noqa: PLC0415 - only when something failed

    return Failure(fault, type(fault), fault.__traceback__)  # type: ignore[no-untyped-call]
