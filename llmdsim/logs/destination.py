"""Where lines go: to one or more outputs by severity, at once or with others that may wait a little."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

#: klog's lowest and highest severity.
INFO, FATAL = 0, 3


class Output(NamedTuple):
    """Takes the bytes of lines of severities from `low` to `high`. `rotate` puts what was written aside."""

    write: Callable[[bytes], object]
    low: int = INFO
    high: int = FATAL
    rotate: Callable[[], object] | None = None


class Destination:
    """Writes lines to `outputs`. What cannot be written is lost: logging never ends what it tells of."""

    def __init__(self, outputs: Sequence[Output]) -> None:
        self.outputs = tuple(outputs)
        #: Gives, once, the lines of severity INFO that could wait for others.
        self.waiting: Callable[[], str] = str
        #: Set once the daemon ends, and with it the clock that lines could wait for.
        self.ending = False

    def write(self, severity: int, line: str) -> None:
        """Write `line` now, behind those that wait."""
        self.flush()
        self._put(severity, line)

    def flush(self) -> None:
        """Write the lines that wait."""
        lines = self.waiting()
        if lines:
            self._put(INFO, lines)

    def end(self) -> None:
        """Let no line wait any more."""
        self.ending = True
        self.flush()

    def _put(self, severity: int, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        for output in self.outputs:
            if output.low <= severity <= output.high:
                try:
                    output.write(data)
                except Exception:
                    pass  # a full disk, a closed terminal: there is nobody left to tell
