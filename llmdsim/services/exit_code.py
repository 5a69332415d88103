"""The exit code of the process, which twistd leaves at 0 however its reactor ends."""

from __future__ import annotations

import atexit
import os
import sys


class ExitCode:
    """`code` becomes that of the process, once it is installed."""

    def __init__(self) -> None:
        self.code = 0

    def install(self) -> ExitCode:
        """Have it count; returns itself. To be called early: what `atexit` was given before will not run."""
        # Neither twistd nor a handler of the reactor's stop lets SystemExit through.
        atexit.register(self._leave)
        return self

    def _leave(self) -> None:
        if self.code:
            for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
                if stream is not None and not getattr(stream, "closed", False):
                    stream.flush()
            os._exit(self.code)
