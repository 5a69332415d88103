"""Where lines go: to one or more outputs by severity, at once or with others that may wait a little."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple

#: klog's lowest and highest severity.
INFO, FATAL = 0, 3


class Output(NamedTuple):
    """Takes the bytes of lines of severities from `low` to `high`. `rotate` puts what was written aside."""

    write: Callable[[bytes], object]
    low: int = INFO
    high: int = FATAL
    rotate: Callable[[], object] | None = None


class Marked:
    """Lines for another process: each goes to `write` behind the digit of its severity."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write

    @property
    def outputs(self) -> list[Output]:
        """One for each severity."""
        return [Output(partial(self._mark, b"%d" % low), low, low) for low in range(INFO, FATAL + 1)]

    def _mark(self, mark: bytes, data: bytes) -> None:
        self._write(mark + data[:-1].replace(b"\n", b"\n" + mark) + b"\n")


class Destination:
    """Writes lines to `outputs`. What cannot be written is lost: logging never ends what it tells of."""

    def __init__(self, outputs: Sequence[Output]) -> None:
        self.outputs = tuple(outputs)
        #: Each gives, once, lines of severity INFO that could wait for others.
        self.waiting: list[Callable[[], str]] = []
        #: Set once the daemon ends, and with it the clock that lines could wait for.
        self.ending = False

    def write(self, severity: int, line: str) -> None:
        """Write `line` now, behind those that wait."""
        self.flush()
        self._put(severity, line)

    def relay(self, lines: Iterable[bytes]) -> None:
        """Write lines of another process now, each behind the digit of its severity (`Marked`)."""
        self.flush()
        for mark, some in groupby(lines, key=lambda line: line[:1]):
            text = b"".join([line[1:] + b"\n" for line in some]).decode(errors="backslashreplace")
            self._put(int(mark), text)

    def flush(self) -> None:
        """Write the lines that wait."""
        for take in self.waiting:
            if lines := take():
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
