"""Heads of requests and responses, as HTTP/2 has them and as `Request` does."""

from __future__ import annotations

from collections.abc import Iterable

from hpack.table import HeaderTable

from llmdsim.wire.request import Request

#: A header or pseudo header.
Header = tuple[bytes, bytes]

#: What only an HTTP/1 connection is told.
_OF_HTTP1 = frozenset((b"connection", b"transfer-encoding", b"keep-alive"))


class RequestHead:
    """The head of a request: `method`, `uri`, and `headers` with names in lower case.

    `size` is what SETTINGS_MAX_HEADER_LIST_SIZE counts, `count` its headers. Of headers that come more than
    once the values are joined, as in HTTP/1; `:authority` is the Host.
    """

    __slots__ = ("continues", "count", "headers", "length", "method", "request", "size", "uri")

    def __init__(self, listed: Iterable[Header]) -> None:
        self.method = self.uri = b"-"
        self.headers: dict[bytes, bytes] = {}
        self.size = self.count = 0
        headers = self.headers
        for name, value in listed:
            self.size += len(name) + len(value) + 32
            self.count += 1
            if name in headers:
                # h2 has seen to it that lengths are the same number.
                if name != b"content-length":
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
        #: The body's length, where it is told, and whether the client waits to be told to send it.
        length = headers.get(b"content-length")
        self.length = None if length is None else int(length)
        #: A request to copy, without channel or body, where such a head has nothing about it that is rare.
        self.request: Request | None = None
        self.continues = headers.get(b"expect", b"").lower() == b"100-continue"


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


#: Blocks that are kept, by the lines they stand for: nearly all heads of a second are the same.
_MOST_KEPT = 256

#: Where names are in HPACK's static table, those whose value does not matter first.
_NAMES = {
    name: index
    for index, (name, _) in reversed(list(enumerate(HeaderTable.STATIC_TABLE, start=1)))
    if not name.startswith(b":") or name == b":status"
}
_PAIRS = {pair: index for index, pair in enumerate(HeaderTable.STATIC_TABLE, start=1) if pair[1]}

#: The first block of a connection begins with this: our side has no dynamic table, whatever the client's has
#: room for.
NO_TABLE = b"\x20"


def _integer(value: int, bits: int, above: int) -> bytes:
    """HPACK's integer with a prefix of so many bits, below the bits of `above` (RFC 7541 5.1)."""
    most = (1 << bits) - 1
    if value < most:
        return bytes((above | value,))
    data = bytearray((above | most,))
    value -= most
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def encoded(listed: Iterable[Header]) -> bytes:
    """A header block that needs no table and changes none: hpack's own take several times as long to make."""
    pieces = []
    for header in listed:
        name, value = header
        index = _PAIRS.get(header)
        if index is not None:
            pieces.append(_integer(index, 7, 0x80))
            continue
        index = _NAMES.get(name)
        pieces.append(b"\0" + _integer(len(name), 7, 0) + name if index is None else _integer(index, 4, 0))
        pieces.append(_integer(len(value), 7, 0) + value)
    return b"".join(pieces)


class _Blocks(dict[bytes, bytes]):
    def __missing__(self, lines: bytes) -> bytes:
        if len(self) >= _MOST_KEPT:
            self.clear()
        made = self[lines] = encoded(response_headers(lines) if lines.startswith(b"HTTP/") else listed(lines))
        return made


_blocks = _Blocks()


def block_of(lines: bytes) -> bytes:
    """The header block for the head of a response, without its blank line, or for lines of trailers."""
    return _blocks[lines]
