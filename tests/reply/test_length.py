"""The rules for the length of random replies."""

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdsim.reply.length import (
    peer_bucket,
    peer_length,
    readme_bucket,
    readme_length,
    uniform,
    unrequested_length,
)

RULES = [readme_length, peer_length, unrequested_length, uniform]
WEIGHTS = (0.20, 0.30, 0.20, 0.05, 0.10, 0.15)
DRAWS = 20_000


class Scripted(Random):
    """Gives the numbers it was told to."""

    def __init__(self, *numbers: float) -> None:
        super().__init__(0)
        self.numbers = list(numbers)

    def random(self) -> float:
        return self.numbers.pop(0)

    def gauss(self, mu: float = 0.0, sigma: float = 1.0) -> float:
        return mu + sigma * self.numbers.pop(0)


@pytest.mark.parametrize(
    ("most", "buckets"),
    [
        (6, [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6)]),
        (47, [(1, 7), (8, 15), (16, 23), (24, 31), (32, 39), (40, 47)]),
        (120, [(1, 20), (21, 40), (41, 60), (61, 80), (81, 100), (101, 120)]),
        (121, [(1, 20), (21, 40), (41, 60), (61, 81), (82, 101), (102, 121)]),
        (200, [(1, 20), (21, 40), (41, 60), (61, 160), (161, 180), (181, 200)]),
        (1000, [(1, 20), (21, 40), (41, 60), (61, 960), (961, 980), (981, 1000)]),
    ],
)
def test_buckets_of_the_readme(most: int, buckets: list[tuple[int, int]]) -> None:
    assert [readme_bucket(most, index) for index in range(6)] == buckets


@given(st.integers(6, 5000))
def test_readme_buckets_cover_every_length_once(most: int) -> None:
    buckets = [readme_bucket(most, index) for index in range(6)]
    assert [length for low, high in buckets for length in range(low, high + 1)] == list(range(1, most + 1))


@pytest.mark.parametrize(
    ("most", "buckets"),
    [
        (7, [(1, 1), (2, 2), (3, 3), (4, 4), (5, 6)]),
        (47, [(1, 9), (10, 18), (19, 27), (28, 36), (37, 46)]),
        (50, [(1, 9), (10, 19), (20, 29), (30, 39), (40, 49)]),
        (101, [(1, 20), (21, 40), (41, 60), (61, 80), (81, 100)]),
        (102, [(1, 20), (21, 40), (41, 60), (61, 82), (83, 101)]),
        (200, [(1, 20), (21, 40), (41, 60), (61, 180), (181, 199)]),
        (500, [(1, 20), (21, 40), (41, 60), (61, 480), (481, 499)]),
    ],
)
def test_buckets_of_the_peers_code(most: int, buckets: list[tuple[int, int]]) -> None:
    assert [peer_bucket(most, index) for index in range(5)] == buckets


@pytest.mark.parametrize(
    ("draw", "bucket"),
    [(0.0, 0), (0.19, 0), (0.21, 1), (0.49, 1), (0.51, 2), (0.69, 2), (0.71, 3), (0.74, 3), (0.76, 4),
     (0.84, 4), (0.86, 5), (0.999, 5)],
)  # fmt: skip
def test_draws_choose_buckets_by_weight(draw: float, bucket: int) -> None:
    low, high = readme_bucket(200, bucket)
    assert readme_length(200, Scripted(draw, 0.0)) == low
    assert readme_length(200, Scripted(draw, 0.9999)) == high
    if bucket < 5:
        low, high = peer_bucket(200, bucket)
        assert peer_length(200, Scripted(draw, 0.0)) == low
        assert peer_length(200, Scripted(draw, 0.9999)) == high
    else:
        assert peer_length(200, Scripted(draw)) == 200


@given(
    rule=st.sampled_from(RULES),
    most=st.integers(1, 300) | st.integers(1, 2**31),
    seed=st.integers(0, 2**32),
)
def test_lengths_stay_in_bounds(rule: Callable[[int, Random], int], most: int, seed: int) -> None:
    random = Random(seed)
    assert all(1 <= rule(most, random) <= most for _ in range(20))


@pytest.mark.parametrize("most", [1, 2, 5])
@pytest.mark.parametrize("rule", RULES)
def test_small_maxima_are_uniform(rule: Callable[[int, Random], int], most: int) -> None:
    random = Random(3)
    counts = Counter(rule(most, random) for _ in range(DRAWS))
    assert set(counts) == set(range(1, most + 1))
    assert all(abs(count / DRAWS - 1 / most) < 0.02 for count in counts.values())


@pytest.mark.parametrize("most", [47, 120, 200, 2000])
def test_readme_weights(most: int) -> None:
    random = Random(4)
    lengths = [readme_length(most, random) for _ in range(DRAWS)]
    for index, weight in enumerate(WEIGHTS):
        low, high = readme_bucket(most, index)
        share = sum(low <= length <= high for length in lengths) / DRAWS
        assert share == pytest.approx(weight, abs=0.02)


@pytest.mark.parametrize("most", [47, 101, 200, 2000])
def test_peer_weights(most: int) -> None:
    random = Random(5)
    lengths = [peer_length(most, random) for _ in range(DRAWS)]
    assert lengths.count(most) / DRAWS == pytest.approx(0.15, abs=0.02)
    for index, weight in enumerate(WEIGHTS[:5]):
        low, high = peer_bucket(most, index)
        share = sum(low <= length <= high for length in lengths) / DRAWS
        assert share == pytest.approx(weight, abs=0.02)


def test_unrequested_lengths_are_gaussian() -> None:
    random = Random(6)
    lengths = [unrequested_length(1000, random) for _ in range(DRAWS)]
    mean = sum(lengths) / DRAWS
    deviation = (sum((length - mean) ** 2 for length in lengths) / DRAWS) ** 0.5
    assert mean == pytest.approx(41.3, abs=1)  # a little above 40: what falls below 1 is drawn again
    assert deviation == pytest.approx(18.9, abs=1)


def test_unrequested_lengths_outside_are_drawn_again() -> None:
    assert unrequested_length(50, Scripted(-3.0, 0.51, -1.97, 0.12)) == 1 + 49 - 8  # 40 + 20 * 0.12, rounded
    assert unrequested_length(50, Scripted(-1.95)) == 1
    assert unrequested_length(50, Scripted(0.025)) == 41  # halves go up
