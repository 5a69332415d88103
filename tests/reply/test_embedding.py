"""Vectors from tokens: unit length, always the same, alike for like prompts, made in short steps."""

from __future__ import annotations

import json
from collections.abc import Generator
from math import hypot
from random import Random
from struct import pack, unpack
from typing import TypeVar

import msgspec
import pytest

from llmdsim.reply import embedding as module
from llmdsim.reply.embedding import classification, embedding

R = TypeVar("R")


def done(steps: Generator[None, None, R]) -> tuple[R, int]:
    """What the steps make, and how many there were."""
    count = 1
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value, count
        count += 1


def made(ids: list[int], dimensions: int = 384, *, normalized: bool = True) -> list[float]:
    return done(embedding(ids, dimensions, normalized=normalized))[0]


def cosine(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("dimensions", [1, 2, 3, 384, 1536, 8192])
@pytest.mark.parametrize("tokens", [1, 2, 300])
def test_a_vector_has_the_length_asked_for_and_is_a_unit_vector(dimensions: int, tokens: int) -> None:
    ids = [Random(number).getrandbits(32) for number in range(tokens)]
    vector = made(ids, dimensions)
    assert len(vector) == dimensions
    assert hypot(*vector) == pytest.approx(1, abs=2e-6)


def test_the_vector_of_some_tokens_never_changes() -> None:
    assert made([1, 2, 3, 2**32 - 1], 6) == [-0.050065, 0.401266, -0.29217, 0.604515, 0.009714, -0.620954]


def test_two_tokens_that_cancel_each_other_still_make_a_unit_vector() -> None:
    # In one dimension a token's number is one of 256: for some pairs of tokens the sum is 0 but for a bias.
    lengths = {hypot(*made([0, other], 1)) for other in range(2000)}
    assert lengths == {1.0}


def test_numbers_are_their_own_shortest_text_as_float32() -> None:
    for value in made([5, 6, 7], 2048):
        (single,) = unpack("<f", pack("<f", value))
        digits = next(
            n for n in range(1, 10) if unpack("<f", pack("<f", float(f"{single:.{n}g}")))[0] == single
        )
        assert float(f"{single:.{digits}g}") == value
        assert float(msgspec.json.encode(value)) == json.loads(json.dumps(value)) == value


def test_the_more_tokens_two_prompts_share_the_closer_are_their_vectors() -> None:
    base = list(range(100, 140))
    closeness = [
        cosine(made(base), made([*base[:shared], *range(1000, 1040 - shared)]))
        for shared in (40, 30, 20, 10, 0)
    ]
    assert closeness == sorted(closeness, reverse=True)
    assert closeness[0] == pytest.approx(1, abs=1e-5)
    assert closeness[2] == pytest.approx(0.5, abs=0.15)
    assert abs(closeness[-1]) < 0.2


def test_a_token_counts_as_often_as_it_is_there() -> None:
    assert made([1, 1, 1, 2]) == made([2, 1, 1, 1])
    assert cosine(made([1, 1, 1, 2]), made([1])) > cosine(made([1, 2]), made([1]))


def test_a_shorter_vector_is_the_beginning_of_a_longer_one() -> None:
    short, long = made([3, 4, 5], 64), made([3, 4, 5], 512)[:64]
    length = hypot(*long)
    assert [value / length for value in long] == pytest.approx(short, abs=1e-5)


def test_without_activation_the_vector_is_the_mean_of_its_tokens() -> None:
    one, two, both = (made(ids, 32, normalized=False) for ids in ([1], [2], [1, 2]))
    assert both == pytest.approx([(a + b) / 2 for a, b in zip(one, two, strict=True)], abs=2e-3)
    assert hypot(*both) != pytest.approx(1, abs=0.1)
    assert max(map(abs, one)) < 1


def test_a_short_prompt_is_one_step_and_long_ones_are_many() -> None:
    assert done(embedding([1] * 40, 384))[1] == 1
    assert done(embedding(range(2000), 384))[1] > 20
    assert done(embedding([1], 8192))[1] > 4
    assert done(embedding([7] * 100_000, 2))[1] > 10


def test_tokens_beyond_the_room_of_the_sums_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_TOKENS", 3)
    assert made([1, 2, 3, 4, 5]) == made([1, 2, 3])


def test_classes_are_probabilities_and_both_occur() -> None:
    found = [done(classification([number]))[0] for number in range(50)]
    assert all(len(each) == 2 and sum(each) == pytest.approx(1) and min(each) > 0 for each in found)
    assert {each.index(max(each)) for each in found} == {0, 1}
    assert done(classification([1]))[0] == done(classification([1]))[0]


def test_logits_have_the_order_of_their_probabilities() -> None:
    for number in range(20):
        logits = done(classification([number], activated=False))[0]
        probabilities = done(classification([number]))[0]
        assert (logits[0] < logits[1]) == (probabilities[0] < probabilities[1])
        assert hypot(*logits) == pytest.approx(2, abs=1e-5)
