"""Where the log goes, by klog's flags and twistd's options."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.logger import Logger, capturedLogs

from llmdsim.config import parse
from llmdsim.logs import opening
from llmdsim.logs.destination import FATAL, Output
from llmdsim.logs.opening import is_twistds_own, open_log, rank_log

FOREGROUND = {"nodaemon": True, "logfile": None}
DAEMON = {"nodaemon": False, "logfile": None}


class Stream:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        os.close(self._descriptor)


class Place:
    """A folder to run in; `say` logs one line of each level there, and returns what every file then has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, twistd: dict[str, Any] | None, *flags: str) -> Any:
        return open_log(parse(["m", *flags], {}), twistd)

    def say(self, twistd: dict[str, Any] | None, *flags: str) -> dict[str, str]:
        log = Logger(namespace="llmdsim.tap", observer=self.open(twistd, "--skip-headers", *flags))
        log.info("I")
        log.warn("W")
        log.error("E")
        log.critical("C")
        return {
            path.name: "".join(path.read_text().splitlines())
            for path in self.folder.rglob("*")
            if path.is_file() and path.stat().st_size
        }


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.chdir(tmp_path)
    streams = [Stream(tmp_path / name) for name in ("stderr", "stdout")]
    monkeypatch.setattr(opening.sys, "__stderr__", streams[0])  # type: ignore[attr-defined]
    monkeypatch.setattr(opening.sys, "__stdout__", streams[1])  # type: ignore[attr-defined]
    yield Place(tmp_path)
    for stream in streams:
        stream.close()


HEADLESS = "--skip-log-headers"


@pytest.mark.parametrize(
    ("twistd", "flags", "found"),
    [
        (FOREGROUND, [], {"stderr": "IWEC"}),
        (None, [], {"stderr": "IWEC"}),
        (FOREGROUND, ["--stderrthreshold", "3"], {"stderr": "IWEC"}),
        (FOREGROUND, ["--logtostderr"], {"stderr": "IWEC"}),
        (FOREGROUND, ["--logtostderr=false"], {"stderr": "IWEC"}),
        (FOREGROUND, ["--logtostderr", "--log-file", "f"], {"stderr": "IWEC"}),
        (
            FOREGROUND,
            ["--logtostderr", "--legacy-stderr-threshold-behavior=false", "--stderrthreshold=WARNING"],
            {"stderr": "WEC"},
        ),
        (FOREGROUND, ["--log-file", "f"], {"f": "IWEC", "stderr": "EC"}),
        (FOREGROUND, ["--log-file", "f", "--logtostderr=false"], {"f": "IWEC", "stderr": "EC"}),
        (FOREGROUND, ["--log-file", "f", "--stderrthreshold", "FATAL"], {"f": "IWEC", "stderr": "C"}),
        (FOREGROUND, ["--log-file", "f", "--alsologtostderr"], {"f": "IWEC", "stderr": "IWEC"}),
        (
            FOREGROUND,
            ["--log-file", "f", "--alsologtostderr", "--alsologtostderrthreshold", "1"],
            {"f": "IWEC", "stderr": "WEC"},
        ),
        (
            FOREGROUND,
            ["--log-dir", "."],
            {"llmdsim.INFO": "IWEC", "llmdsim.WARNING": "WEC", "llmdsim.ERROR": "EC", "stderr": "EC"},
        ),
        (
            FOREGROUND,
            ["--log-dir", ".", "--one-output"],
            {"llmdsim.INFO": "I", "llmdsim.WARNING": "W", "llmdsim.ERROR": "EC", "stderr": "EC"},
        ),
        (FOREGROUND, ["--log-dir", ".", "--log-file", "f"], {"f": "IWEC", "stderr": "EC"}),
        ({**FOREGROUND, "logfile": "t"}, [], {"t": "IWEC", "stderr": "EC"}),
        ({**FOREGROUND, "logfile": "-"}, [], {"stdout": "IWEC"}),
        ({**FOREGROUND, "logfile": "t"}, ["--log-file", "f"], {"f": "IWEC", "stderr": "EC"}),
        (DAEMON, [], {"twistd.log": "IWEC"}),
        (DAEMON, ["--logtostderr"], {"twistd.log": "IWEC"}),
        ({**DAEMON, "logfile": "t"}, [], {"t": "IWEC"}),
        (DAEMON, ["--log-file", "f"], {"f": "IWEC"}),
        ({**DAEMON, "logfile": "-"}, ["--log-file", "f"], {"f": "IWEC"}),
    ],
)
def test_lines_go(place: Place, twistd: Any, flags: list[str], found: dict[str, str]) -> None:
    assert place.say(twistd, HEADLESS, *flags) == found


def test_a_file_for_people_has_a_heading_and_one_of_json_has_none(place: Place) -> None:
    assert place.say(FOREGROUND, "--log-file", "f")["f"].startswith("llmdsim: log file created at ")
    assert place.say(FOREGROUND, "--log-file", "g", "--log-format", "json")["g"].startswith('{"time":')


def test_the_bound_of_a_file_is_in_megabytes(place: Place) -> None:
    for name, most, files in (("f", "3", ["f", "f.1"]), ("g", "0", ["g"])):
        write = place.open(FOREGROUND, "--log-file", name, "--log-file-max-size", most).destination.write
        for line in ("a" * 2_999_800, "b" * 200, "c"):
            assert not (place.folder / f"{name}.1").exists()
            write(0, line)
        assert sorted(path.name for path in place.folder.glob(f"{name}*")) == files


def test_a_stderr_that_is_closed_is_no_output(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening.sys, "__stderr__", None)  # type: ignore[attr-defined]
    assert place.say(FOREGROUND) == {}


def test_what_cannot_be_opened_is_told(place: Place) -> None:
    with pytest.raises(OSError, match="No such file"):
        place.open(FOREGROUND, "--log-file", "none/f")
    with pytest.raises(OSError, match="No such file"):
        place.open(FOREGROUND, "--log-dir", "none")
    with pytest.raises(ValueError, match="no standard output"):
        place.open({**DAEMON, "logfile": "-"})


@pytest.mark.parametrize("option", ["logger", "syslog"])
def test_twistds_own_logger_is_told_what_is_written_past_it(place: Place, option: str) -> None:
    twistd = {**FOREGROUND, option: "x"}
    assert is_twistds_own(twistd)
    observer = place.open(twistd, "--log-format", "json", "--log-file", "f")
    with capturedLogs() as events:
        observer.destination.write(0, "a\n")
    assert [event["line"] for event in events] == ["a"]
    assert not (place.folder / "f").exists()
    assert not is_twistds_own(FOREGROUND)


@pytest.mark.parametrize(
    ("flags", "twistds_own", "line"),
    [
        ((), False, "(rank 2) tap: words"),
        (("--log-format", "json"), False, '"logger":"llmdsim.tap","rank":2,"message":"words"'),
        ((), True, "1(rank 2) words"),
    ],
)
def test_lines_of_a_ranks_process_go_to_the_main_one_and_without_it_to_stderr(
    place: Place, flags: tuple[str, ...], twistds_own: bool, line: str
) -> None:
    config = parse(["m", "--data-parallel-rank", "2", "--log-file", "f", *flags], {})
    read, write = os.pipe()
    log = Logger(namespace="llmdsim.tap", observer=rank_log(config, twistds_own, write))
    log.warn("words")
    sent = os.read(read, 1000).decode()
    assert sent.startswith("1")
    assert line in sent
    os.close(read)
    log.warn("words")
    os.close(write)
    assert (place.folder / "stderr").read_text()[-20:] == sent[-20:]
    assert not (place.folder / "f").exists()


def test_an_output_takes_every_severity_by_default() -> None:
    assert (Output(print).low, Output(print).high) == (0, FATAL)
