"""Long messages, read in steps: protobuf merges pieces as it would have read the whole."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message

from llmdsim.rpc.generate.encoding import LENGTH_DELIMITED, VARINT, delimited
from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.web.context_length import over_context
from llmdsim.web.limits import Limits
from llmdsim.wire.grpc import Code, RpcError

M = TypeVar("M", bound=Message)

#: Bytes of ids that are merged in a third of a millisecond.
PIECE = 1 << 15

#: Fields side by side, where messages have some twenty: each takes a microsecond to look at.
MOST_FIELDS = 1024

_IDS = pb.TokenizedInput.INPUT_IDS_FIELD_NUMBER

#: Bytes of a field that is neither a number nor has its length before it, by the kind of its value.
_SIZES = {1: 8, 5: 4}

#: The bytes of encoded numbers, but for the last of each.
_NOT_LAST = bytes(range(0x80, 0x100))


class _Piece(NamedTuple):
    """A part of a message, and packed ids that follow it in what it ends with."""

    before: memoryview | bytes
    ids: memoryview = memoryview(b"")


class _Field(NamedTuple):
    """From `begin` to `end`; its value is from `value` on."""

    number: int
    kind: int
    begin: int
    value: int
    end: int


def read_long(asks: type[M], data: memoryview, limits: Limits) -> Generator[None, None, M]:
    """The message that `data` is, which has a field `tokenized`.

    The ids in that are merged a piece at a time, anything else in one step: it takes as long as to copy it.
    Raises ApiError 400 for more ids than can fit, before any is made, and RpcError for what is no message.
    """
    tokenized = asks.DESCRIPTOR.fields_by_name["tokenized"].number
    message = asks()
    try:
        pieces = list(_pieces(data, tokenized))
        count = 0
        for piece in pieces:
            for part in _cut(piece.ids):
                count += len(part.translate(None, _NOT_LAST))
                yield
        if count > limits.max_model_len:
            raise over_context(count, limits)
        for piece in pieces:
            message.MergeFromString(bytes(piece.before))
            yield
            for part in _cut(piece.ids):
                message.MergeFromString(delimited(tokenized, delimited(_IDS, part)))
                yield
    except (DecodeError, IndexError, ValueError):
        raise RpcError(Code.INTERNAL, f"the message is no {asks.DESCRIPTOR.full_name}") from None
    return message


def _pieces(data: memoryview, tokenized: int) -> Iterator[_Piece]:
    """All of a message, in order: what is chosen by the last of several fields is so then, too."""
    begin = 0
    for field in _fields(data):
        if field.number != tokenized or field.kind != LENGTH_DELIMITED:
            continue
        yield _Piece(data[begin : field.begin])
        begin = field.end
        within = data[field.value : field.end]
        start = 0
        for inner in _fields(within):
            if inner.number == _IDS and inner.kind == LENGTH_DELIMITED:
                before = delimited(tokenized, bytes(within[start : inner.begin]))
                yield _Piece(before, within[inner.value : inner.end])
                start = inner.end
        yield _Piece(delimited(tokenized, bytes(within[start:])))
    yield _Piece(data[begin:])


def _fields(data: memoryview) -> Iterator[_Field]:
    """Those side by side. Raises ValueError or IndexError for what are none, and RpcError for too many."""
    at = count = 0
    while at < len(data):
        begin = at
        tag, at = _number(data, at)
        kind = tag & 7
        value = at
        if kind == VARINT:
            _, at = _number(data, at)
        elif kind == LENGTH_DELIMITED:
            size, value = _number(data, at)
            at = value + size
        else:
            at += _SIZES.get(kind, len(data))
        count += 1
        if at > len(data):
            raise ValueError("a field has no end")
        if count > MOST_FIELDS:
            raise RpcError(Code.RESOURCE_EXHAUSTED, f"a long message has more than {MOST_FIELDS} fields")
        yield _Field(tag >> 3, kind, begin, value, at)


def _number(data: memoryview, at: int) -> tuple[int, int]:
    """The encoded number there, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number has no end")


def _cut(numbers: memoryview) -> Iterator[bytes]:
    """Packed numbers, in pieces none of which ends within one."""
    start = 0
    while start < len(numbers):
        end = min(start + PIECE, len(numbers))
        while end < len(numbers) and numbers[end - 1] >= 0x80:
            end += 1
        yield bytes(numbers[start:end])
        start = end
