"""Log files: headings, severities, and putting aside."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmdsim.logs.destination import Destination
from llmdsim.logs.files import file_output, heading, rotate_on_signal, severity_files


def test_a_new_file_begins_with_its_heading_and_an_old_one_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    for line in ("1\n", "2\n"):
        Destination([file_output(str(path), None, b"head\n")]).write(0, line)
    assert path.read_text() == "head\n1\n2\n"
    assert heading().startswith(b"llmdsim: log file created at 2")
    assert heading().endswith(b"\n")


def test_a_file_that_has_grown_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    destination = Destination([file_output(str(path), 10, b"head\n")])
    for number in range(3):
        destination.write(0, f"line {number}\n")
    assert path.read_text() == "head\nline 2\n"
    assert (tmp_path / "a.log.1").read_text() == "head\nline 1\n"
    assert (tmp_path / "a.log.2").read_text() == "head\nline 0\n"


def test_a_full_disk_costs_the_heading_too_and_no_more() -> None:
    destination = Destination([file_output("/dev/full", None, b"head\n")])
    destination.write(0, "line\n")


def test_without_a_bound_it_grows(tmp_path: Path) -> None:
    destination = Destination([file_output(str(tmp_path / "a.log"), None, b"")])
    for _ in range(100):
        destination.write(0, "x" * 50_000 + "\n")
    assert os.listdir(tmp_path) == ["a.log"]


@pytest.mark.parametrize(
    ("one_output", "info", "warning", "error"),
    [(False, "0123", "123", "23"), (True, "0", "1", "23")],
)
def test_files_by_severity(tmp_path: Path, one_output: bool, info: str, warning: str, error: str) -> None:
    destination = Destination(severity_files(str(tmp_path), None, b"", one_output))
    for severity in range(4):
        destination.write(severity, str(severity))
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == {"llmdsim.INFO": info, "llmdsim.WARNING": warning, "llmdsim.ERROR": error}


class Reactor:
    def callFromThread(self, call: Callable[[], object]) -> None:
        call()


@pytest.fixture
def _signal() -> Iterator[None]:
    before = signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("_signal")
def test_a_signal_puts_them_aside(tmp_path: Path) -> None:
    outputs = severity_files(str(tmp_path), None, b"", False)
    rotate_on_signal(outputs, Reactor())
    Destination(outputs).write(0, "before\n")
    signal.raise_signal(signal.SIGUSR1)
    Destination(outputs).write(0, "after\n")
    assert (tmp_path / "llmdsim.INFO.1").read_text() == "before\n"
    assert (tmp_path / "llmdsim.INFO").read_text() == "after\n"


@pytest.mark.usefixtures("_signal")
def test_a_signal_somebody_has_is_left_to_them(tmp_path: Path) -> None:
    theirs = lambda number, frame: None  # noqa: E731
    signal.signal(signal.SIGUSR1, theirs)
    rotate_on_signal([file_output(str(tmp_path / "a"), None, b"")], Reactor())
    assert signal.getsignal(signal.SIGUSR1) is theirs
