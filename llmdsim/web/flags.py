"""Headers that are flags."""

from __future__ import annotations

from typing import Final

from llmdsim.wire.request import Request

#: What they have for true (Go's strconv.ParseBool).
_TRUE: Final = frozenset((b"1", b"t", b"T", b"TRUE", b"true", b"True"))


def is_set(request: Request, header: bytes) -> bool:
    """Whether a header of the request is true."""
    return request.headers.get(header) in _TRUE
