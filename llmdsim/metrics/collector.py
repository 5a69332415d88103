"""Turns the `Stats` of all ranks into the text of `/metrics`.

One block a family, made once with the text of its names and labels. A child (one a rank) keeps its last text
and renders again only when its numbers moved: a picker that polls every 50 ms pays for what changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Protocol

from llmdsim.engine.stats import Histogram, Stats
from llmdsim.metrics import exposition
from llmdsim.metrics.families import FAMILIES, Distribution, Family, Labelled, Scalar


class Block(Protocol):
    """Whole families, HELP and TYPE lines included."""

    def render(self) -> bytes:
        """The block's text now, ending with a newline."""
        ...


class Collector:
    """Renders every family of the server.

    `model_name` is the first served name; `ranks` pairs each rank's `engine` label with its counters. `extra`
    blocks follow the table's families. `created_series` gives the `_created` gauges that prometheus_client,
    and so vLLM, writes unless PROMETHEUS_DISABLE_CREATED_SERIES is set. `clock` is monotonic, in seconds.
    """

    __slots__ = ("_blocks",)

    def __init__(
        self,
        model_name: str,
        ranks: Sequence[tuple[str, Stats]],
        *,
        extra: Iterable[Block] = (),
        process: bool = True,
        created_series: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        created = time.time() if created_series else None
        self._blocks: list[Block] = []
        if process:
            # Here, not above: tests and tools that want the table alone do not pay for the library.
            from llmdsim.metrics.process import ProcessBlock  # noqa: PLC0415

            self._blocks.append(ProcessBlock(clock))
        labelled = [({"model_name": model_name, "engine": engine}, stats) for engine, stats in ranks]
        self._blocks += [_FamilyBlock(family, labelled, created) for family in FAMILIES]
        self._blocks += extra

    def render(self) -> bytes:
        """The whole page, in the format of `exposition.CONTENT_TYPE`."""
        return b"".join([block.render() for block in self._blocks])


class _FamilyBlock:
    """One family of the table over all ranks."""

    __slots__ = ("_children", "_head", "_tail")

    def __init__(
        self, family: Family, ranks: Sequence[tuple[Mapping[str, str], Stats]], created: float | None
    ) -> None:
        kind = "histogram" if isinstance(family, Distribution) else family.kind
        name = f"{family.name}_total" if kind == "counter" else family.name
        self._head = exposition.head(name, kind, family.help)
        self._children = [_child(family, name, labels, stats) for labels, stats in ranks]
        self._tail = b""
        if created is not None and kind != "gauge":
            companion = f"{family.name}_created"
            lines = (
                exposition.line(companion, labels, created)
                for rank_labels, stats in ranks
                for labels in _label_sets(family, rank_labels, stats)
            )
            self._tail = exposition.head(companion, "gauge", family.help) + b"".join(lines)

    def render(self) -> bytes:
        return b"".join([self._head, *[child.render() for child in self._children], self._tail])


def _label_sets(family: Family, labels: Mapping[str, str], stats: Stats) -> list[Mapping[str, str]]:
    """The labels of each of a family's children on one rank."""
    if isinstance(family, Labelled):
        return [{**labels, family.label: value} for value in family.read(stats)]
    return [labels]


def _child(family: Family, name: str, labels: Mapping[str, str], stats: Stats) -> Block:
    match family:
        case Scalar():
            return _ScalarChild(family, name, labels, stats)
        case Labelled():
            return _LabelledChild(family, name, labels, stats)
        case Distribution():
            return _HistogramChild(family, name, labels, stats)


class _ScalarChild:
    __slots__ = ("_read", "_seen", "_stats", "_template", "_text")

    def __init__(self, family: Scalar, name: str, labels: Mapping[str, str], stats: Stats) -> None:
        self._read = family.read
        self._stats = stats
        self._template = exposition.template(name, labels, "%b")
        self._seen: float | None = None
        self._text = b""

    def render(self) -> bytes:
        value = self._read(self._stats)
        if value != self._seen:
            self._seen = value
            self._text = self._template % exposition.number(value).encode()
        return self._text


class _LabelledChild:
    __slots__ = ("_read", "_seen", "_stats", "_template", "_text")

    def __init__(self, family: Labelled, name: str, labels: Mapping[str, str], stats: Stats) -> None:
        self._read = family.read
        self._stats = stats
        label_sets = _label_sets(family, labels, stats)
        self._template = b"".join(exposition.template(name, each, "%b") for each in label_sets)
        self._seen: tuple[float, ...] = ()
        self._text = b""

    def render(self) -> bytes:
        values = tuple(self._read(self._stats).values())
        if values != self._seen:
            self._seen = values
            self._text = self._template % tuple(exposition.number(value).encode() for value in values)
        return self._text


class _HistogramChild:
    __slots__ = ("_large", "_read", "_seen", "_small", "_stats", "_sum", "_text")

    def __init__(self, family: Distribution, name: str, labels: Mapping[str, str], stats: Stats) -> None:
        self._read: Callable[[Stats], Histogram] = family.read
        self._stats = stats
        bounds = family.read(stats).bounds
        # Below a million a count is its digits and ".0", which one C call writes for all buckets.
        self._small = exposition.histogram_template(name, labels, bounds, "%d.0")
        self._large = exposition.histogram_template(name, labels, bounds, "%b")
        self._seen: list[int] = []
        self._sum = 0.0
        self._text = b""

    def render(self) -> bytes:
        histogram = self._read(self._stats)
        if histogram.counts != self._seen or histogram.sum != self._sum:
            self._seen = histogram.counts.copy()
            self._sum = histogram.sum
            total = exposition.number(self._sum).encode()
            cumulative = list(accumulate(self._seen))
            count = cumulative[-1]
            if count < exposition.EXPONENT_FROM:
                self._text = self._small % (*cumulative, count, total)
            else:
                # Most buckets repeat the one before.
                written = {value: exposition.number(value).encode() for value in set(cumulative)}
                self._text = self._large % (*(written[value] for value in cumulative), written[count], total)
        return self._text
