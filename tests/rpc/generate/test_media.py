"""Media beside ids: what is found in the KV cache, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rpc.generate.asking import only, refusal
from tests.web.rig import RankRig

IDS = {"input_ids": list(range(1, 20))}
PIXELS = {"inline": b"\0" * 24, "shape": [2, 3], "dtype": "float32"}
CACHE = ("--enable-kvcache", "--block-size", "8")


def batch(*hashes: str, **fields: Any) -> dict[str, Any]:
    """Items of four tokens, one after another."""
    places = [{"offset": 4 * place, "length": 4} for place in range(len(hashes))]
    return {"pixel_values": PIXELS, "mm_placeholders": places, "mm_hashes": hashes, **fields}


def cached(rig: RankRig, **fields: Any) -> int:
    return only(rig, tokenized=IDS, **fields).cached_tokens


def test_other_pixels_are_another_prompt() -> None:
    rig = RankRig(*CACHE)
    assert cached(rig, mm_inputs=batch("a")) == 0
    assert cached(rig, mm_inputs=batch("b")) == 0
    assert cached(rig) == 0
    assert cached(rig, mm_inputs=batch("a")) == 16
    assert cached(rig, extra_mm_inputs=[batch("a")]) == 16


def test_hashes_alone_are_a_salt() -> None:
    rig = RankRig(*CACHE)
    assert cached(rig, mm_inputs={"mm_hashes": ["a", "b"]}) == 0
    assert cached(rig, mm_inputs={"mm_hashes": ["a", "c"]}) == 0
    assert cached(rig) == 0
    assert cached(rig, mm_inputs={"mm_hashes": ["a"]}, extra_mm_inputs=[{"mm_hashes": ["b"]}]) == 16


def test_nothing_in_a_batch_is_nothing() -> None:
    rig = RankRig(*CACHE)
    assert cached(rig, mm_inputs={}) == 0
    assert cached(rig) == 16


def test_batches_beside_a_text_are_passed_over() -> None:
    assert only(RankRig(), text="a b", mm_inputs={"pixel_values": {"dtype": "x"}}).prompt_tokens == 2


def test_a_batch_for_each_modality() -> None:
    video = batch("v", modality=3)
    video["mm_placeholders"] = [{"offset": 8, "length": 4}]
    rig = RankRig(*CACHE)
    assert cached(rig, mm_inputs=batch("a"), extra_mm_inputs=[video]) == 0
    assert cached(rig, mm_inputs=batch("b"), extra_mm_inputs=[video]) == 0
    video["mm_hashes"] = ["w"]
    assert cached(rig, mm_inputs=batch("a"), extra_mm_inputs=[video]) == 8


def test_embeddings_that_are_elsewhere_need_transfer_parameters() -> None:
    fields = batch("a", model_specific_tensors={"grid": {**PIXELS, "dtype": "int64", "shape": [3]}})
    del fields["pixel_values"]
    assert "kv_transfer_params" in refusal(RankRig(), tokenized=IDS, mm_inputs=fields)
    params = '{"do_remote_prefill": true}'
    assert (
        only(RankRig(), tokenized=IDS, mm_inputs=fields, kv_transfer_params_json=params).prompt_tokens == 19
    )


@pytest.mark.parametrize(
    "tensor",
    [
        {},
        {**PIXELS, "dtype": "float64"},
        {**PIXELS, "dtype": ""},
        {**PIXELS, "shape": [2, 4]},
        {**PIXELS, "shape": []},
        {**PIXELS, "shape": [2, 3] + [1] * 63},
        {**PIXELS, "shape": [2**32 - 1] * 64},
        {"shape": [2, 3], "dtype": "float32"},
        {"shape": [2, 3], "dtype": "float32", "shm": {"name": "x", "nbytes": 24}},
        {"shape": [2, 3], "dtype": "float32", "remote": {"transport": "x"}},
    ],
)
def test_tensors_that_cannot_be_are_refused(tensor: Any) -> None:
    assert "Tensor" in refusal(RankRig(), tokenized=IDS, mm_inputs=batch("a", pixel_values=tensor))


@pytest.mark.parametrize(
    "change",
    [
        {"mm_hashes": []},
        {"mm_hashes": [], "mm_placeholders": [{"offset": 0, "length": 4}]},
        {"mm_hashes": ["a", "b"]},
        {"mm_placeholders": [{"offset": 0, "length": 0}]},
        {"mm_placeholders": [{"offset": 16, "length": 4}]},
        {"mm_placeholders": [{"offset": 2**32 - 1, "length": 2**32 - 1}]},
        {
            "mm_hashes": ["a", "b"],
            "mm_placeholders": [{"offset": 0, "length": 4}, {"offset": 3, "length": 1}],
        },
    ],
)
def test_items_that_are_misplaced_are_refused(change: Any) -> None:
    assert refusal(RankRig(), tokenized=IDS, mm_inputs=batch("a", **change))


def test_each_batch_has_a_hash_for_each_of_its_items() -> None:
    more, less = batch("a", "b"), batch("c", encoder_input_key="other")
    less["mm_placeholders"] = [{"offset": 8, "length": 4}]
    assert only(RankRig(), tokenized=IDS, mm_inputs=more, extra_mm_inputs=[less]).prompt_tokens == 19
    more["mm_hashes"], less["mm_hashes"] = ["a"], ["b", "c"]
    assert "same length" in refusal(RankRig(), tokenized=IDS, mm_inputs=more, extra_mm_inputs=[less])


def test_tensors_of_one_name_are_refused() -> None:
    assert "Two batches" in refusal(RankRig(), tokenized=IDS, mm_inputs=batch("a"), extra_mm_inputs=[batch()])
    other = batch(encoder_input_key="audio")
    assert only(RankRig(), tokenized=IDS, mm_inputs=batch("a"), extra_mm_inputs=[other]).prompt_tokens == 19


def test_hashes_without_end_are_refused() -> None:
    for hashes in (["x" * 70_000], [""] * 70_000):
        assert "65536" in refusal(RankRig(), mm_inputs={"mm_hashes": hashes})


def test_batches_tensors_and_items_without_end_are_refused() -> None:
    assert "16 batches" in refusal(RankRig(), extra_mm_inputs=[{}] * 17)
    assert only(RankRig(), mm_inputs={}, extra_mm_inputs=[{}] * 15).prompt_tokens == 5
    tensors = {f"t{number}": PIXELS for number in range(257)}
    assert "256 tensors" in refusal(RankRig(), mm_inputs=batch("a", model_specific_tensors=tensors))
    many = [{"offset": 0, "length": 1}] * 6
    assert "more items" in refusal(RankRig(), mm_inputs=batch("a", mm_placeholders=many))


def test_references_are_refused() -> None:
    items = {"items": [{"modality": 1, "url": "http://x/a.jpg"}]}
    assert "media_refs" in refusal(RankRig(), tokenized=IDS, media_refs=items)
    assert "media_refs" in refusal(RankRig(), text="a b", media_refs={})
