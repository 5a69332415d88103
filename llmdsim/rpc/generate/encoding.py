"""Protobuf's encoding, for messages that are written too often for objects."""

from __future__ import annotations

from collections.abc import Iterable

#: How a field's value is encoded: the low bits of what comes before it.
VARINT, LENGTH_DELIMITED = 0, 2

#: Numbers whose encoding is kept, that nobody's choice of ids fills memory.
MOST_KEPT = 1 << 16


class Varints(dict[int, bytes]):
    """The encodings of numbers from 0 on, by number."""

    def __missing__(self, number: int) -> bytes:
        rest = number
        data = bytearray()
        while rest > 0x7F:
            data.append(rest & 0x7F | 0x80)
            rest >>= 7
        data.append(rest)
        found = bytes(data)
        if len(self) < MOST_KEPT:
            self[number] = found
        return found


_varints = Varints()


def varint(number: int) -> bytes:
    """A number."""
    return _varints[number]


def number(field: int, value: int) -> bytes:
    """A field that is a number; nothing where it is 0, as nothing is what stands for that."""
    return varint(field << 3 | VARINT) + varint(value) if value else b""


def delimited(field: int, data: bytes) -> bytes:
    """A field that is bytes, text or a message."""
    return varint(field << 3 | LENGTH_DELIMITED) + varint(len(data)) + data


def packed(field: int, values: Iterable[int]) -> bytes:
    """A field that is repeated numbers; nothing where there are none."""
    data = b"".join([_varints[value] for value in values])
    return delimited(field, data) if data else b""
