"""Canonical CBOR (RFC 8949, 4.2.3) of what block hashes are made of."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from struct import Struct
from typing import TypeAlias

#: Tuples and arrays are written as arrays; a map has one entry, so that no order of keys matters.
Item: TypeAlias = "int | str | bytes | array[int] | tuple[Item, ...] | dict[str, str] | None"

_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP = (kind << 5 for kind in range(6))

_head8 = Struct(">BB").pack
_head16 = Struct(">BH").pack
_head32 = Struct(">BI").pack
_head64 = Struct(">BQ").pack


def cbor(item: Item) -> bytes:
    """`item` in the one canonical form; integers from -2^64 to 2^64 - 1."""
    match item:  # the likeliest first
        case tuple():
            return _head(_ARRAY, len(item)) + b"".join([cbor(part) for part in item])
        case array():
            return _head(_ARRAY, len(item)) + _tokens(item)
        case None:
            return b"\xf6"
        case bytes():
            return _head(_BYTES, len(item)) + item
        case int():
            return _head(_UNSIGNED, item) if item >= 0 else _head(_NEGATIVE, -1 - item)
        case str():
            text = item.encode()
            return _head(_TEXT, len(text)) + text
        case dict():
            return _head(_MAP, len(item)) + b"".join(cbor(part) for entry in item.items() for part in entry)


def _head(kind: int, number: int) -> bytes:
    if number < 24:
        return bytes((kind | number,))
    if number < 1 << 8:
        return _head8(kind | 24, number)
    if number < 1 << 16:
        return _head16(kind | 25, number)
    if number < 1 << 32:
        return _head32(kind | 26, number)
    return _head64(kind | 27, number)


def _tokens(tokens: Iterable[int]) -> bytes:
    # `_head` inlined for unsigned 32-bit integers, the likeliest first: this is most of a block.
    return b"".join(
        [
            _head32(0x1A, token)
            if token > 0xFFFF
            else _head16(0x19, token)
            if token > 0xFF
            else _head8(0x18, token)
            if token > 23
            else bytes((token,))
            for token in tokens
        ]
    )
