"""Frames as bytes (RFC 9113 6)."""

from __future__ import annotations

from struct import Struct

#: What a client of HTTP/2 sends first, before any frame.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

#: Bytes of what every frame begins with.
HEADER = 9

#: The largest frame that we take (SETTINGS_MAX_FRAME_SIZE where nobody sets it), and the largest window.
LARGEST, LARGEST_WINDOW = 16384, 2**31 - 1

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = 0, 1, 2, 3, 4
PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 6, 7, 8, 9

END_STREAM, ACK, END_HEADERS, PADDED, WITH_PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20

_FOUR = Struct(">I").pack
_EIGHT = Struct(">II").pack


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    """A frame."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + _FOUR(stream_id) + payload


def data_head(stream_id: int) -> bytes:
    """What follows the length in DATA frames of a stream that do not end it."""
    return b"\0\0" + _FOUR(stream_id)


#: Kind and flags of a header block in one frame, and of one that ends its stream.
_HEADERS, _LAST_HEADERS = bytes((HEADERS, END_HEADERS)), bytes((HEADERS, END_HEADERS | END_STREAM))


def headers(stream_id: int, block: bytes, end: bool, largest: int) -> bytes:
    """A header block, in frames of at most `largest` bytes; with `end` it ends the stream."""
    size = len(block)
    if size <= largest:
        return size.to_bytes(3, "big") + (_LAST_HEADERS if end else _HEADERS) + _FOUR(stream_id) + block
    flags = END_STREAM if end else 0
    frames = [frame(HEADERS, flags, stream_id, block[:largest])]
    for start in range(largest, size, largest):
        last = start + largest >= size
        frames.append(
            frame(CONTINUATION, END_HEADERS if last else 0, stream_id, block[start : start + largest])
        )
    return b"".join(frames)


def end_stream(stream_id: int) -> bytes:
    """The end of a stream: DATA without any."""
    return frame(DATA, END_STREAM, stream_id, b"")


def rst_stream(stream_id: int, code: int) -> bytes:
    """The end of a stream at once."""
    return frame(RST_STREAM, 0, stream_id, _FOUR(code))


def ping(data: bytes, flags: int = 0) -> bytes:
    """PING, or with the flag ACK its answer."""
    return frame(PING, flags, 0, data)


def goaway(last_stream_id: int, code: int = 0, data: bytes = b"") -> bytes:
    """That the connection is to end, and which request is the last to be answered."""
    return frame(GOAWAY, 0, 0, _EIGHT(last_stream_id, code) + data)


def window_update(stream_id: int, size: int) -> bytes:
    """That so many bytes more may come, on a stream or (0) on all of them together."""
    return frame(WINDOW_UPDATE, 0, stream_id, _FOUR(size))
