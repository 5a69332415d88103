"""Status lines, and the head that every response begins with."""

from __future__ import annotations

import time
from email.utils import formatdate
from http import HTTPStatus

_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


class _Date:
    """The Date header, made anew once a second."""

    __slots__ = ("line", "second")

    def __init__(self) -> None:
        self.second = -1
        self.line = b""


_date = _Date()


def date_line() -> bytes:
    """`Server` and `Date` header lines for now."""
    second = int(time.time())
    if second != _date.second:
        _date.second = second
        _date.line = b"server: llmdsim\r\ndate: %b\r\n" % formatdate(second, usegmt=True).encode()
    return _date.line


def status_line(status: int) -> bytes:
    """`HTTP/1.1 200 OK` with its line end; codes without a known phrase are given without one."""
    return _LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
