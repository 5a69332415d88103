"""The services of a rank that has a process of its own, and is told by the main one what to do."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import globalLogBeginner

from llmdsim.config import parse, rank_config
from llmdsim.logs.opening import rank_log
from llmdsim.services.clock import DeadlineClock
from llmdsim.services.clock_service import ClockService
from llmdsim.services.daemon import Daemon
from llmdsim.services.dataset import DatasetService
from llmdsim.services.drain import Drain
from llmdsim.services.exit_code import ExitCode
from llmdsim.services.handing_over import handed_over
from llmdsim.services.kv_events import KvEvents
from llmdsim.services.listeners import Listeners
from llmdsim.services.messages import LOGGED, Handover
from llmdsim.services.rank import Rank
from llmdsim.services.rank_control import RankControl
from llmdsim.services.rank_log import RankLog
from llmdsim.services.readiness import Readiness
from llmdsim.services.reload import Reload
from llmdsim.services.start_failure import end_start
from llmdsim.services.tls import TLS
from llmdsim.services.tokenizer import load_tokenizer
from llmdsim.services.watchdog import Watchdog
from llmdsim.web.templates import templates_of


def make_rank(handover: Handover, reactor: Any) -> tuple[Daemon, RankControl]:
    """The services of the rank, and its end of what it hears from the main process."""
    server = handover.server
    config = rank_config(server.config, handover.number)
    exit_code = ExitCode().install()
    logs = rank_log(config, server.twistds_own, LOGGED)
    clock = DeadlineClock(reactor)
    loaded = load_tokenizer(server.tokenizer)
    templates = templates_of(config, loaded)
    rank = Rank(config, loaded.tokenizer, clock, server.engine_id, templates, server.tokenizer)
    handing, inherited = handed_over(reactor, handover.sockets, handover.inherited)
    tls = None if server.tls is None else TLS(server.tls, clock)
    listeners = Listeners(config, rank.sites, inherited, handing, foreground=True, tls=tls)
    read_again = partial(parse, server.argv, os.environ, server.file)
    reload = Reload(server.config, server.file, read_again, [rank.context])
    if tls is not None:
        reload.others.append(tls.reload)
    timeout = config.shutdown_timeout
    drain = Drain([rank], timeout, clock, reactor, listeners.close, exit_code)

    found: Deferred[None] = Deferred()
    fail = partial(end_start, reactor, exit_code, False)
    dataset = DatasetService(config, [rank], clock, reactor, fail, found)

    def leave() -> None:
        # The main process gives up before it ends our input.
        if not rank.context.draining:
            drain.begin("end of input")

    #: What the main process may tell all others (`Crew.broadcast`), and what is done then.
    words: dict[bytes, Callable[[], object]] = {
        b"reload": reload.reload,
        b"dataset": lambda: found.callback(None),
        b"give-up": lambda: drain.begin("the server gives up", exit_code=1),
    }
    control = RankControl(rank.operations, words, leave)
    daemon = Daemon(logs, installs=False)
    for service in (
        ClockService(clock),
        rank,
        RankLog(rank, logs, clock),
        KvEvents(rank, listeners, clock, reactor, foreground=True),
        listeners,
        drain,
        Watchdog(rank, drain, clock),
        dataset,
        Readiness(config, [rank], [listeners], clock, reactor, dataset=dataset.opened, tell=control.ready),
    ):
        service.setServiceParent(daemon)  # type: ignore[no-untyped-call]
    if tls is not None:
        tls.setServiceParent(daemon)  # type: ignore[no-untyped-call]
    globalLogBeginner.beginLoggingTo([logs], redirectStandardIO=False)
    return daemon, control
