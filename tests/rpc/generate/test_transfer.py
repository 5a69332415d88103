"""Disaggregated prefill over gRPC: parameters in both forms, in and out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmdsim.wire.grpc import Code
from tests.rpc.generate.asking import ask, completes, only, refusal, stream, whole
from tests.web.rig import RankRig

PREFILL = {"kv_transfer_params_json": '{"do_remote_decode": true}'}
SHORT = {"max_tokens": 1}


def told(found: Any) -> Any:
    return json.loads(found.kv_transfer_params_json)


def test_a_prefill_tells_its_parameters_in_both_forms() -> None:
    rig = RankRig()
    for found in (only(rig, SHORT, **PREFILL), completes(stream(rig, SHORT, request_id="r", **PREFILL))[0]):
        params = told(found)
        assert params["do_remote_prefill"] is True
        assert params["remote_num_tokens"] == 5
        legacy = found.kv_transfer_params
        assert (legacy.remote_host, legacy.remote_port) == (params["remote_host"], params["remote_port"])
    assert params["remote_request_id"].startswith("r-")


def test_without_a_port_there_is_only_the_newer_form() -> None:
    rig = RankRig()
    rig.rank.context.serve_on(0)
    found = only(rig, SHORT, **PREFILL)
    assert told(found)["remote_port"] == 0
    assert not found.HasField("kv_transfer_params")


def test_all_choices_tell_the_firsts() -> None:
    first, *others = whole(RankRig(), {**SHORT, "n": 3}, **PREFILL)
    assert first.kv_transfer_params_json
    assert {found.kv_transfer_params_json for found in others} == {first.kv_transfer_params_json}


def test_others_tell_none() -> None:
    for fields in ({}, {"kv_transfer_params_json": "{}"}, {"kv_transfer_params_json": '{"x": [1]}'}):
        found = only(RankRig(), SHORT, **fields)
        assert not found.HasField("kv_transfer_params_json")
        assert not found.HasField("kv_transfer_params")


def test_what_is_told_can_be_decoded_with() -> None:
    rig = RankRig("--kv-cache-transfer-latency", "3s")
    params = only(rig, SHORT, **PREFILL).kv_transfer_params_json
    began = rig.clock.seconds()
    found = only(rig, {"max_tokens": 4, "ignore_eos": True}, kv_transfer_params_json=params)
    assert rig.clock.seconds() - began >= 3.0
    assert found.completion_tokens == 4
    assert not found.HasField("kv_transfer_params_json")


def test_cached_tokens_of_the_prefill_are_told() -> None:
    params = '{"do_remote_prefill": true, "remote_prefill_cached_tokens": 3}'
    messages = stream(RankRig(), SHORT, kv_transfer_params_json=params)
    assert {message.chunk.cached_tokens for message in messages if message.HasField("chunk")} == {3}
    assert completes(messages)[0].cached_tokens == 3


def test_a_transfer_that_fails_ends_the_call() -> None:
    fails = (
        "--kv-transfer-failure-rate",
        "100",
        "--kv-transfer-config",
        '{"kv_load_failure_policy": "fail"}',
    )
    for streamed in (False, True):
        params = '{"do_remote_prefill": true}'
        call = ask(RankRig(*fails), SHORT, stream=streamed, kv_transfer_params_json=params)
        assert call.code is Code.INTERNAL
        assert "could not be transferred" in call.message


def test_an_address_alone_has_no_part_in_a_transfer() -> None:
    legacy = {"kv_transfer_params": {"remote_host": "h", "remote_port": 1}}
    assert not only(RankRig(), SHORT, **legacy).HasField("kv_transfer_params_json")
    # The newer form wins, and the older is not even looked at.
    assert told(only(RankRig(), SHORT, kv_transfer_params={}, **PREFILL))


@pytest.mark.parametrize(
    "address", [{}, {"remote_host": "h"}, {"remote_port": 5}, {"remote_host": "h", "remote_port": 65536}]
)
def test_half_an_address_is_refused(address: Any) -> None:
    assert "remote_host" in refusal(RankRig(), kv_transfer_params=address)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "5", '"x"', '{"a": "\\ud800"}', "[" * 100_000, '{"a":' * 300 + "1" + "}" * 300],
)
def test_what_is_no_object_is_refused(text: str) -> None:
    assert "must be a JSON object" in refusal(RankRig(), kv_transfer_params_json=text)


def test_numbers_must_fit_the_engines_messages() -> None:
    assert "2**64" in refusal(RankRig(), kv_transfer_params_json='{"a": 100000000000000000000}')


def test_values_may_be_of_any_kind() -> None:
    for text in (
        '{"do_remote_decode": "yes"}',
        '{"do_remote_prefill": [0], "remote_prefill_cached_tokens": -1}',
    ):
        assert only(RankRig(), SHORT, kv_transfer_params_json=text).finish_reason == "length"


def test_the_peers_answer_is_an_option() -> None:
    rig = RankRig("--dummy-transfer-params", "--remote-decode-finish-reason")
    found = only(rig, SHORT, **PREFILL)
    assert found.finish_reason == "remote_decode"
    assert told(found)["remote_host"] == "DUMMY"
    assert found.kv_transfer_params.remote_port == 1234
