"""The values of functions of time."""

from __future__ import annotations

import math

from llmdsim.config import MetricFunction


def value_at(function: MetricFunction, t: float) -> float:
    """The value `t` seconds after the function's start.

    `oscillate` is a sine that begins in the middle; `ramp` goes straight and stays at the end; `rampreset`
    jumps back after each period; `squarewave` is at the start for half a period, then at the end.
    """
    name, start, end, period = function
    if name == "ramp":
        return end if t >= period else start + (end - start) * (t / period)
    # Of a period, so that the sine is as exact after a week.
    phase = t % period / period
    match name:
        case "oscillate":
            return (start + end) / 2 + (end - start) / 2 * math.sin(math.tau * phase)
        case "rampreset":
            return start + (end - start) * phase
        case _:
            return start if phase < 0.5 else end
