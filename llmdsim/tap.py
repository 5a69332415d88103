"""The daemon on one page: its command line and its tree of services, for `twistd llmdsim`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from twisted.application.service import MultiService
from twisted.python import usage

from llmdsim.config import Config, ConfigError, HelpRequested, VersionRequested, parse
from llmdsim.services.inherited import inherited_sockets


class Options(usage.Options):
    """The command line, read by our own table; Twisted's reader stops at the first word that is no flag."""

    config: Config
    inherited: tuple[int, ...] = ()

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """Read `options`; a wrong one is one line on stderr and exit code 1."""
        try:
            self.config = parse(sys.argv[1:] if options is None else options, os.environ)
        except (HelpRequested, VersionRequested) as request:
            print(request)
            raise SystemExit(0) from None
        except ConfigError as error:
            raise SystemExit(f"llmdsim: {error}") from None
        self.inherited = inherited_sockets(os.environ)


def makeService(options: Options, reactor: Any = None) -> MultiService:
    """The whole daemon; a log file that cannot be opened is one line on stderr and exit code 1."""
    if reactor is None:
        from llmdsim.services.reactor import install  # noqa: PLC0415 - `--help` need not load it

        # Unless `twistd --reactor` chose one; nothing has imported the reactor yet.
        install()
        from twisted.internet import reactor  # noqa: PLC0415

    from llmdsim.services.drain import Drain, note_signals  # noqa: PLC0415

    # The rest takes a while, and signals would end it with a traceback.
    noted = note_signals()
    from llmdsim.logs.files import rotate_on_signal  # noqa: PLC0415 - `--help` need not load the rest
    from llmdsim.logs.opening import is_twistds_own, open_log  # noqa: PLC0415
    from llmdsim.services.clock import DeadlineClock  # noqa: PLC0415
    from llmdsim.services.clock_service import ClockService  # noqa: PLC0415
    from llmdsim.services.daemon import Daemon  # noqa: PLC0415
    from llmdsim.services.listeners import Listeners  # noqa: PLC0415
    from llmdsim.services.rank import Rank  # noqa: PLC0415
    from llmdsim.services.rank_log import RankLog  # noqa: PLC0415
    from llmdsim.services.readiness import Readiness  # noqa: PLC0415
    from llmdsim.tokenization.builtin import BuiltinTokenizer  # noqa: PLC0415

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
    rank = Rank(config, BuiltinTokenizer(), clock)
    listeners = Listeners(config, rank.sites, options.inherited, reactor, foreground)
    daemon = Daemon(logs, installs=not is_twistds_own(options.parent or {}))
    for child in (
        ClockService(clock),
        rank,
        RankLog(rank, logs, clock),
        listeners,
        Drain(rank, config.shutdown_timeout, clock, reactor, listeners.close, noted),
        Readiness(config, rank.context, lambda: listeners.ports, reactor, lambda: listeners.admin_ports),
    ):
        child.setServiceParent(daemon)  # type: ignore[no-untyped-call]
    return daemon
