"""Histograms from the counts of their buckets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llmdsim.engine.stats import Histogram


def observations(counts: Sequence[int], bounds: Sequence[float]) -> Iterator[tuple[float, int]]:
    """The value that stands for each bucket, and its count, not cumulative.

    The value is the bucket's upper bound; in the bucket of +Inf, to which all further counts belong, it is
    one more than the last bound.
    """
    for place, count in enumerate(counts):
        yield (bounds[place] if place < len(bounds) else bounds[-1] + 1), count


def scripted_histogram(counts: Sequence[int], bounds: Sequence[float]) -> Histogram:
    """A histogram with that many observations in each bucket."""
    histogram = Histogram(bounds)
    for value, count in observations(counts, bounds):
        histogram.observe_times(value, count)
    return histogram


def scripted_total(counts: Sequence[int], bounds: Sequence[float]) -> int:
    """The sum of all observations, each cut to a whole number."""
    return sum(count * int(value) for value, count in observations(counts, bounds))
