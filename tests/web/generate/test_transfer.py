"""Disaggregated prefill on the generate route."""

from __future__ import annotations

from typing import Any

import pytest

from tests.web.generate.asking import answer, ask, error, frames_of
from tests.web.rig import RankRig

PREFILL = {"do_remote_decode": True}


@pytest.mark.parametrize(
    "fields",
    [
        {"kv_transfer_params": PREFILL},
        {"sampling_params": {"extra_args": {"kv_transfer_params": PREFILL}}},
        {"kv_transfer_params": PREFILL, "sampling_params": {"extra_args": {"kv_transfer_params": {}}}},
        {"do_remote_decode": True},
    ],
)
def test_r26_a_prefill_is_told_in_either_place(fields: Any) -> None:
    document = answer(RankRig(), **fields)
    params = document["kv_transfer_params"]
    assert params["do_remote_prefill"] is True
    assert params["remote_request_id"].startswith(document["request_id"] + "-")
    flat = list(document)[-6:]
    assert {name: document[name] for name in flat} == {name: params[name] for name in flat}
    assert "remote_host" in flat


@pytest.mark.parametrize("params", [{}, {"do_remote_decode": False}, None])
def test_what_is_beside_the_parameters_wins(params: Any) -> None:
    within = {"extra_args": {"kv_transfer_params": PREFILL}}
    told = answer(RankRig(), kv_transfer_params=params, sampling_params=within)["kv_transfer_params"]
    assert (told is None) == (params is not None)


@pytest.mark.parametrize("odd", [5, "x", [], None])
def test_odd_values_within_are_none(odd: Any) -> None:
    params = {"extra_args": {"kv_transfer_params": odd}}
    assert answer(RankRig(), sampling_params=params)["kv_transfer_params"] is None


def test_frames_tell_nothing_of_it() -> None:
    for frame in frames_of(RankRig(), kv_transfer_params=PREFILL, stream_options={"include_usage": True}):
        assert {"kv_transfer_params", "remote_host"}.isdisjoint(frame)


def test_the_peers_reason_is_an_option() -> None:
    rig = RankRig("--remote-decode-finish-reason")
    params = {"max_tokens": 2, "ignore_eos": True}
    whole = answer(rig, kv_transfer_params=PREFILL, sampling_params=params)
    frames = frames_of(rig, kv_transfer_params=PREFILL, sampling_params=params)
    assert whole["choices"][0]["finish_reason"] == "remote_decode"
    assert frames[-1]["choices"][0]["finish_reason"] == "remote_decode"


def test_a_decode_tells_what_its_prefill_found_cached() -> None:
    params = {"do_remote_prefill": True, "remote_prefill_cached_tokens": 2, "remote_block_ids": [[1], ["a"]]}
    document = answer(RankRig(), kv_transfer_params=params)
    assert document["kv_transfer_params"] is None
    assert document["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}


def test_integers_fit_64_bits() -> None:
    assert error(RankRig(), kv_transfer_params={"remote_port": 2**64})["param"] == "extra_args"
    assert ask(RankRig(), ec_transfer_params={"a": 2**64}).status == 400
