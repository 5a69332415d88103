"""Heads of requests met before, by their bytes: most clients send the same ones again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy

from llmdsim.wire.request import Request

#: How many heads are known at most, and how long one may be, in bytes.
MOST_KNOWN, LONGEST_KNOWN = 512, 2048

_NOT_TO_BE_KNOWN = frozenset((b"upgrade", b"transfer-encoding", b"expect"))


class KnownHeads(dict[bytes, Request]):
    """Requests to copy, by the bytes of their heads without the blank line, which need not be parsed again.

    They have neither channel nor body. `are_plain` tells whether headers make a request plain.
    """

    def __init__(self, are_plain: Callable[[Mapping[bytes, bytes]], bool] | None = None) -> None:
        self._are_plain = are_plain

    def learn(self, head: bytes, request: Request) -> None:
        """Keep the head of a request whose body came with it, unless more than its length depends on it."""
        headers = request.headers
        if (
            len(head) > LONGEST_KNOWN
            or not request.keep_alive
            or request.clientproto != b"HTTP/1.1"
            or not _NOT_TO_BE_KNOWN.isdisjoint(headers)
        ):
            return
        if len(self) >= MOST_KNOWN:
            self.clear()
        self[head] = known = copy(request)
        known.channel = None  # type: ignore[assignment]
        known.body = b""
        known.plain = self._are_plain is not None and self._are_plain(headers)
