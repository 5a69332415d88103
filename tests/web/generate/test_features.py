"""Items of other modalities among a prompt's ids."""

from __future__ import annotations

from typing import Any

import pytest

from tests.web.generate.asking import IDS, answer, ask, frames_of
from tests.web.rig import RankRig

FEATURES = {
    "mm_hashes": {"image": ["a", "b"], "audio": ["c"]},
    "mm_placeholders": {
        "image": [{"offset": 0, "length": 1}, {"offset": 3, "length": 2}],
        "audio": [{"offset": 1, "length": 2}],
    },
}


def check(features: Any, **fields: Any) -> int:
    return ask(RankRig(), features=features, **fields).status


def test_items_that_are_apart_and_within_are_taken() -> None:
    assert check(FEATURES) == 200
    assert check({**FEATURES, "kwargs_data": {"image": ["x", None], "audio": [None]}}) == 200
    assert check({"mm_hashes": {}, "mm_placeholders": {}}) == 200


@pytest.mark.parametrize(
    "change",
    [
        {"mm_hashes": {"image": ["a", "b"]}},
        {"mm_hashes": {"image": ["a"], "audio": ["c"]}},
        {"kwargs_data": {"image": ["x", "y"]}},
        {"kwargs_data": {"image": ["x"], "audio": ["y"]}},
        {"mm_metadata": {"image": [], "audio": [None]}},
        {"mm_metadata": {"image": ["m", None], "audio": [None]}},
    ],
)
def test_lists_that_are_not_parallel_are_refused(change: Any) -> None:
    assert check({**FEATURES, **change}) == 400


@pytest.mark.parametrize(
    "places", [[(0, 3), (2, 1)], [(4, 2)], [(5, 1)], [(0, 0)], [(-1, 1)], [(0, 1)] * 6, [(0, 6)]]
)
def test_items_that_overlap_or_are_outside_are_refused(places: list[tuple[int, int]]) -> None:
    placeholders = [{"offset": offset, "length": length} for offset, length in places]
    features = {"mm_hashes": {"image": ["h"] * len(places)}, "mm_placeholders": {"image": placeholders}}
    assert check(features) == 400


def test_nothing_but_metadata_needs_an_encoder_elsewhere() -> None:
    features = {**FEATURES, "mm_metadata": {"image": ["m", None], "audio": [None]}}
    assert check(features, ec_transfer_params={"x": 1}) == 200
    assert check({**features, "kwargs_data": {"image": ["x", None], "audio": [None]}}) == 200
    assert check(features, ec_transfer_params={}) == 400


def test_parts_and_features_exclude_each_other() -> None:
    parts = [{"type": "image_url", "url": "http://x"}, {"type": "film"}]
    assert check(FEATURES, content_parts=parts) == 400
    assert answer(RankRig(), content_parts=parts)["choices"]


def test_placeholders_come_back_with_the_prompts_ids() -> None:
    rig = RankRig()
    document = answer(rig, features=FEATURES, return_token_ids=True)
    assert document["prompt_token_ids"] == IDS
    assert document["mm_placeholders"] == FEATURES["mm_placeholders"]
    assert answer(rig, features=FEATURES)["mm_placeholders"] is None
    first, *others = frames_of(
        rig, features=FEATURES, return_token_ids=True, sampling_params={"max_tokens": 3, "ignore_eos": True}
    )
    assert list(first) == [
        *("request_id", "usage", "prompt_token_ids", "mm_placeholders", "output_mode", "choices")
    ]
    assert first["mm_placeholders"] == FEATURES["mm_placeholders"]
    assert all("prompt_token_ids" not in frame for frame in others)
