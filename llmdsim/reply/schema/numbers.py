"""Numbers within a schema's bounds and of its multiples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from random import Random

from llmdsim.reply.effort import DeadEndError
from llmdsim.reply.schema.keywords import Number, Part, number

Rational = int | Fraction

_ATTEMPTS = 30
_GREATEST = 1.7e308
_MOST_BITS = 1 << 14


def is_multiple(value: Number, of: Number) -> bool:
    """By division, as most validators have it, so that 0.07 is no multiple of 0.01; and of 0, nothing is."""
    if not of:
        return False
    if isinstance(of, int):
        return value % of == 0
    try:
        quotient = value / of
        return quotient == int(quotient)
    except OverflowError:
        return (Fraction(value) / Fraction(of)).denominator == 1


class Bounds:
    """The bounds of `parts`, None where there is none; `open` ones are not reached themselves."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.low: Number | None = None
        self.high: Number | None = None
        self.low_open = self.high_open = False
        for part in parts:
            self._raise(number(part, "minimum"), part.get("exclusiveMinimum") is True)
            self._raise(number(part, "exclusiveMinimum"), True)
            self._lower(number(part, "maximum"), part.get("exclusiveMaximum") is True)
            self._lower(number(part, "exclusiveMaximum"), True)

    def _raise(self, low: Number | None, is_open: bool) -> None:
        if low is not None and (self.low is None or (low, is_open) > (self.low, self.low_open)):
            self.low, self.low_open = low, is_open

    def _lower(self, high: Number | None, is_open: bool) -> None:
        if high is not None and (self.high is None or (high, not is_open) < (self.high, not self.high_open)):
            self.high, self.high_open = high, is_open

    def hold(self, value: Number) -> bool:
        if self.low is not None and (value < self.low or (self.low_open and value == self.low)):
            return False
        return self.high is None or value < self.high or (value == self.high and not self.high_open)


def write_integer(parts: Sequence[Part], usual: tuple[int, int], random: Random) -> Number:
    """An integer; where the parts leave a bound open, it is that of `usual`. Raises DeadEndError."""
    return _write(parts, 1, usual, random)


def write_number(parts: Sequence[Part], usual: tuple[float, float], random: Random) -> Number:
    """A number, which may be an integer; `usual` as above. Raises DeadEndError."""
    return _write(parts, None, usual, random)


def _write(
    parts: Sequence[Part], step: Rational | None, usual: tuple[Number, Number], random: Random
) -> Number:
    wanted = [of for part in parts if (of := number(part, "multipleOf")) is not None and of > 0]
    try:
        for of in wanted:
            step = _common_multiple(step, Fraction(of if isinstance(of, int) else repr(of)))
        bounds = Bounds(parts)
        if step is None:
            return _any_number(bounds, usual, random)
        return _multiple(bounds, step, wanted, usual, random)
    except OverflowError:
        raise DeadEndError from None


def _any_number(bounds: Bounds, usual: tuple[Number, Number], random: Random) -> Number:
    low, high = _interval(bounds, usual, 1)
    # Beyond these even a difference is too large for a float.
    low, high = float(max(low, -_GREATEST)), float(min(high, _GREATEST))
    for _ in range(_ATTEMPTS):
        share = random.random()
        value = low * (1.0 - share) + high * share
        rounded = round(value, 2)
        if low < rounded < high and high - low >= 1.0:
            value = rounded
        if bounds.hold(value):
            return value
    for bound in (bounds.low, bounds.high):
        if bound is not None and bounds.hold(bound):
            return bound
    raise DeadEndError


def _interval(bounds: Bounds, usual: tuple[Number, Number], room: int) -> tuple[Number, Number]:
    """The bounds and, where they are open, the usual ones, moved where that leaves no `room`."""
    low, high = usual
    width = max(high - low, room)
    if bounds.low is not None:
        low = bounds.low
        if bounds.high is None and high < low + room:
            high = low + width
    if bounds.high is not None:
        high = bounds.high
        if bounds.low is None and low > high - room:
            low = high - width
    if low > high:
        raise DeadEndError
    return low, high


def _multiple(
    bounds: Bounds,
    step: Rational,
    wanted: Sequence[Number],
    usual: tuple[Number, Number],
    random: Random,
) -> Number:
    if step.denominator == 1:
        step = step.numerator
    low, high = _interval(bounds, usual, max(math.ceil(step), 1))
    if step == 1:
        first, last = math.ceil(low), math.floor(high)
    else:
        first, last = math.ceil(Fraction(low) / step), math.floor(Fraction(high) / step)
    if bounds.low is None and bounds.high is None:
        last = max(first, last)
    if bounds.low_open and first * step == bounds.low:
        first += 1
    if bounds.high_open and last * step == bounds.high:
        last -= 1
    if first > last:
        raise DeadEndError
    for attempt in range(_ATTEMPTS):
        factor = random.randint(first, last)
        if attempt > _ATTEMPTS // 2:
            # Where division is not exact, whole numbers are.
            factor -= factor % step.denominator
        exact = factor * step
        value: Number = exact.numerator if exact.denominator == 1 else float(exact)
        if bounds.hold(value) and all(is_multiple(value, of) for of in wanted):
            return value
    raise DeadEndError


def _common_multiple(one: Rational | None, other: Fraction) -> Fraction:
    if one is None:
        return other
    common = math.lcm(one.numerator, other.numerator)
    if common.bit_length() > _MOST_BITS:
        # No float; and to go on with such takes ever longer.
        raise DeadEndError
    return Fraction(common, math.gcd(one.denominator, other.denominator))
