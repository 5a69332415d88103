"""Vectors as bytes, in the number formats and byte orders that clients may ask for."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from struct import pack as packed
from struct import unpack
from typing import Literal

EmbedDtype = Literal["float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2"]
Endianness = Literal["native", "big", "little"]


def pack(values: Sequence[float], dtype: EmbedDtype, endianness: Endianness) -> bytes:
    """`values`, each at most 2 in size, as numbers of one format right after another.

    They are rounded to the nearest, of two equally near ones to the even one.
    """
    order = ">" if (sys.byteorder if endianness == "native" else endianness) == "big" else "<"
    match dtype:
        case "float32":
            return packed(f"{order}{len(values)}f", *values)
        case "float16":
            return packed(f"{order}{len(values)}e", *values)
        case "bfloat16":
            # The upper half of a float32.
            bits = unpack(f"<{len(values)}I", packed(f"<{len(values)}f", *values))
            return packed(f"{order}{len(values)}H", *((b + 0x7FFF + (b >> 16 & 1)) >> 16 for b in bits))
        case "fp8_e4m3":
            return _eights(values, _E4M3_MIDDLES)
        case "fp8_e5m2":
            return _eights(values, _E5M2_MIDDLES)


def float32(values: Iterable[float]) -> list[float]:
    """Each value as float32 has it."""
    return array("f", values).tolist()


def _eights(values: Sequence[float], middles: Sequence[float]) -> bytes:
    codes = bytearray()
    for value in values:
        size = abs(value)
        code = bisect_left(middles, size)
        if code & 1 and middles[code] == size:
            code += 1
        codes.append(code | 0x80 if value < 0 else code)
    return bytes(codes)


def _e4m3(code: int) -> float:
    exponent, fraction = code >> 3, code & 7
    return float(fraction * 2**-9 if not exponent else (8 + fraction) * 2.0 ** (exponent - 10))


def _e5m2(code: int) -> float:
    number: float = unpack("<e", packed("<H", code << 8))[0]
    return number


# Between each number of eight bits and the next, in the order of their codes.
_E4M3_MIDDLES = [(one + other) / 2 for one, other in pairwise(map(_e4m3, range(0x7F)))]
_E5M2_MIDDLES = [(one + other) / 2 for one, other in pairwise(map(_e5m2, range(0x7C)))]
