"""Ends the daemon once an engine is dead, as vLLM's API server does (vLLM 0.33 launcher.py)."""

from __future__ import annotations

from typing import Any

from twisted.application.service import Service
from twisted.logger import Logger

from llmdsim.services.drain import Drain
from llmdsim.services.rank import Rank
from llmdsim.wire.grpc import Code, status_lines
from llmdsim.wire.request import Request

log = Logger()

#: How long a dead engine may go unnoticed where no call fails, in seconds.
PATIENCE = 5.0

_INTERNAL = status_lines(Code.INTERNAL)


class Watchdog(Service):
    """Has `drain` end the daemon, with exit code 1, after the first answer of 500, or INTERNAL, that the
    death of the engine leads to, or a few seconds after the death; with `--keep-alive-on-engine-death` it
    does not.
    """

    def __init__(self, rank: Rank, drain: Drain, clock: Any) -> None:
        self._rank = rank
        self._drain = drain
        self._clock = clock
        self._call: Any = None
        rank.context.suspension.on_death.append(self._died)

    def stopService(self) -> None:
        super().stopService()  # type: ignore[no-untyped-call]
        if self._call is not None and self._call.active():
            self._call.cancel()

    def _died(self) -> None:
        config = self._rank.config
        if config.keep_alive_on_engine_death:
            log.warn("the server goes on without its engine, as --keep-alive-on-engine-death has it")
            return
        self._call = self._clock.callLater(PATIENCE / config.speed, self._end)
        for site in self._rank.sites:
            site.on_ended.append(self._ended)

    def _ended(self, request: Request) -> None:
        # A stream of HTTP that has begun cannot fail with a status.
        if (request.status == 500 or _INTERNAL in request.trailers) and self._call.active():
            # Not from within: more may be about to be told of their failure.
            self._call.reset(0)

    def _end(self) -> None:
        if not self._rank.context.draining:
            self._drain.begin("the engine is dead", exit_code=1)
