"""Ends a daemon that cannot start."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

from twisted.logger import Logger

from llmdsim.services.exit_code import ExitCode

log = Logger()


class StartFailure(Exception):
    """The daemon cannot start; `str()` is one clear line."""


def give_up_start(failure: StartFailure, foreground: bool) -> NoReturn:
    """End the process while its services are being started, before the reactor runs.

    A daemonized one must tell its parent by an ordinary exception, as SystemExit would leave the parent
    waiting.
    """
    if not foreground:
        raise failure
    # The log has taken `sys.stderr` over by now.
    print(f"llmdsim: {failure}", file=sys.__stderr__, flush=True)
    raise SystemExit(1) from None


def end_start(reactor: Any, exit_code: ExitCode, foreground: bool, reason: str) -> None:
    """Stop the reactor, which runs already, and exit with code 1; `reason` is one clear line."""
    if foreground and sys.__stderr__ is not None:
        print(f"llmdsim: {reason}", file=sys.__stderr__, flush=True)
    else:
        log.critical("{reason}", reason=reason)
    exit_code.code = 1
    reactor.stop()
