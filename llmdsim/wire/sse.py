"""Server-sent events as bytes."""

from __future__ import annotations

#: What the response head says of a stream.
CONTENT_TYPE = b"text/event-stream; charset=utf-8"

#: The last event of an OpenAI stream.
DONE = b"data: [DONE]\n\n"


def event(data: bytes) -> bytes:
    """One unnamed event; `data` must not hold a line break."""
    return b"data: %b\n\n" % data
