"""Lines of the exposition formats, byte for byte as Python's prometheus_client writes them.

A sample is the same line in the text format 0.0.4 and in OpenMetrics 1.0. Scrapes are frequent: everything
that cannot change between two of them (names, labels, help) is put into a `%`-template once; a scrape then
only fills numbers in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

TEXT = b"text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = b"application/openmetrics-text; version=1.0.0; charset=utf-8"

#: From here on `number` writes an exponent, so `%d.0` no longer gives the same text.
EXPONENT_FROM = 1_000_000


def number(value: float) -> str:
    """A value or `le` bound in Go's short form as prometheus_client imitates it: `10.0`, `1e+06`, `+Inf`."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    text = repr(float(value))
    if value < EXPONENT_FROM or "e" in text:
        return text
    whole, _, fraction = text.partition(".")
    digits = (whole[1:] + fraction).rstrip("0")
    return f"{whole[0]}{'.' if digits else ''}{digits}e+{len(whole) - 1:02d}"


def escape_help(text: str) -> str:
    """Help text on one line."""
    return text.replace("\\", r"\\").replace("\n", r"\n")


def escape_label(value: str) -> str:
    """A label's value as it stands between its quotes."""
    return escape_help(value).replace('"', r"\"")


def series(name: str, labels: Mapping[str, str]) -> str:
    """`name{a="x",b="y"}`, labels in alphabetical order; the bare name where there are none."""
    if not labels:
        return name
    inside = ",".join(f'{label}="{escape_label(labels[label])}"' for label in sorted(labels))
    return f"{name}{{{inside}}}"


def head(name: str, kind: str, help_text: str) -> bytes:
    """The HELP and TYPE lines of a family."""
    return f"# HELP {name} {escape_help(help_text)}\n# TYPE {name} {kind}\n".encode()


def line(name: str, labels: Mapping[str, str], value: float) -> bytes:
    """One sample that stays as it is."""
    return f"{series(name, labels)} {number(value)}\n".encode(errors="replace")


def template(name: str, labels: Mapping[str, str], conversion: str) -> bytes:
    """One sample's line with `conversion` (`%d.0`, `%b`) where its value goes."""
    return f"{series(name, labels).replace('%', '%%')} {conversion}\n".encode(errors="replace")


def histogram_template(
    name: str, labels: Mapping[str, str], bounds: Sequence[float], conversion: str
) -> bytes:
    """The lines of one histogram child: buckets up to +Inf and the count as `conversion`, the sum as `%b`."""
    buckets = (
        template(f"{name}_bucket", {**labels, "le": number(bound)}, conversion)
        for bound in (*bounds, math.inf)
    )
    return b"".join(
        (*buckets, template(f"{name}_count", labels, conversion), template(f"{name}_sum", labels, "%b"))
    )
