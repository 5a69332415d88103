"""Heads of requests and responses, as HTTP/2 has them and as `Request` does."""

from __future__ import annotations

from collections.abc import Iterable

#: A header or pseudo header.
Header = tuple[bytes, bytes]

#: What only an HTTP/1 connection is told.
_OF_HTTP1 = frozenset((b"connection", b"transfer-encoding", b"keep-alive"))


class RequestHead:
    """The head of a request: `method`, `uri`, and `headers` with names in lower case.

    `size` is what SETTINGS_MAX_HEADER_LIST_SIZE counts, `count` its headers. Of headers that come more than
    once the values are joined, as in HTTP/1; `:authority` is the Host.
    """

    __slots__ = ("count", "headers", "method", "size", "uri")

    def __init__(self, listed: Iterable[Header]) -> None:
        self.method = self.uri = b"-"
        self.headers: dict[bytes, bytes] = {}
        self.size = self.count = 0
        headers = self.headers
        for name, value in listed:
            self.size += len(name) + len(value) + 32
            self.count += 1
            if name in headers:
                headers[name] += (b"; " if name == b"cookie" else b", ") + value
            elif not name.startswith(b":"):
                # Copies: hpack gives types of its own.
                headers[bytes(name)] = bytes(value)
            elif name == b":method":
                self.method = bytes(value)
            elif name == b":path":
                self.uri = bytes(value)
            elif name == b":authority":
                headers.setdefault(b"host", bytes(value))


def listed(lines: bytes) -> list[Header]:
    """Header lines, each with its line end, as pairs."""
    headers = []
    for line in lines.split(b"\r\n"):
        name, found, value = line.partition(b": ")
        if found and (name := name.lower()) not in _OF_HTTP1:
            headers.append((name, value))
    return headers


def response_headers(head: bytes) -> list[Header]:
    """The head of a response as written for HTTP/1, without its blank line."""
    line, _, lines = head.partition(b"\r\n")
    return [(b":status", line[9:12]), *listed(lines)]
