"""Disaggregated prefill as proxies see it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.web.clients import CHAT, TEXT, choices_of, events, post, reply_of
from tests.web.rig import RankRig

BOTH = pytest.mark.parametrize("path", [CHAT, TEXT])
PREFILL = {"kv_transfer_params": {"do_remote_decode": True}, "max_tokens": 1}


def answer(path: str, *flags: str, **more: Any) -> Any:
    reply = reply_of(post(RankRig(*flags), path, **more))
    assert reply.status == 200, reply.body
    return json.loads(reply.body)


@BOTH
def test_r26_a_prefill_tells_where_its_blocks_are(path: str) -> None:
    document = answer(path, "--pod-ip", "10.1.2.3", "--port", "8123", **PREFILL)
    params = document["kv_transfer_params"]
    assert list(params) == [
        *("do_remote_prefill", "do_remote_decode", "remote_block_ids", "remote_engine_id"),
        *("remote_request_id", "remote_host", "remote_port", "tp_size", "dcp_size", "pp_size"),
        *("remote_num_tokens", "remote_blocks_expiry_time", "remote_registration_generation"),
        *("transfer_mode", "remote_prefill_cached_tokens"),
    ]
    assert (params["do_remote_prefill"], params["do_remote_decode"]) == (True, False)
    assert (params["remote_host"], params["remote_port"]) == ("10.1.2.3", 8123)
    assert params["remote_num_tokens"] == document["usage"]["prompt_tokens"]
    assert params["remote_request_id"].startswith(document["id"] + "-")
    (group,) = params["remote_block_ids"]
    assert group
    assert all(type(block) is int for block in group)
    assert document["choices"][0]["finish_reason"] == "length"


@BOTH
def test_older_proxies_find_it_beside(path: str) -> None:
    document = answer(path, do_remote_decode=True, max_tokens=1)
    params = document["kv_transfer_params"]
    flat = list(document)[-6:]
    assert flat == [
        *("do_remote_decode", "do_remote_prefill", "remote_block_ids", "remote_engine_id"),
        *("remote_host", "remote_port"),
    ]
    assert {name: document[name] for name in flat} == {name: params[name] for name in flat}


@BOTH
def test_a_prefill_may_be_streamed(path: str) -> None:
    reply = reply_of(post(RankRig(), path, stream=True, **{**PREFILL, "max_tokens": 2}))
    frames = [frame for frame in events(reply.body)[:-1] if "kv_transfer_params" in frame]
    assert [frame["kv_transfer_params"] is not None for frame in frames] == [False, True]
    assert frames[-1]["kv_transfer_params"]["do_remote_prefill"] is True
    assert frames[-1]["remote_engine_id"] == frames[-1]["kv_transfer_params"]["remote_engine_id"]


@BOTH
@pytest.mark.parametrize("blocks", [[1, 2], ["a", "b"], [[1, 2], [3]], [], None, "odd", 5])
def test_a_decode_takes_ids_in_every_form_and_tells_nothing(path: str, blocks: Any) -> None:
    params = {
        "do_remote_decode": False,
        "do_remote_prefill": True,
        "remote_block_ids": blocks,
        "remote_engine_id": "x",
        "remote_host": "h",
        "remote_port": 1,
        "remote_prefill_cached_tokens": 2,
    }
    document = answer(path, kv_transfer_params=params)
    assert document["kv_transfer_params"] is None
    assert "remote_host" not in document
    assert document["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}


@BOTH
def test_without_transfer_nothing_is_told(path: str) -> None:
    for params in (None, {}, {"do_remote_decode": False}, {"do_remote_decode": None, "other": 1}):
        document = answer(path, kv_transfer_params=params)
        assert document["kv_transfer_params"] is None
        assert "do_remote_decode" not in document


@BOTH
@pytest.mark.parametrize("stream", [False, True])
def test_the_peers_values_and_reason_are_options(path: str, stream: bool) -> None:
    flags = ("--dummy-transfer-params", "--remote-decode-finish-reason")
    reply = reply_of(post(RankRig(*flags), path, stream=stream, **PREFILL))
    document = events(reply.body)[-2] if stream else json.loads(reply.body)
    assert document["kv_transfer_params"] == {
        "do_remote_decode": False,
        "do_remote_prefill": True,
        "remote_engine_id": "DUMMY_ID",
        "remote_block_ids": ["DUMMY_ID"],
        "remote_host": "DUMMY",
        "remote_port": 1234,
        "tp_size": 1,
    }
    assert document["remote_host"] == "DUMMY"
    assert choices_of([document])[0]["finish_reason"] == "remote_decode"


def test_blocks_differ_between_requests_and_the_engine_stays() -> None:
    rig = RankRig("--kv-cache-size", "100")
    found = [json.loads(reply_of(post(rig, CHAT, **PREFILL)).body)["kv_transfer_params"] for _ in range(2)]
    assert found[0]["remote_block_ids"] != found[1]["remote_block_ids"]
    assert found[0]["remote_engine_id"] == found[1]["remote_engine_id"]
    assert found[0]["remote_request_id"] != found[1]["remote_request_id"]


@BOTH
def test_integers_in_parameters_fit_64_bits(path: str) -> None:
    reply = reply_of(post(RankRig(), path, kv_transfer_params={"remote_port": 2**64}))
    assert reply.status == 400
