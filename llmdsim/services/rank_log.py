"""What one rank tells the log: access lines, requests in full, generations, and how busy it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.application.service import Service

from llmdsim.logs import access, http_dump
from llmdsim.logs.access import AccessLog
from llmdsim.logs.http_dump import DumpedRequest, dump_response, dumping
from llmdsim.logs.observer import LogObserver
from llmdsim.logs.stats_line import StatsLine
from llmdsim.logs.verbosity import DEBUG, INFO, TRACE
from llmdsim.services.rank import Rank
from llmdsim.web import account
from llmdsim.web.account import log_leaving
from llmdsim.wire import http1
from llmdsim.wire.request import Request


class RankLog(Service):
    """Has `rank` tell what its configuration asks for, as far as the verbosity of `logs` lets it through."""

    def __init__(self, rank: Rank, logs: LogObserver, clock: Any) -> None:
        config, context, sites = rank.config, rank.context, rank.sites
        verbosity = logs.verbosity
        self._stats_line: StatsLine | None = None
        if not config.disable_log_stats:
            self._stats_line = StatsLine(rank.number, rank.stats, clock, config.log_stats_interval)
        told_of_ends: list[Callable[[Request], None]] = []
        if config.log_http and verbosity.of(http_dump.__name__) >= INFO:
            for site in sites:
                site.request_type = DumpedRequest
                site.handle = dumping(site.handle)
            rank.calls.handle = dumping(rank.calls.handle)
            told_of_ends.append(dump_response)
        accessed = config.access_log
        if "disable_uvicorn_access_log" in config.given:
            accessed = not config.disable_uvicorn_access_log
        if accessed and verbosity.of(access.__name__) >= INFO:
            paths = [path.strip().encode() for path in config.disable_access_log_for_endpoints.split(",")]
            lines = logs.lines if config.data_parallel_rank < 0 else logs.lines.of_rank(rank.number)
            told_of_ends.append(AccessLog(lines, logs.destination, clock, paths).ended)
            context.accounted = True
        if verbosity.of(account.__name__) >= DEBUG:
            context.accounted = context.tells_generations = True
            told_of_ends.append(log_leaving)
        for site in sites:
            site.tells_connections = verbosity.of(http1.__name__) >= TRACE
            site.on_ended += told_of_ends

    def startService(self) -> None:
        super().startService()  # type: ignore[no-untyped-call]
        if self._stats_line is not None:
            self._stats_line.start()

    def stopService(self) -> None:
        super().stopService()  # type: ignore[no-untyped-call]
        if self._stats_line is not None:
            self._stats_line.stop()
