"""The daemon on one page: its command line and its tree of services, for `twistd llmdsim`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import uuid4

from twisted.application.service import MultiService
from twisted.python import usage

from llmdsim.config import (
    Config,
    ConfigError,
    HelpRequested,
    VersionRequested,
    parse,
    rank_config,
    rank_numbers,
)
from llmdsim.services.inherited import inherited_sockets


class Options(usage.Options):
    """The command line, read by our own table; Twisted's reader stops at the first word that is no flag."""

    config: Config
    argv: Sequence[str] = ()
    #: The file of `--config`, wherever twistd may go.
    file = ""
    inherited: tuple[int, ...] = ()

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """Read `options`; a wrong one is one line on stderr and exit code 1."""
        self.argv = sys.argv[1:] if options is None else options
        try:
            self.config = parse(self.argv, os.environ)
        except (HelpRequested, VersionRequested) as request:
            print(request)
            raise SystemExit(0) from None
        except ConfigError as error:
            raise SystemExit(f"llmdsim: {error}") from None
        self.file = self.config.config and os.path.abspath(self.config.config)
        self.inherited = inherited_sockets(os.environ)
        if len(self.inherited) % (ranks := len(rank_numbers(self.config))):
            sockets = len(self.inherited)
            raise SystemExit(f"llmdsim: {sockets} sockets of systemd cannot be shared out to {ranks} ranks")

    def read_again(self) -> Config:
        """What the sources of the configuration give now. Raises as `config.parse` does."""
        return parse(self.argv, os.environ, self.file)


def makeService(options: Options, reactor: Any = None) -> MultiService:
    """The whole daemon; a log file that cannot be opened is one line on stderr and exit code 1."""
    if reactor is None:
        from llmdsim.services.reactor import install  # noqa: PLC0415 - `--help` need not load it

        # Unless `twistd --reactor` chose one; nothing has imported the reactor yet.
        install()
        from twisted.internet import reactor  # noqa: PLC0415

    from llmdsim.services.exit_code import ExitCode  # noqa: PLC0415
    from llmdsim.services.signals import Signals, note_signals  # noqa: PLC0415

    exit_code = ExitCode().install()
    # The rest takes a while, and signals would end it with a traceback.
    noted = note_signals()
    from llmdsim.logs.files import rotate_on_signal  # noqa: PLC0415 - `--help` need not load the rest
    from llmdsim.logs.opening import is_twistds_own, open_log  # noqa: PLC0415
    from llmdsim.services.clock import DeadlineClock  # noqa: PLC0415
    from llmdsim.services.clock_service import ClockService  # noqa: PLC0415
    from llmdsim.services.crew import Crew, in_processes  # noqa: PLC0415
    from llmdsim.services.daemon import Daemon  # noqa: PLC0415
    from llmdsim.services.dataset import DatasetService  # noqa: PLC0415
    from llmdsim.services.drain import Drain  # noqa: PLC0415
    from llmdsim.services.handing_over import HeldListeners  # noqa: PLC0415
    from llmdsim.services.kv_events import KvEvents  # noqa: PLC0415
    from llmdsim.services.listeners import Listeners  # noqa: PLC0415
    from llmdsim.services.messages import Server  # noqa: PLC0415
    from llmdsim.services.rank import Rank  # noqa: PLC0415
    from llmdsim.services.rank_log import RankLog  # noqa: PLC0415
    from llmdsim.services.readiness import Readiness  # noqa: PLC0415
    from llmdsim.services.reload import Reload  # noqa: PLC0415
    from llmdsim.services.start_failure import end_start  # noqa: PLC0415
    from llmdsim.services.tls import TLS, tls_setup  # noqa: PLC0415
    from llmdsim.services.tokenizer import find_tokenizer  # noqa: PLC0415
    from llmdsim.services.watchdog import Watchdog  # noqa: PLC0415
    from llmdsim.web.templates import templates_of  # noqa: PLC0415

    config = options.config
    foreground = options.parent is None or bool(options.parent.get("nodaemon"))
    try:
        logs = open_log(config, options.parent)
    except OSError as problem:
        raise SystemExit(f"llmdsim: cannot log to {problem.filename}: {problem.strerror}") from None
    except ValueError as problem:
        raise SystemExit(f"llmdsim: {problem}") from None
    rotate_on_signal(logs.destination.outputs, reactor)
    clock = DeadlineClock(reactor)
    configs = [rank_config(config, number) for number in rank_numbers(config)]
    sockets = [options.inherited[place :: len(configs)] for place in range(len(configs))]
    here = 1 if in_processes(config) else len(configs)
    # Here, since it may take a while: not when there are ports, or twistd has left its terminal.
    loaded, folder, warning = find_tokenizer(config, os.environ)
    engine_id = str(uuid4())
    try:
        templates = templates_of(config, loaded)
        setup = tls_setup(config)
        tls = None if setup is None else TLS(setup, clock)
    except ConfigError as problem:
        raise SystemExit(f"llmdsim: {problem}") from None
    ranks = [Rank(each, loaded.tokenizer, clock, engine_id, templates, folder) for each in configs[:here]]
    listeners = [
        Listeners(rank.config, rank.sites, inherited, reactor, foreground, tls)
        for rank, inherited in zip(ranks, sockets, strict=False)
    ]
    held = [
        HeldListeners(each, inherited, reactor, foreground, tls)
        for each, inherited in zip(configs[here:], sockets[here:], strict=True)
    ]
    twistds_own = is_twistds_own(options.parent or {})
    server = Server(config, tuple(options.argv), options.file, engine_id, twistds_own, folder, setup)
    crew = Crew(ranks, held, reactor, logs.destination, server)
    reload = Reload(config, options.file, options.read_again, [rank.context for rank in ranks])
    reload.others.append(lambda: crew.broadcast(b"reload"))
    if tls is not None:
        reload.others.append(tls.reload)
    close_ports = lambda: [each.close() for each in listeners]  # noqa: E731
    timeout = config.shutdown_timeout
    drain = Drain(ranks, timeout, clock, reactor, close_ports, exit_code, crew)
    dataset = DatasetService(
        config, ranks, clock, reactor, partial(end_start, reactor, exit_code, foreground)
    )
    # Once it is there, nobody else need download it.
    dataset.opened.addCallback(lambda _: crew.broadcast(b"dataset"))
    daemon = Daemon(logs, installs=not twistds_own)
    for child in (
        ClockService(clock),
        *ranks,
        *[RankLog(rank, logs, clock) for rank in ranks],
        *[
            KvEvents(rank, opened, clock, reactor, foreground)
            for rank, opened in zip(ranks, listeners, strict=True)
        ],
        *listeners,
        *held,
        crew,
        drain,
        Signals(noted, reactor, drain.begin, reload.reload),
        *[Watchdog(rank, drain, clock) for rank in ranks],
        dataset,
        Readiness(
            config,
            ranks,
            [*listeners, *held],
            clock,
            reactor,
            dataset=dataset.opened,
            others=crew.ready,
            warning=warning,
        ),
    ):
        child.setServiceParent(daemon)  # type: ignore[no-untyped-call]
    if tls is not None:
        tls.setServiceParent(daemon)  # type: ignore[no-untyped-call]
    return daemon
