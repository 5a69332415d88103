"""Ends a daemon that cannot start, when its reactor runs already."""

from __future__ import annotations

import sys
from typing import Any

from twisted.logger import Logger

from llmdsim.services.exit_code import ExitCode

log = Logger()


def end_start(reactor: Any, exit_code: ExitCode, foreground: bool, reason: str) -> None:
    """Stop the reactor and exit with code 1; `reason` is one clear line."""
    if foreground and sys.__stderr__ is not None:
        print(f"llmdsim: {reason}", file=sys.__stderr__, flush=True)
    else:
        log.critical("{reason}", reason=reason)
    exit_code.code = 1
    reactor.stop()
