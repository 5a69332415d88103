"""gRPC's framing of messages, and what its headers and trailers say."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from enum import IntEnum
from urllib.parse import quote

#: The media type of every call; what serializes the messages may follow it.
CONTENT_TYPE = b"application/grpc"

#: The `route` of requests that are calls.
ROUTE = "gRPC"

#: Bytes before each message: whether it is compressed, and its length.
PREFIX = 5

#: The header line that tells how messages may be compressed; replies are not.
ACCEPTED = b"grpc-accept-encoding: identity, gzip\r\n"

_TIMEOUT = re.compile(rb"(\d{1,8})([HMSmun])")
_SECONDS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}


class Code(IntEnum):
    """How a call ended."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class RpcError(Exception):
    """What a call ends with: a code, a message, and further trailers as header lines."""

    def __init__(self, code: Code, message: str, trailers: bytes = b"") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.trailers = trailers


def frame(message: bytes) -> bytes:
    """A message as sent, uncompressed."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def status_lines(code: Code, message: str = "") -> bytes:
    """The trailers of a call that ended so."""
    lines = b"grpc-status: %d\r\n" % code
    if message:
        # Percent-encoded UTF-8; what ASCII can show stays (gRPC over HTTP/2).
        text = quote(message, safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~", errors="replace")
        lines += b"grpc-message: %b\r\n" % text.encode()
    return lines


OK_LINES = status_lines(Code.OK)


def timeout(headers: Mapping[bytes, bytes]) -> float:
    """The seconds a call may take, whose caller says so. Raises RpcError for what is no time."""
    match = _TIMEOUT.fullmatch(headers[b"grpc-timeout"])
    if match is None:
        raise RpcError(Code.INTERNAL, "the header grpc-timeout is no time")
    return int(match[1]) * _SECONDS[match[2]]


def whole_message(headers: Mapping[bytes, bytes], body: bytes, most: int) -> bytes | None:
    """The message that a body is, where it is just one and not compressed, as nearly all are."""
    length = len(body) - PREFIX
    if 0 <= length <= most and body[0] == 0 and int.from_bytes(body[1:PREFIX], "big") == length:
        return body[PREFIX:] if b"grpc-encoding" not in headers else None
    return None


class Messages:
    """Messages in the bytes of a call, which may come in pieces; each is `most` bytes long at most.

    Raises RpcError for what is none, too long, or compressed as the call does not say.
    """

    def __init__(self, headers: Mapping[bytes, bytes], most: int) -> None:
        encoding = headers.get(b"grpc-encoding", b"identity")
        if encoding not in (b"identity", b"gzip"):
            name = encoding.decode("latin-1")
            raise RpcError(Code.UNIMPLEMENTED, f"messages compressed by {name} are not read", ACCEPTED)
        self._gzip = encoding == b"gzip"
        self._most = most
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take more of them; the messages that are complete now, which may be left for later."""
        self._data += data
        return self._complete()

    def _complete(self) -> Iterator[bytes]:
        held = self._data
        while len(held) >= PREFIX:
            compressed, length = held[0], int.from_bytes(held[1:PREFIX], "big")
            if compressed > 1:
                raise RpcError(Code.INTERNAL, "a message begins with neither 0 nor 1")
            if length > self._most:
                raise _too_long(self._most)
            end = PREFIX + length
            if len(held) < end:
                return
            message = bytes(held[PREFIX:end])
            del held[:end]
            yield self._decompressed(message) if compressed else message

    @property
    def more(self) -> bool:
        """Whether anything has come behind the last message that was given."""
        return bool(self._data)

    def end(self) -> None:
        """Nothing follows. Raises RpcError in the middle of a message."""
        if self._data:
            raise RpcError(Code.INTERNAL, "the last message is incomplete")

    def _decompressed(self, message: bytes) -> bytes:
        if not self._gzip:
            raise RpcError(Code.INTERNAL, "a message is compressed, and no header says how")
        reader = zlib.decompressobj(31)
        try:
            data = reader.decompress(message, self._most)
        except zlib.error:
            raise RpcError(Code.INTERNAL, "a message is no gzip") from None
        if reader.unconsumed_tail:
            raise _too_long(self._most)
        if not reader.eof:
            raise RpcError(Code.INTERNAL, "a message is no whole gzip")
        return data


def _too_long(most: int) -> RpcError:
    return RpcError(Code.RESOURCE_EXHAUSTED, f"a message is larger than {most} bytes")
