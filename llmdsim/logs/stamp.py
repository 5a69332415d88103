"""The time at the head of a line, whose text is made once a second."""

from __future__ import annotations

import time

_MILLISECONDS = [f".{millisecond:03d}" for millisecond in range(1000)]


class Stamp:
    """Unix seconds as local time to the millisecond: `2026-11-30 10:43:49.123`, or RFC 3339 with its zone.

    It stands between `before` and `after`.
    """

    __slots__ = ("_after", "_before", "_rfc3339", "_second", "_text", "_zone")

    def __init__(self, before: str = "", after: str = "", rfc3339: bool = False) -> None:
        self._before = before
        self._after = self._zone = after
        self._rfc3339 = rfc3339
        self._second = -1
        self._text = ""

    def __call__(self, when: float) -> str:
        second = int(when)
        if second != self._second:
            self._begin(second)
        return self._text + _MILLISECONDS[int((when - second) * 1000)] + self._zone

    def _begin(self, second: int) -> None:
        local = time.localtime(second)
        self._text = self._before + time.strftime(
            "%Y-%m-%dT%H:%M:%S" if self._rfc3339 else "%Y-%m-%d %H:%M:%S", local
        )
        if self._rfc3339:
            zone = time.strftime("%z", local)
            self._zone = f"{zone[:3]}:{zone[3:5]}{self._after}"
        self._second = second
