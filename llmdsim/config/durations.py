"""Durations as text, in Go's form: read from flags and YAML, and printed back."""

import re
from typing import Final

NANOSECONDS: Final = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,  # micro sign
    "\u03bcs": 1_000,  # Greek mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}

LONGEST: Final = 9_223_372_036.0
"""Seconds; what fits the int64 nanoseconds of Go, some 292 years."""

# Digit counts are bounded so that no text costs more than it is long.
_PART = r"(?:[0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})"
_UNIT = "|".join(sorted(NANOSECONDS, key=len, reverse=True))
_PARTS = re.compile(f"({_PART})({_UNIT})")
_DURATION = re.compile(f"([+-]?)((?:{_PART}(?:{_UNIT}))+)")
_BARE = re.compile(f"([+-]?)({_PART})")


def parse_duration(text: str, bare: str = "ms") -> float:
    """Seconds of a duration such as `250ms`, `1.5s`, `1h2m3s` or `-2us`; what is below 1 ns is cut, as in Go.

    A bare number counts in the unit `bare`. Raises ValueError where the text is neither.
    """
    if found := _DURATION.fullmatch(text):
        parts = _PARTS.findall(found[2])
    elif found := _BARE.fullmatch(text):
        parts = [(found[2], bare)]
    else:
        raise ValueError(text)
    total = sum(_scaled(number, NANOSECONDS[unit]) for number, unit in parts)
    return (-total if found[1] == "-" else total) / 1_000_000_000


def format_duration(seconds: float) -> str:
    """The duration as Go prints it: `0s`, `250ms`, `1.5s`, `1m0s`, `2h0m0.5s`; to the nanosecond."""
    numerator, denominator = abs(seconds).as_integer_ratio()
    total = (2 * numerator * 1_000_000_000 + denominator) // (2 * denominator)  # exact, then rounded
    if total == 0:
        return "0s"
    sign = "-" if seconds < 0 else ""
    for unit, size in (("ns", 1), ("\u00b5s", 1_000), ("ms", 1_000_000)):
        if total < size * 1_000:
            return f"{sign}{_decimal(total, size)}{unit}"
    minutes, rest = divmod(total, NANOSECONDS["m"])
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest, NANOSECONDS['s'])}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    if hours:
        text = f"{hours}h{text}"
    return sign + text


def _scaled(number: str, size: int) -> int:
    whole, _, fraction = number.partition(".")
    ten: int = 10 ** len(fraction)
    return int(whole + fraction or "0") * size // ten


def _decimal(total: int, size: int) -> str:
    whole, rest = divmod(total, size)
    if not rest:
        return str(whole)
    digits = len(str(size)) - 1
    return f"{whole}.{rest:0{digits}d}".rstrip("0")
