"""Log files: those of klog's flags and of twistd's, with their heading and their bound."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from twisted.python.logfile import LogFile

from llmdsim.config.klog import SEVERITIES
from llmdsim.logs.destination import FATAL, Output


class HeadedLogFile(LogFile):
    """A file that is put aside as `.1`, `.2`, … when it has grown to `most` bytes (None: never).

    A new one begins with `heading`. Raises OSError where it cannot be opened.
    """

    def __init__(self, path: str, most: int | None, heading: bytes) -> None:
        self._heading = heading
        folder, name = os.path.split(os.path.abspath(path))
        super().__init__(name, folder, rotateLength=most)  # type: ignore[no-untyped-call]

    def _openFile(self) -> None:
        super()._openFile()  # type: ignore[no-untyped-call]
        if not self.size:
            # On a full disk it is lost, as lines are.
            with suppress(OSError):
                self._file.write(self._heading)
                self.size = len(self._heading)


def heading() -> bytes:
    """The first line of a log file for people."""
    return time.strftime("llmdsim: log file created at %Y-%m-%d %H:%M:%S %z\n").encode()


def file_output(path: str, most: int | None, head: bytes) -> Output:
    """One file for all lines."""
    file = HeadedLogFile(path, most, head)
    return Output(file.write, rotate=file.rotate)


def severity_files(folder: str, most: int | None, head: bytes, one_output: bool) -> list[Output]:
    """`llmdsim.INFO` and so on in `folder`; with `one_output` each has the lines of its own severity only."""
    outputs = []
    for low, name in enumerate(SEVERITIES[:FATAL]):
        # What is fatal has no file of its own.
        high = low if one_output and low + 1 < FATAL else FATAL
        path = os.path.join(folder, f"llmdsim.{name}")
        outputs.append(file_output(path, most, head)._replace(low=low, high=high))
    return outputs


def rotate_on_signal(outputs: Sequence[Output], reactor: Any) -> None:
    """Put the files aside on SIGUSR1, as twistd does with its own, unless somebody has that signal."""
    rotations = [output.rotate for output in outputs if output.rotate is not None]
    if not rotations or signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL:
        return

    def rotate(number: int, frame: object) -> None:
        for rotation in rotations:
            reactor.callFromThread(rotation)

    signal.signal(signal.SIGUSR1, rotate)
