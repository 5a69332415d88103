"""Number formats: each against its definition, and both byte orders."""

from __future__ import annotations

import sys
from random import Random
from struct import pack as struct_pack
from struct import unpack

import pytest

from llmdsim.web.pooling.encoding import EmbedDtype, float32, pack

VALUES = [
    0.0,
    1.0,
    -1.0,
    0.5,
    -0.25,
    2.0,
    0.001953125,
    1e-6,
    -0.062409,
    0.123456,
    *(Random(1).uniform(-1, 1) for _ in range(200)),
]


def e4m3(code: int) -> float:
    sign = -1.0 if code & 0x80 else 1.0
    exponent, fraction = code >> 3 & 15, code & 7
    return sign * (fraction / 8 * 2.0**-6 if exponent == 0 else (1 + fraction / 8) * 2.0 ** (exponent - 7))


def e5m2(code: int) -> float:
    sign = -1.0 if code & 0x80 else 1.0
    exponent, fraction = code >> 2 & 31, code & 3
    return sign * (fraction / 4 * 2.0**-14 if exponent == 0 else (1 + fraction / 4) * 2.0 ** (exponent - 15))


def bfloat16(data: bytes) -> list[float]:
    return [unpack("<f", b"\0\0" + data[at : at + 2])[0] for at in range(0, len(data), 2)]


def test_float32_and_float16_are_the_standards() -> None:
    assert pack(VALUES, "float32", "little") == struct_pack(f"<{len(VALUES)}f", *VALUES)
    assert pack(VALUES, "float16", "little") == struct_pack(f"<{len(VALUES)}e", *VALUES)


def test_bfloat16_is_the_nearest() -> None:
    found = bfloat16(pack(VALUES, "bfloat16", "little"))
    assert found == pytest.approx(VALUES, rel=2**-8, abs=1e-12)
    # Halfway between two: to the even one, down and up.
    assert bfloat16(pack([1 + 2**-8, 1 + 3 * 2**-8], "bfloat16", "little")) == [1.0, 1 + 2**-6]


@pytest.mark.parametrize(("dtype", "value_of"), [("fp8_e4m3", e4m3), ("fp8_e5m2", e5m2)])
def test_eight_bits_are_the_nearest_of_all(dtype: EmbedDtype, value_of: object) -> None:
    assert callable(value_of)
    top = 0x7F if dtype == "fp8_e4m3" else 0x7C
    all_values = [value_of(code | sign) for code in range(top) for sign in (0, 0x80)]
    for value, code in zip(VALUES, pack(VALUES, dtype, "native"), strict=True):
        assert abs(value_of(code) - value) == min(abs(each - value) for each in all_values)


@pytest.mark.parametrize(
    ("dtype", "tie", "expected"),
    [
        ("fp8_e4m3", 1.0625, 1.0),
        ("fp8_e4m3", 1.1875, 1.25),
        ("fp8_e5m2", 1.125, 1.0),
        ("fp8_e5m2", 1.375, 1.5),
    ],
)
def test_eight_bits_halfway_go_to_the_even_one(dtype: EmbedDtype, tie: float, expected: float) -> None:
    value_of = e4m3 if dtype == "fp8_e4m3" else e5m2
    assert value_of(pack([tie], dtype, "little")[0]) == expected
    assert value_of(pack([-tie], dtype, "little")[0]) == -expected


@pytest.mark.parametrize(
    ("dtype", "width"), [("float32", 4), ("float16", 2), ("bfloat16", 2), ("fp8_e4m3", 1)]
)
def test_the_other_byte_order_turns_each_number_round(dtype: EmbedDtype, width: int) -> None:
    little, big = pack(VALUES, dtype, "little"), pack(VALUES, dtype, "big")
    assert len(little) == width * len(VALUES)
    assert big == b"".join(little[at : at + width][::-1] for at in range(0, len(little), width))
    assert pack(VALUES, dtype, "native") == (little if sys.byteorder == "little" else big)


def test_values_as_float32_has_them() -> None:
    assert float32([0.1, 1.0]) == [0.10000000149011612, 1.0]
