"""Observers that write to memory, and a rank whose log is kept."""

from __future__ import annotations

import json
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from twisted.logger import Logger, globalLogPublisher

from llmdsim.config import parse
from llmdsim.config.klog import patterns
from llmdsim.logs.destination import Destination, Output
from llmdsim.logs.lines import JsonLines, Lines, TextLines
from llmdsim.logs.observer import LogObserver
from llmdsim.logs.verbosity import Verbosity
from llmdsim.services.rank_log import RankLog
from tests.web.rig import RankRig


class Memory:
    """A destination; `writes` are its writes one by one."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.destination = Destination([Output(self.writes.append)])

    @property
    def text(self) -> str:
        return b"".join(self.writes).decode()

    @property
    def lines(self) -> list[str]:
        """Every line; nothing else than a line feed ends one."""
        text = self.text
        assert not text or text.endswith("\n")
        return text.split("\n")[:-1]


class Log(Memory):
    """An observer that writes to memory, and loggers that talk to it alone."""

    def __init__(self, v: int = 2, vmodule: str = "", lines: Lines | None = None) -> None:
        super().__init__()
        self.observer = LogObserver(Verbosity(v, patterns(vmodule)), lines or TextLines(), self.destination)

    def logger(self, namespace: str = "llmdsim.services.drain") -> Logger:
        return Logger(namespace=namespace, observer=self.observer)

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


class LoggedRank(RankRig):
    """A rank with a log, to be used in a `with`: everything that is logged meanwhile is in `log`."""

    def __init__(self, *flags: str) -> None:
        super().__init__(*flags)
        config = parse(["--model", "m", *flags], {})
        form: Lines = JsonLines() if config.log_format == "json" else TextLines()
        self.log = Log(config.v, config.vmodule, form)
        self.rank_log = RankLog(self.rank, self.log.observer, self.clock)

    def __enter__(self) -> LoggedRank:
        globalLogPublisher.addObserver(self.log.observer)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        globalLogPublisher.removeObserver(self.log.observer)

    def access_lines(self) -> list[str]:
        """The lines of the access log, those that wait included."""
        self.log.destination.flush()
        return of("access", self.log.lines)


def of(name: str, lines: Iterable[str]) -> list[str]:
    """Of lines for people, the messages under one name."""
    return [line.partition(f" {name}: ")[2] for line in lines if f" {name}: " in line]
