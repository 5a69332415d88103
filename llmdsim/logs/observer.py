"""From an event of twisted.logger to a line where it belongs."""

from __future__ import annotations

from twisted.logger import ILogObserver, LogEvent, LogLevel
from zope.interface import implementer

from llmdsim.logs.destination import Destination
from llmdsim.logs.lines import Lines
from llmdsim.logs.verbosity import Verbosity

#: klog's severity of a level.
SEVERITIES = {
    LogLevel.debug: 0,
    LogLevel.info: 0,
    LogLevel.warn: 1,
    LogLevel.error: 2,
    LogLevel.critical: 3,
}


@implementer(ILogObserver)
class LogObserver:
    """Writes events that `verbosity` lets through to `destination`, as `lines` has them. Never raises.

    Events without words, which Twisted has for programs, are left out.
    """

    def __init__(self, verbosity: Verbosity, lines: Lines, destination: Destination) -> None:
        self.verbosity = verbosity
        self.lines = lines
        self.destination = destination

    def __call__(self, event: LogEvent) -> None:
        try:
            if _in_passing(event):
                event = {**event, "log_level": LogLevel.debug}
            if event.get("log_format") is None or not self.verbosity.tells(event):
                return
            line = self.lines.line(event)
        except Exception as problem:
            event = {
                "log_level": LogLevel.error,
                "log_namespace": __name__,
                "log_format": "an event could not be shown: {kind}",
                "kind": type(problem).__name__,
            }
            line = self.lines.line(event)
        self.destination.write(SEVERITIES.get(event.get("log_level", LogLevel.info), 0), line)


def _in_passing(event: LogEvent) -> bool:
    """Whether Twisted tells of its own business, such as an open port."""
    namespace = event.get("log_namespace", "")
    return event.get("log_level") is LogLevel.info and (
        namespace == "log_legacy" or namespace.startswith("twisted.")
    )
