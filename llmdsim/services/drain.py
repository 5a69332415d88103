"""Ends the daemon in good order: running requests may finish."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from twisted.application.service import Service
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from llmdsim.services.exit_code import ExitCode

if TYPE_CHECKING:
    from llmdsim.services.crew import Crew
    from llmdsim.services.rank import Rank

log = Logger()

#: How often a drain looks whether it is done, and how long the last answers may take to leave, in seconds.
LOOK_EVERY = 0.02
FLUSH = 1.0

#: How long after the time for draining the processes of other ranks may still be there, in seconds.
OVERSTAY = FLUSH + 1.0

#: How long connections that came in at the very end may take to be answered, in seconds.
LAST = 0.1


class Drain(Service):
    """When told to end, refuse new generation and wait for what runs or waits, `timeout` seconds at most.

    When told a second time, stop at once. Either way the reactor is stopped, so that the exit code is 0, or
    what `exit_code` says. `ranks` are those of this process, and `crew` the processes of others, which drain
    at the same time. `close_ports` lets no more connections in.
    """

    def __init__(
        self,
        ranks: Sequence[Rank],
        timeout: float,
        clock: Any,
        reactor: Any,
        close_ports: Callable[[], object],
        exit_code: ExitCode,
        crew: Crew | None = None,
    ) -> None:
        self._ranks = ranks
        self._sites = [site for rank in ranks for site in rank.sites]
        self._crew = crew
        if crew is not None:
            crew.on_loss = lambda: self.begin("a rank is dead", exit_code=1)
        self._timeout = timeout
        self._clock = clock
        self._reactor = reactor
        self._close_ports = close_ports
        self._exit_code = exit_code
        self._look = LoopingCall(self._look_round)
        self._look.clock = clock
        self._deadline = 0.0
        self._flush_until = 0.0
        self._last_until = 0.0
        self._stopped = False

    def stopService(self) -> None:
        super().stopService()  # type: ignore[no-untyped-call]
        if self._look.running:
            self._look.stop()

    def begin(self, cause: str, exit_code: int = 0) -> None:
        """Begin to drain, or stop now if that has begun already.

        With an `exit_code` something is broken: what still runs is told at once that it failed.
        """
        if exit_code:
            self._exit_code.code = exit_code
        if self._look.running:
            log.warn("{cause} while draining: stopping now", cause=cause)
            self._stop()
            return
        if self._stopped:
            return
        timeout = 0.0 if exit_code else self._timeout
        log.info(
            "{cause}: draining {running} running and {waiting} waiting requests, {timeout:g} seconds at most",
            cause=cause,
            running=sum(rank.stats.running for rank in self._ranks),
            waiting=sum(rank.stats.waiting for rank in self._ranks),
            timeout=timeout,
        )
        for rank in self._ranks:
            rank.context.draining = True
        for site in self._sites:
            site.send_calls_elsewhere()
        if self._crew is not None:
            self._crew.drain(at_once=bool(exit_code))
        self._deadline = self._clock.seconds() + timeout
        self._look.start(LOOK_EVERY).addErrback(self._failed)

    def _failed(self, failure: Failure) -> None:
        log.failure("draining failed; stopping now", failure)
        self._stop()

    def _look_round(self) -> None:
        now = self._clock.seconds()
        if not self._flush_until:
            # While others are at work, this process, which speaks for them all, goes on answering probes.
            if (self._at_work or self._others_at_work) and now < self._deadline:
                return
            # Replies that slow readers have still to take have the rest of the time.
            self._flush_until = max(now + FLUSH, self._deadline)
            for rank in self._ranks:
                rank.calls.end_endless()
            for site in self._sites:
                site.close_idle()
        # A request that was being prepared may have come to run since.
        if now >= self._deadline and self._at_work:
            log.warn("the time for draining is over; the rest is aborted")
            for rank in self._ranks:
                rank.driver.give_up()
                rank.context.turns.give_up()
            self._flush_until = now + FLUSH
        if not self._last_until:
            if any(site.busy for site in self._sites) and now < self._flush_until:
                return
            # Whoever came in meanwhile is answered yet.
            self._close_ports()
            self._last_until = now + LAST
        if now < self._last_until and any(site.connections for site in self._sites):
            return
        if self._crew is not None and self._others_at_work:
            if now >= self._deadline + OVERSTAY:
                self._crew.kill()
            return
        log.info("drained")
        self._stop()

    @property
    def _others_at_work(self) -> bool:
        return self._crew is not None and self._crew.at_work

    @property
    def _at_work(self) -> bool:
        """Whether anything is generated, waits to be, or is being prepared in this process."""
        return any(not rank.engine.idle or rank.context.turns.busy for rank in self._ranks)

    def _stop(self) -> None:
        self._stopped = True
        if self._look.running:
            self._look.stop()
        if self._reactor.running:
            self._reactor.stop()
