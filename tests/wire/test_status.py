"""What heads of responses begin with: status lines, and the date that is made anew once a second."""

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
    first = status.opening(200)
    assert first == b"HTTP/1.1 200 OK\r\nserver: llmdsim\r\ndate: Sun, 09 Sep 2001 01:46:40 GMT\r\n"
    now += 0.9
    assert status.opening(200) is first
    assert status.opening(404) == first.replace(b"200 OK", b"404 Not Found")
    now += 0.2
    for code in (200, 404):
        later = status.opening(code)
        assert later.startswith(status.status_line(code))
        date = later.decode().splitlines()[2].removeprefix("date: ")
        assert parsedate_to_datetime(date).timestamp() == int(now)
