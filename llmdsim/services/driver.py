"""Drives one engine from one deadline on a clock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from twisted.logger import Logger
from twisted.python.failure import Failure

from llmdsim.engine.engine import Engine
from llmdsim.engine.kvcache import Record
from llmdsim.engine.sequence import Sequence
from llmdsim.web.orca import Load

log = Logger()

#: How far apart passes are kept, in seconds: a little for each running sequence, and never much. A pass costs
#: more than the tokens in it when each has one to itself; with absolute deadlines lateness does not add up.
SPACING_PER_SEQUENCE = 10e-6
MOST_SPACING = 2e-3


class EngineDriver:
    """Passes time to the engine: at its deadlines, and at once where something is due already.

    `clock` is any `IReactorTime`; a `DeadlineClock` for pace.
    """

    def __init__(self, engine: Engine, clock: Any) -> None:
        self.engine = engine
        self.load: Load = engine.stats
        self.submitted_at: float | None = None
        #: Told what happened to KV blocks, at the end of the pass that it is due in.
        self.on_records: Callable[[list[Record]], object] | None = None
        self._clock = clock
        self._seconds = clock.seconds
        self._call: Any = None
        self._target = 0.0
        self._last_pass = 0.0
        self._in_pass = False

    def submit(self, sequences: Collection[Sequence]) -> None:
        """Hand a request's sequences to the engine; nothing is revealed before `run`. May raise QueueFull."""
        self.submitted_at = now = self._seconds()
        self.engine.submit(sequences, now)
        if self.engine.faults:
            self._settle_faults()

    def abort(self, sequence: Sequence) -> None:
        """End a sequence whose client left."""
        self.engine.abort(sequence, self._seconds())
        self._follow_up()

    def cut_short(self, sequences: Iterable[Sequence]) -> None:
        """End sequences as they stand; their clients get what there is of their replies."""
        self.engine.cut_short(sequences, self._seconds())
        self._follow_up()

    def hold(self) -> None:
        """Start nothing until `resume`."""
        self.engine.hold(self._seconds())
        self._follow_up()

    def freeze(self) -> None:
        """Start and reveal nothing until `resume`."""
        self.engine.freeze(self._seconds())
        self._follow_up()

    def retime(self) -> None:
        """Latencies have changed: what is not due yet is due by the new ones."""
        self.engine.retime(self._seconds())
        self._follow_up()

    def resume(self) -> None:
        """Go on after `hold` or `freeze`."""
        self.engine.resume(self._seconds())
        self._follow_up()

    def reset_prefix_cache(self, preempt: bool = False) -> bool:
        """Have the engine forget cached blocks; returns whether it has, which is told at once."""
        done = self.engine.reset_prefix_cache(self._seconds(), preempt)
        self._hand_over()
        self._follow_up()
        return done

    def give_up(self, reason: str = "abort") -> None:
        """End everything unfinished, for `reason`; its clients are told that it failed."""
        now = self._seconds()
        # From the end, or what waits would start in the places of what runs.
        unfinished = [sequence for sequence in reversed(self.engine.sequences) if not sequence.finish_reason]
        for sequence in unfinished:
            self.engine.abort(sequence, now, reason)
        for sequence in unfinished:
            self._fail(sequence)
        self._follow_up()

    def run(self) -> None:
        """Reveal what is due now and arm the clock for what comes next."""
        if self._in_pass:
            return  # a sink's doing; the pass under way arms the clock when it ends
        self._in_pass = True
        self._last_pass = now = self._seconds()
        engine = self.engine
        if self.on_records is not None and engine.announces_before(now):
            # Whoever is told of a prompt's blocks knows them before its reply begins.
            self._hand_over()
        try:
            deadline = engine.advance(now)
        finally:
            self._in_pass = False
        if engine.faults:
            self._settle_faults()
        if self.on_records is not None and engine.events_due:
            self._hand_over()
        if deadline is not None or self._call is not None:
            self._arm(deadline)

    def _hand_over(self) -> None:
        records = self.engine.drain_events()
        if records and self.on_records is not None:
            self.on_records(records)

    def _follow_up(self) -> None:
        if self.engine.faults:
            self._settle_faults()
        if not self._in_pass:
            if self.on_records is not None and self.engine.events_due:
                self._hand_over()
            self._arm(self.engine.next_deadline())

    def _arm(self, deadline: float | None) -> None:
        call = self._call
        if deadline is None:
            if call is not None:
                call.cancel()
                self._call = None
            return
        spacing = min(MOST_SPACING, self.engine.stats.running * SPACING_PER_SEQUENCE)
        target = max(deadline, self._last_pass + spacing)
        if call is not None:
            if self._target <= target:
                return  # it comes early enough, and arms anew
            call.cancel()
        self._target = target
        self._call = self._clock.callLater(max(0.0, target - self._seconds()), self._fire)

    def _fire(self) -> None:
        self._call = None
        now = self._seconds()
        self.engine.stats.pass_lateness.observe(now - self._target)
        self.engine.turn(now)
        self.run()

    def _settle_faults(self) -> None:
        faults, self.engine.faults = self.engine.faults, []
        for sequence, fault in faults:
            failure = Failure(fault, type(fault), fault.__traceback__)  # type: ignore[no-untyped-call]
            log.error("a sequence failed: {fault!r}", fault=fault, log_failure=failure)
            self._fail(sequence)

    def _fail(self, sequence: Sequence) -> None:
        try:
            sequence.sink.fail(sequence)
        except Exception:
            log.failure("the client of a sequence that failed could not be told")
