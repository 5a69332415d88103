"""Opens the log of this process: klog's flags and twistd's say where its lines go."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from twisted.logger import Logger

from llmdsim.config import Config
from llmdsim.config.klog import patterns, severity
from llmdsim.logs.descriptor import Descriptor
from llmdsim.logs.destination import Destination, Marked, Output
from llmdsim.logs.files import file_output, heading, severity_files
from llmdsim.logs.lines import JsonLines, Lines, TextLines
from llmdsim.logs.observer import LogObserver
from llmdsim.logs.verbosity import Verbosity

log = Logger(namespace="llmdsim")


def is_twistds_own(twistd: Mapping[str, Any]) -> bool:
    """Whether twistd was told of a logger of its own, whose business form and place of lines are then."""
    return bool(twistd.get("logger") or twistd.get("syslog"))


def open_log(config: Config, twistd: Mapping[str, Any] | None) -> LogObserver:
    """The observer that `config` and the options of twistd ask for; `twistd` is None where it does not run.

    Raises OSError for a file that cannot be opened, and ValueError for a place that a daemon has not.
    """
    options = twistd or {}
    twistds_own = is_twistds_own(options)
    outputs = [Output(_tell_twisted)] if twistds_own else _outputs(config, options)
    return _observer(config, _lines(config, twistds_own), outputs)


def rank_log(config: Config, twistds_own: bool, descriptor: int) -> LogObserver:
    """The observer of a rank's own process: its lines go to `descriptor`, for the main process to write.

    Once that is no more, they go to stderr.
    """
    pipe, stderr = Descriptor(descriptor), _standard(sys.__stderr__, 0)

    def write(data: bytes) -> None:
        try:
            pipe.write(data)
        except BrokenPipeError:
            for output in stderr:
                output.write(data)

    lines = _lines(config, twistds_own).of_rank(config.data_parallel_rank)
    return _observer(config, lines, Marked(write).outputs)


def _observer(config: Config, lines: Lines, outputs: list[Output]) -> LogObserver:
    return LogObserver(Verbosity(config.v, patterns(config.vmodule)), lines, Destination(outputs))


def _lines(config: Config, twistds_own: bool) -> Lines:
    if twistds_own:
        return TextLines(skip_headers=True)
    if config.log_format == "json":
        return JsonLines()
    return TextLines(config.skip_headers, config.add_dir_header)


def _tell_twisted(data: bytes) -> None:
    for line in data.decode().splitlines():
        log.info("{line}", line=line)


def _outputs(config: Config, twistd: Mapping[str, Any]) -> list[Output]:
    foreground = not twistd or bool(twistd.get("nodaemon"))
    if "logtostderr" in config.given and config.logtostderr and foreground:
        low = 0 if config.legacy_stderr_threshold_behavior else severity(config.stderrthreshold)
        return _standard(sys.__stderr__, low)
    files = _files(config, str(twistd.get("logfile") or ""), foreground)
    if not files:
        return _standard(sys.__stdout__ if twistd.get("logfile") == "-" else sys.__stderr__, 0)
    low = severity(config.stderrthreshold)
    if config.alsologtostderr:
        low = min(low, severity(config.alsologtostderrthreshold))
    return [*files, *(_standard(sys.__stderr__, low) if foreground else [])]


def _files(config: Config, twistds: str, foreground: bool) -> list[Output]:
    most = config.log_file_max_size * 1_000_000 or None
    headed = config.log_format == "text" and not config.skip_log_headers
    head = heading() if headed else b""
    if config.log_dir and not config.log_file:
        return severity_files(config.log_dir, most, head, config.one_output)
    path = config.log_file or twistds or ("" if foreground else "twistd.log")
    if path == "-" and not config.log_file:
        if not foreground:
            raise ValueError("--logfile=-: a daemon has no standard output to log to")
        path = ""
    return [file_output(path, most, head)] if path else []


def _standard(stream: Any, low: int) -> list[Output]:
    """A standard stream as an output; one that was closed when we started is none."""
    return [] if stream is None else [Output(Descriptor(stream.fileno()).write, low)]
