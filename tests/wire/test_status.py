"""Status lines, and the date that is made anew once a second."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

import pytest

from llmdsim.wire import status


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (200, b"HTTP/1.1 200 OK\r\n"),
        (404, b"HTTP/1.1 404 Not Found\r\n"),
        (505, b"HTTP/1.1 505 HTTP Version Not Supported\r\n"),
        (499, b"HTTP/1.1 499 \r\n"),
        (599, b"HTTP/1.1 599 \r\n"),
    ],
)
def test_status_lines(code: int, line: bytes) -> None:
    assert status.status_line(code) == line


def test_date_follows_the_clock_by_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000_000_000.0
    monkeypatch.setattr(status.time, "time", lambda: now)
    first = status.date_line()
    assert first == b"server: llmdsim\r\ndate: Sun, 09 Sep 2001 01:46:40 GMT\r\n"
    now += 0.9
    assert status.date_line() is first
    now += 0.2
    later = status.date_line()
    assert later != first
    date = later.decode().splitlines()[1].removeprefix("date: ")
    assert parsedate_to_datetime(date).timestamp() == int(now)
