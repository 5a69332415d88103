"""Outputs by severity, lines that wait, and what cannot be written."""

from __future__ import annotations

from llmdsim.logs.destination import Destination, Marked, Output
from tests.logs.rig import Log, Memory


def test_outputs_take_their_severities() -> None:
    low: list[bytes] = []
    high: list[bytes] = []
    destination = Destination([Output(low.append, 0, 1), Output(high.append, 1)])
    for severity in range(4):
        destination.write(severity, f"{severity}\n")
    assert low == [b"0\n", b"1\n"]
    assert high == [b"1\n", b"2\n", b"3\n"]


def test_lines_that_wait_come_before_the_next_one_in_one_write() -> None:
    log = Log()
    log.destination.waiting.append(iter(["a\nb\n", "", ""]).__next__)
    assert log.writes == []
    log.logger().warn("c")
    assert log.writes[0] == b"a\nb\n"
    assert len(log.writes) == 2
    log.destination.flush()
    assert len(log.writes) == 2


def test_at_the_end_nothing_waits() -> None:
    memory = Memory()
    memory.destination.waiting.append(lambda: "a\n")
    memory.destination.end()
    assert memory.text == "a\n"
    assert memory.destination.ending


def test_an_output_that_fails_hurts_nobody() -> None:
    def full(data: bytes) -> None:
        raise OSError(28, "No space left on device")

    kept: list[bytes] = []
    Destination([Output(full), Output(kept.append)]).write(0, "a\ud800\n")
    assert kept == [b"a\\ud800\n"]


def test_lines_for_another_process_are_marked_each_with_its_severity() -> None:
    writes: list[bytes] = []
    destination = Destination(Marked(writes.append).outputs)
    destination.write(0, "a\n")
    destination.write(2, "b\n    Traceback\n")
    destination.waiting.append(iter(["c\nd\n", ""]).__next__)
    destination.write(3, "e\n")
    assert writes == [b"0a\n", b"2b\n2    Traceback\n", b"0c\n0d\n", b"3e\n"]


def test_and_written_there_where_their_severity_belongs() -> None:
    low: list[bytes] = []
    high: list[bytes] = []
    destination = Destination([Output(low.append, 0, 1), Output(high.append, 2, 3)])
    destination.waiting.append(iter(["mine\n", ""]).__next__)
    destination.relay([b"0a", b"0b\xff", b"2c", b"2    Traceback", b"1d"])
    assert low == [b"mine\n", b"a\nb\\xff\n", b"d\n"]
    assert high == [b"c\n    Traceback\n"]
