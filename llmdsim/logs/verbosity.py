"""Which events are told: klog's levels, and its exceptions by pattern."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from twisted.logger import LogEvent, LogLevel

#: The verbosity from which each is told.
ERRORS, WARNINGS, INFO, DEBUG, TRACE = 0, 1, 2, 4, 5

NEEDED = {
    LogLevel.critical: ERRORS,
    LogLevel.error: ERRORS,
    LogLevel.warn: WARNINGS,
    LogLevel.info: INFO,
    LogLevel.debug: DEBUG,
}


class Verbosity:
    """`level` counts for all modules, but for those a pattern fits; the first that does counts.

    A pattern (fnmatch) of k parts is held against the last k parts of a module's name: `drain`,
    `services.*`, `services/drain`.
    """

    def __init__(self, level: int, patterns: Sequence[tuple[str, int]] = ()) -> None:
        self._level = level
        self._patterns = [(pattern.replace("/", "."), exception) for pattern, exception in patterns]
        self._known: dict[str, int] = {}

    def of(self, namespace: str) -> int:
        """The verbosity of one module."""
        level = self._known.get(namespace)
        if level is None:
            level = self._known[namespace] = self._find(namespace)
        return level

    def _find(self, namespace: str) -> int:
        parts = namespace.split(".")
        for pattern, level in self._patterns:
            if fnmatchcase(".".join(parts[-pattern.count(".") - 1 :]), pattern):
                return level
        return self._level

    def tells(self, event: LogEvent) -> bool:
        """Whether `event` is told. An event's own `v`, where it has one, is the verbosity it needs."""
        needed = event.get("v")
        if not isinstance(needed, int):
            needed = NEEDED.get(event.get("log_level"), INFO)
        return self.of(event.get("log_namespace", "")) >= needed
