"""Frames as bytes: cutting a connection's bytes between them, and framing data without h2's bookkeeping."""

from __future__ import annotations

from typing import NamedTuple

#: Bytes of what every frame begins with.
HEADER = 9

#: What a client of HTTP/2 sends first, before any frame.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

#: The largest frame that we take (SETTINGS_MAX_FRAME_SIZE as it is without being set).
LARGEST = 16384

_DATA, _HEADERS, _RST_STREAM = 0, 1, 3


class Portion(NamedTuple):
    """Whole frames: their bytes up to `end`, how many ask for nothing, and how many take a request back."""

    end: int
    idle: int
    resets: int
    #: There are more, or what follows is no frame.
    more: bool


def portion(data: bytes | bytearray, start: int, most: int) -> Portion:
    """The whole frames in `data` from `start` on, up to `most` of them.

    From one that is too large on, all is left to h2 to refuse.
    """
    end, size = start, len(data)
    idle = resets = 0
    for _ in range(most):
        if end + HEADER > size:
            return Portion(end, idle, resets, False)
        length = int.from_bytes(data[end : end + 3], "big")
        if length > LARGEST:
            return Portion(size, idle, resets, False)
        after = end + HEADER + length
        if after > size:
            return Portion(end, idle, resets, False)
        kind = data[end + 3]
        if kind == _RST_STREAM:
            resets += 1
        elif kind > _HEADERS or (kind == _DATA and not length and not data[end + 4] & 1):
            idle += 1
        end = after
    return Portion(end, idle, resets, True)


def data_head(stream_id: int) -> bytes:
    """What follows the length in DATA frames of a stream that do not end it."""
    return b"\0\0" + stream_id.to_bytes(4, "big")
