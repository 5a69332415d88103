"""A log event as a line: for people, or as a JSON object."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from twisted.logger import LogEvent, LogLevel, formatEvent
from twisted.python.failure import Failure

from llmdsim.logs.escapes import one_line
from llmdsim.logs.stamp import Stamp

LEVELS = {
    LogLevel.debug: "DEBUG",
    LogLevel.info: "INFO",
    LogLevel.warn: "WARNING",
    LogLevel.error: "ERROR",
    LogLevel.critical: "CRITICAL",
}


class TextLines:
    """`2026-11-30 10:43:49.123 INFO drain: drained`; tracebacks are set in.

    `skip_headers` leaves the time, level and name out; `add_dir_header` tells the package too. Lines of a
    `rank` tell which one it is: `... INFO (rank 1) drain: drained`.
    """

    def __init__(
        self, skip_headers: bool = False, add_dir_header: bool = False, rank: int | None = None
    ) -> None:
        self._skip_headers = skip_headers
        self._add_dir_header = add_dir_header
        self._parts = 2 if add_dir_header else 1
        self._rank = "" if rank is None else f"(rank {rank}) "

    def of_rank(self, rank: int) -> TextLines:
        """The same for lines of one rank."""
        return TextLines(self._skip_headers, self._add_dir_header, rank)

    def header(self, level: str, namespace: str) -> Callable[[float], str]:
        """What makes, of a time, what comes before the message."""
        if self._skip_headers:
            return lambda when: self._rank
        return Stamp(after=f" {level} {self._rank}{self._name(namespace)}: ")

    def line(self, event: LogEvent) -> str:
        header = self.header(_level(event), event.get("log_namespace", ""))(_time(event))
        message, traceback = _told(event)
        inset = "".join(f"    {one_line(line)}\n" for line in traceback.splitlines())
        return f"{header}{one_line(message)}\n{inset}"

    def _name(self, namespace: str) -> str:
        if namespace == "log_legacy":
            return "twisted"
        if namespace.startswith("llmdsim."):
            return "/".join(namespace.split(".")[1:][-self._parts :])
        return namespace


class JsonLines:
    """Objects with time (RFC 3339), level, logger, message, the event's plain fields, and exception.

    Those of a `rank` tell which one it is, behind the logger.
    """

    def __init__(self, rank: int | None = None) -> None:
        self._rank = "" if rank is None else f'"rank":{rank},'

    def of_rank(self, rank: int) -> JsonLines:
        """The same for lines of one rank."""
        return JsonLines(rank)

    def header(self, level: str, namespace: str) -> Callable[[float], str]:
        """What makes, of a time, the members that every object begins with, brace and comma included."""
        after = f'","level":"{level}","logger":{json.dumps(namespace)},{self._rank}'
        return Stamp('{"time":"', after, rfc3339=True)

    def line(self, event: LogEvent) -> str:
        header = self.header(_level(event), event.get("log_namespace", ""))(_time(event))
        message, traceback = _told(event)
        members: dict[str, Any] = {"message": message}
        for name, value in _fields(event):
            members.setdefault(name, value)
        if traceback:
            members["exception"] = traceback
        return f"{header}{json.dumps(members, separators=(',', ':'))[1:]}\n"


Lines: TypeAlias = TextLines | JsonLines
"""A form of log lines. Each ends with a line end; for people, a traceback follows on lines of its own."""


def _time(event: LogEvent) -> float:
    when: float = event.get("log_time") or time.time()
    return when


def _level(event: LogEvent) -> str:
    return LEVELS.get(event.get("log_level", LogLevel.info), "INFO")


def _is_legacy(event: LogEvent) -> bool:
    return bool(event.get("log_namespace") == "log_legacy")


def _told(event: LogEvent) -> tuple[str, str]:
    """The message of an event, and its traceback or ""."""
    failure = event.get("log_failure")
    if _is_legacy(event) and event.get("isError") and isinstance(event.get("failure"), Failure):
        # Twisted puts the traceback into the message of such an event.
        failure, message = event["failure"], str(event.get("why") or "Unhandled Error")
    else:
        message = formatEvent(event)
    return message, failure.getTraceback().rstrip() if isinstance(failure, Failure) else ""


def _fields(event: LogEvent) -> Iterator[tuple[str, Any]]:
    if _is_legacy(event):
        return
    for name, value in event.items():
        if name.startswith("log_") or name in ("time", "level", "logger", "rank", "exception", "v"):
            continue
        if isinstance(value, bytes):
            yield name, value.decode("utf-8", "backslashreplace")
        elif isinstance(value, float) and not math.isfinite(value):
            yield name, str(value)
        elif isinstance(value, str | int | float) or value is None:
            yield name, value
