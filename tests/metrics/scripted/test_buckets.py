"""Histograms from counts, against worked numbers."""

from __future__ import annotations

import pytest

from llmdsim.engine.stats import token_bounds
from llmdsim.metrics.scripted.buckets import scripted_histogram, scripted_total

BOUNDS = token_bounds(100)


@pytest.mark.parametrize(
    ("counts", "buckets", "total"),
    [
        ([1, 2, 3], [1, 2, 3, 0, 0, 0, 0, 0], 20),
        ([10, 20, 30], [10, 20, 30, 0, 0, 0, 0, 0], 200),
        ([0, 0, 0, 0, 0, 0, 0, 2], [0, 0, 0, 0, 0, 0, 0, 2], 202),
        ([0, 0, 0, 0, 0, 0, 1, 2, 3, 0, 4], [0, 0, 0, 0, 0, 0, 1, 9], 100 + 9 * 101),
        ([0], [0] * 8, 0),
    ],
)
def test_tokens(counts: list[int], buckets: list[int], total: int) -> None:
    histogram = scripted_histogram(counts, BOUNDS)
    assert histogram.counts == buckets
    assert histogram.count == sum(counts)
    assert histogram.sum == total
    assert scripted_total(counts, BOUNDS) == total


def test_a_total_is_made_of_whole_numbers() -> None:
    assert scripted_histogram([1, 1, 2], (0.5, 2.5)).sum == 0.5 + 2.5 + 2 * 3.5
    assert scripted_total([1, 1, 2], (0.5, 2.5)) == 0 + 2 + 2 * 3


def test_the_largest_counts() -> None:
    most = 2**63 - 1
    histogram = scripted_histogram([most] * 9, BOUNDS)
    assert histogram.count == 9 * most
    assert scripted_total([most] * 9, BOUNDS) == (1 + 2 + 5 + 10 + 20 + 50 + 100 + 2 * 101) * most
