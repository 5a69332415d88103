"""One family in both formats, its children rendered again only when their numbers moved.

Names and labels become text once: a picker that polls every 50 ms pays for what changed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Literal, Protocol

from llmdsim.metrics import exposition

#: Whether there are `_created` series; prometheus_client, and so vLLM, takes them away by this variable.
CREATED = os.environ.get("PROMETHEUS_DISABLE_CREATED_SERIES", "").lower() not in ("true", "1", "t")

Labels = Mapping[str, str]


class Block(Protocol):
    """Whole families, HELP and TYPE lines included, ending with a newline."""

    def text(self) -> bytes:
        """In the text format 0.0.4."""

    def openmetrics(self) -> bytes:
        """In OpenMetrics 1.0."""


class Buckets(Protocol):
    """Observations by bucket, as `Histogram` has them."""

    bounds: tuple[float, ...]

    @property
    def counts(self) -> list[int]:
        """Not cumulative; the last is that of +Inf."""

    @property
    def sum(self) -> float:
        """Of the values observed."""


class FamilyBlock:
    """One family; `name` is without the `_total` of a counter. A child is shown from when it is added.

    `help_text` has no quotes, which OpenMetrics would escape and the text format would not.
    Else the formats differ in the names of counters, and in where the `_created` lines stand: OpenMetrics has
    them with their children, the text format as a gauge family of their own.
    """

    __slots__ = (
        "_children",
        "_companion_head",
        "_created",
        "_name",
        "_openmetrics_head",
        "_tail",
        "_text_head",
    )

    def __init__(
        self,
        name: str,
        kind: Literal["gauge", "counter", "histogram", "summary"],
        help_text: str,
        *,
        created: bool = True,
    ) -> None:
        self._name = f"{name}_total" if kind == "counter" else name
        self._created = f"{name}_created" if CREATED and created and kind != "gauge" else ""
        self._text_head = exposition.head(self._name, kind, help_text)
        self._openmetrics_head = exposition.head(name, kind, help_text)
        self._companion_head = exposition.head(self._created, "gauge", help_text)
        self._children: list[tuple[Callable[[], bytes], bytes]] = []
        self._tail = b""

    def add_number(self, labels: Labels, read: Callable[[], float]) -> None:
        """Add a gauge's or counter's child."""
        self._add(labels, _Number(self._name, labels, read).render)

    def add_histogram(self, labels: Labels, histogram: Buckets) -> None:
        """Add a histogram's child."""
        self._add(labels, _Distribution(self._name, labels, histogram).render)

    def add_summary(self, labels: Labels, count: Callable[[], int], total: Callable[[], float]) -> None:
        """Add a summary's child, without quantiles."""
        lines = _Number(f"{self._name}_count", labels, count), _Number(f"{self._name}_sum", labels, total)
        self._add(labels, lambda: lines[0].render() + lines[1].render())

    def _add(self, labels: Labels, render: Callable[[], bytes]) -> None:
        created = exposition.line(self._created, labels, time.time()) if self._created else b""
        self._children.append((render, created))
        if created:
            self._tail = (self._tail or self._companion_head) + created

    def text(self) -> bytes:
        return b"".join([self._text_head, *[render() for render, _ in self._children], self._tail])

    def openmetrics(self) -> bytes:
        return b"".join([self._openmetrics_head, *[render() + created for render, created in self._children]])


class LateBlock:
    """A block that is not there until `shown`."""

    __slots__ = ("_block", "_shown")

    def __init__(self, block: Block, shown: Callable[[], bool]) -> None:
        self._block = block
        self._shown = shown

    def text(self) -> bytes:
        return self._block.text() if self._shown() else b""

    def openmetrics(self) -> bytes:
        return self._block.openmetrics() if self._shown() else b""


class _Number:
    __slots__ = ("_read", "_seen", "_template", "_text")

    def __init__(self, name: str, labels: Labels, read: Callable[[], float]) -> None:
        self._read = read
        self._template = exposition.template(name, labels, "%b")
        self._seen: float | None = None
        self._text = b""

    def render(self) -> bytes:
        value = self._read()
        if value != self._seen:
            self._seen = value
            self._text = self._template % exposition.number(value).encode()
        return self._text


class _Distribution:
    __slots__ = ("_histogram", "_large", "_seen", "_small", "_sum", "_text")

    def __init__(self, name: str, labels: Labels, histogram: Buckets) -> None:
        self._histogram = histogram
        # Below a million a count is its digits and ".0", which one C call writes for all buckets.
        self._small = exposition.histogram_template(name, labels, histogram.bounds, "%d.0")
        self._large = exposition.histogram_template(name, labels, histogram.bounds, "%b")
        self._seen: list[int] = []
        self._sum = 0.0
        self._text = b""

    def render(self) -> bytes:
        histogram = self._histogram
        counts = histogram.counts
        if counts != self._seen or histogram.sum != self._sum:
            self._seen = counts.copy()
            self._sum = histogram.sum
            total = exposition.number(self._sum).encode()
            cumulative = list(accumulate(counts))
            count = cumulative[-1]
            if count < exposition.EXPONENT_FROM:
                self._text = self._small % (*cumulative, count, total)
            else:
                # Most buckets repeat the one before.
                written = {value: exposition.number(value).encode() for value in set(cumulative)}
                self._text = self._large % (*(written[value] for value in cumulative), written[count], total)
        return self._text
