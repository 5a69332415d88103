"""What the head of every response begins with."""

from __future__ import annotations

import time
from email.utils import formatdate
from http import HTTPStatus

_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


class _Openings(dict[int, bytes]):
    """Those of one second, by status."""

    def __init__(self) -> None:
        self.second = -1

    def __missing__(self, status: int) -> bytes:
        date = formatdate(self.second, usegmt=True).encode()
        made = self[status] = b"%bserver: llmdsim\r\ndate: %b\r\n" % (status_line(status), date)
        return made


_openings = _Openings()


def opening(status: int) -> bytes:
    """The status line, and `Server` and `Date` header lines for now."""
    second = int(time.time())
    if second != _openings.second:
        _openings.clear()
        _openings.second = second
    return _openings[status]


def status_line(status: int) -> bytes:
    """`HTTP/1.1 200 OK` with its line end; codes without a known phrase are given without one."""
    return _LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
