"""Lines on their way to a pipe, whose reader may lag, stop, or leave."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmdsim.logs import descriptor
from llmdsim.logs.descriptor import Descriptor

SIZE = 8192
LINE = b"x" * 99 + b"\n"


class Pipe:
    """A pipe of two pages."""

    def __init__(self) -> None:
        self.end, start = os.pipe()
        fcntl.fcntl(start, fcntl.F_SETPIPE_SZ, SIZE)
        os.set_blocking(self.end, False)
        self.start = start
        self.written = Descriptor(start)

    def read(self) -> bytes:
        found = b""
        while True:
            try:
                part = os.read(self.end, 65536)
            except BlockingIOError:
                return found
            if not part:
                return found
            found += part


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    monkeypatch.setattr(descriptor, "PATIENCE", 1)
    made = Pipe()
    yield made
    os.close(made.start)
    os.close(made.end)


def test_all_is_written(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda number, data: real(number, data[:3]))
    pipe.written.write(b"0123456789\n")
    assert pipe.read() == b"0123456789\n"


def test_a_file_takes_any_amount(tmp_path: Path) -> None:
    with open(tmp_path / "log", "wb", buffering=0) as file:
        Descriptor(file.fileno()).write(LINE * 5000)
    assert (tmp_path / "log").read_bytes() == LINE * 5000


def test_nobody_waits_for_one_who_does_not_read(pipe: Pipe) -> None:
    pipe.written.write(LINE * 10)
    began = time.monotonic()
    for _ in range(1000):
        pipe.written.write(LINE * 10)
    assert time.monotonic() - began < 1
    assert len(pipe.read()) <= SIZE


def test_lines_stay_apart_when_the_reader_is_back(pipe: Pipe) -> None:
    first = b"a" * 12000 + b"\n"
    pipe.written.write(first)
    pipe.written.write(b"lost\n")
    assert pipe.read() == first[:SIZE]
    pipe.written.write(b"next\n")
    pipe.written.write(b"last\n")
    assert pipe.read() == b"\nnext\nlast\n"


def test_what_is_cut_between_lines_needs_no_new_one(pipe: Pipe) -> None:
    pipe.written.write(b"a" * (SIZE - 1) + b"\n" + b"b" * 5000 + b"\n")
    assert pipe.read() == b"a" * (SIZE - 1) + b"\n"
    pipe.written.write(b"next\n")
    assert pipe.read() == b"next\n"


def test_a_reader_that_left_is_told_by_an_error() -> None:
    end, start = os.pipe()
    os.close(end)
    with pytest.raises(BrokenPipeError):
        Descriptor(start).write(LINE)
    os.close(start)
