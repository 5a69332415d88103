"""The functions of time that a scripted gauge may follow, as text: `ramp:0:10:30s`."""

from __future__ import annotations

import re
from typing import NamedTuple

from llmdsim.config.durations import parse_duration

_NUMBER = r"(\+?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
_FUNCTION = re.compile(rf"(oscillate|ramp|rampreset|squarewave):{_NUMBER}:{_NUMBER}:([^:]+)")

#: The largest value a function may have.
_MOST = 1e300


class MetricFunction(NamedTuple):
    """From `start` to `end` within `period` seconds, in the way that `name` says."""

    name: str
    start: float
    end: float
    period: float


def parse_function(text: str, most: float = _MOST) -> MetricFunction:
    """`name:start:end:period` with values from 0 to `most` and a period above 0. Raises ValueError."""
    found = _FUNCTION.fullmatch(text)
    if found is None:
        raise ValueError(text)
    function = MetricFunction(found[1], float(found[2]), float(found[3]), parse_duration(found[4]))
    if max(function.start, function.end) > most or function.period <= 0:
        raise ValueError(text)
    return function
