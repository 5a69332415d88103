"""The four functions against worked numbers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdsim.config import MetricFunction, parse_function
from llmdsim.metrics.scripted.functions import value_at

WORKED = {
    "oscillate:0:10:4s": {0: 5, 1: 10, 2: 5, 3: 0, 4: 5, 5: 10, 0.5: 5 + 5 * math.sqrt(0.5), 401: 10},
    "oscillate:10:0:4s": {0: 5, 1: 0, 3: 10, 4.25: 5 - 5 * math.sin(math.pi / 8)},
    "oscillate:3:3:1s": {0: 3, 0.25: 3, 7.7: 3},
    "ramp:10:20:5s": {0: 10, 1: 12, 2.5: 15, 4.5: 19, 5: 20, 5.001: 20, 1e6: 20},
    "ramp:1:0:2s": {0: 1, 0.5: 0.75, 2: 0, 3: 0},
    "rampreset:1:0:2s": {0: 1, 0.5: 0.75, 1.5: 0.25, 2: 1, 3: 0.5, 2001.5: 0.25},
    "rampreset:0:100:250ms": {0: 0, 0.125: 50, 0.25: 0, 0.3125: 25},
    "squarewave:2:8:4s": {0: 2, 1.999: 2, 2: 8, 3.999: 8, 4: 2, 5: 2, 6: 8, 4000: 2, 4002: 8},
}


@pytest.mark.parametrize(
    ("text", "t", "expected"), [(text, t, value) for text, row in WORKED.items() for t, value in row.items()]
)
def test_worked_numbers(text: str, t: float, expected: float) -> None:
    assert value_at(parse_function(text), t) == pytest.approx(expected, abs=1e-9)


@given(
    st.sampled_from(["oscillate", "ramp", "rampreset", "squarewave"]),
    st.floats(0, 1e300),
    st.floats(0, 1e300),
    st.floats(1e-9, 1e9),
    st.floats(0, 1e10),
)
def test_values_stay_between_start_and_end(
    name: str, start: float, end: float, period: float, t: float
) -> None:
    value = value_at(MetricFunction(name, start, end, period), t)
    assert min(start, end) * (1 - 1e-9) <= value <= max(start, end) * (1 + 1e-9)
    if name == "squarewave":
        assert value in (start, end)
    if name == "ramp" and t >= period:
        assert value == end
