"""gRPC's framing of messages, and what its headers and trailers say."""

from __future__ import annotations

import re
import zlib
from collections.abc import Generator, Iterator, Mapping
from enum import IntEnum
from urllib.parse import quote

#: The media type of every call; what serializes the messages may follow it.
CONTENT_TYPE = b"application/grpc"

#: The `route` of requests that are calls.
ROUTE = "gRPC"

#: Bytes before each message: whether it is compressed, and its length.
PREFIX = 5

#: Bytes that are unpacked at once.
INFLATED_AT_ONCE = 1 << 17

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


def only_message(headers: Mapping[bytes, bytes], body: bytes, most: int) -> Generator[None, None, memoryview]:
    """The one message that a body is, however compressed: in steps.

    Raises RpcError for none, for more than one, and as `Messages` does.
    """
    gzip = _is_gzip(headers)
    if not body:
        raise RpcError(Code.UNIMPLEMENTED, "the method takes one message, and none came")
    if len(body) < PREFIX:
        raise _incomplete()
    compressed, length = _prefix(body, most)
    end = PREFIX + length
    if len(body) < end:
        raise _incomplete()
    if len(body) > end:
        # Not read: each of many may be a small gzip of much.
        raise RpcError(Code.UNIMPLEMENTED, "the method takes one message, and more came")
    message = memoryview(body)[PREFIX:]
    if not compressed:
        return message
    if not gzip:
        raise _unexplained()
    data = bytearray()
    for piece in inflated(message, most):
        data += piece
        if len(piece) == INFLATED_AT_ONCE:
            yield
    return memoryview(data)


def inflated(message: bytes | memoryview, most: int) -> Iterator[bytes]:
    """What a gzip holds, in pieces of half a millisecond. Raises RpcError for what is none, or too long."""
    reader = zlib.decompressobj(31)
    size = 0
    for start in range(0, len(message), INFLATED_AT_ONCE):
        # Cut, as what is not read yet is copied each time.
        rest: bytes | memoryview = message[start : start + INFLATED_AT_ONCE]
        more = True
        while more and not reader.eof:
            try:
                piece = reader.decompress(rest, INFLATED_AT_ONCE)
            except zlib.error:
                raise RpcError(Code.INTERNAL, "a message is no gzip") from None
            rest = reader.unconsumed_tail
            more = bool(rest) or len(piece) == INFLATED_AT_ONCE
            size += len(piece)
            if size > most:
                raise _too_long(most)
            yield piece
    if not reader.eof:
        raise RpcError(Code.INTERNAL, "a message is no whole gzip")


def _is_gzip(headers: Mapping[bytes, bytes]) -> bool:
    """Whether messages may be compressed. Raises RpcError where they would be in a way that is not read."""
    encoding = headers.get(b"grpc-encoding", b"identity")
    if encoding not in (b"identity", b"gzip"):
        name = encoding.decode("latin-1")
        raise RpcError(Code.UNIMPLEMENTED, f"messages compressed by {name} are not read", ACCEPTED)
    return encoding == b"gzip"


def _prefix(data: bytes | bytearray, most: int) -> tuple[int, int]:
    """Whether the message that begins there is compressed, and its length."""
    compressed, length = data[0], int.from_bytes(data[1:PREFIX], "big")
    if compressed > 1:
        raise RpcError(Code.INTERNAL, "a message begins with neither 0 nor 1")
    if length > most:
        raise _too_long(most)
    return compressed, length


class Messages:
    """Messages in the bytes of a call, which may come in pieces; each is `most` bytes long at most.

    Raises RpcError for what is none, too long, or compressed as the call does not say.
    """

    def __init__(self, headers: Mapping[bytes, bytes], most: int) -> None:
        self._gzip = _is_gzip(headers)
        self._most = most
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take more of them; the messages that are complete now, which may be left for later."""
        self._data += data
        return self._complete()

    def _complete(self) -> Iterator[bytes]:
        held = self._data
        while len(held) >= PREFIX:
            compressed, length = _prefix(held, self._most)
            end = PREFIX + length
            if len(held) < end:
                return
            message = bytes(held[PREFIX:end])
            del held[:end]
            yield self._decompressed(message) if compressed else message

    def end(self) -> None:
        """Nothing follows. Raises RpcError in the middle of a message."""
        if self._data:
            raise _incomplete()

    def _decompressed(self, message: bytes) -> bytes:
        if not self._gzip:
            raise _unexplained()
        return b"".join(inflated(message, self._most))


def _incomplete() -> RpcError:
    return RpcError(Code.INTERNAL, "the last message is incomplete")


def _unexplained() -> RpcError:
    return RpcError(Code.INTERNAL, "a message is compressed, and no header says how")


def _too_long(most: int) -> RpcError:
    return RpcError(Code.RESOURCE_EXHAUSTED, f"a message is larger than {most} bytes")
