"""How much a client may send and how long it may take."""

from __future__ import annotations

from dataclasses import dataclass

#: Bytes of pipelined requests kept unread while one is being answered.
PIPELINE_BYTES = 65536

#: Header lines of one request (vLLM's --h11-max-header-count).
MAX_HEADERS = 256

#: How long and how much we go on reading after refusing a request, lest a reset destroy the answer.
LINGER_SECONDS = 2.0
LINGER_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one listener: sizes in bytes, times in seconds (0 = no limit)."""

    header_size: int = 65536
    body_size: int = 64 << 20
    idle_time: float = 75.0
    serve_half_closed: bool = False
    #: Requests that a connection over HTTP/2 may have under way.
    streams: int = 4096
