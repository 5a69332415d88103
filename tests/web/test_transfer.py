"""Disaggregated prefill as proxies see it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.web.clients import CHAT, TEXT, choices_of, events, post, reply_of
from tests.web.rig import RankRig
from tests.wire.channel import Reply

BOTH = pytest.mark.parametrize("path", [CHAT, TEXT])
PREFILL = {"kv_transfer_params": {"do_remote_decode": True}, "max_tokens": 1}


def answer(path: str, *flags: str, **more: Any) -> Any:
    reply = reply_of(post(RankRig(*flags), path, **more))
    assert reply.status == 200, reply.body
    return json.loads(reply.body)


def cached(path: str, tokens: int) -> dict[str, int]:
    """What usage tells of cached tokens where none are computed for others to find."""
    return {"cached_tokens": tokens} | ({"created_cache_tokens": 0} if path == CHAT else {})


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
    assert document["usage"]["prompt_tokens_details"] == cached(path, 2)


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


# --- the decode leg's time, and transfers that fail

DECODE = {"kv_transfer_params": {"do_remote_prefill": True, "remote_block_ids": [[1]], "remote_host": "h"}}
PACED = (
    *("--time-to-first-token", "10s", "--kv-cache-transfer-latency", "2s", "--inter-token-latency", "1s"),
    "--max-num-seqs",
    "8",
)
RECOMPUTE = ("--kv-transfer-config", '{"kv_load_failure_policy": "recompute"}')
FAILING = ("--kv-transfer-failure-rate", "100")
GENERATE, MESSAGES, RESPONSES = "/inference/v1/generate", "/v1/messages", "/v1/responses"
BODIES = {
    CHAT: {"messages": [{"role": "user", "content": "one two"}], "max_tokens": 3, "ignore_eos": True},
    TEXT: {"prompt": "one two", "max_tokens": 3, "ignore_eos": True},
    GENERATE: {"token_ids": [1, 2], "sampling_params": {"max_tokens": 3, "ignore_eos": True}},
    MESSAGES: {"messages": [{"role": "user", "content": "one two"}], "max_tokens": 3, "model": "m"},
    RESPONSES: {"input": "one two", "max_output_tokens": 3},
}
ROUTES = pytest.mark.parametrize("path", BODIES)


def first_token_after(rig: RankRig, path: str, **more: Any) -> int:
    """Whole seconds to the first token of a request."""
    before = rig.rank.stats.generation_tokens
    client = rig.post(path, {**BODIES[path], **more})
    for seconds in range(30):
        if rig.rank.stats.generation_tokens > before:
            client.rst()
            rig.settle()
            return seconds
        rig.clock.advance(1)
    raise AssertionError(client.received)


def failure_of(rig: RankRig, path: str, seconds: float, **more: Any) -> Reply:
    """The answer, which must come after so many seconds."""
    client = rig.post(path, {**BODIES[path], **DECODE, **more})
    rig.clock.advance(seconds - 0.001)
    before = client.received
    rig.clock.advance(0.001)
    rig.settle()
    assert client.received != before
    return reply_of(client)


@ROUTES
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("params", "seconds"),
    [
        ({"do_remote_prefill": True}, 2),
        ({"do_remote_prefill": True, "do_remote_decode": True}, 2),
        ({"do_remote_decode": True}, 10),
        ({"do_remote_prefill": False}, 10),
        (None, 10),
    ],
)
def test_the_first_token_of_a_decode_comes_after_the_transfer(
    path: str, stream: bool, params: Any, seconds: int
) -> None:
    rig = RankRig(*PACED)
    assert first_token_after(rig, path, stream=stream, kv_transfer_params=params) == seconds


@BOTH
def test_flags_beside_the_parameters_count_as_well(path: str) -> None:
    assert first_token_after(RankRig(*PACED), path, do_remote_prefill=True) == 2


@BOTH
def test_all_choices_wait_for_a_transfer_each(path: str) -> None:
    rig = RankRig(*PACED)
    first_token_after(rig, path, n=2, **DECODE)
    assert rig.rank.stats.transfers.time.count == 2


@BOTH
def test_both_flags_read_blocks_and_tell_them_on(path: str) -> None:
    params = {"do_remote_prefill": True, "do_remote_decode": True}
    document = answer(path, kv_transfer_params=params)
    assert document["kv_transfer_params"]["do_remote_prefill"] is True


@BOTH
def test_a_prefill_is_not_told_what_another_found_cached(path: str) -> None:
    params = {"do_remote_decode": True, "remote_prefill_cached_tokens": 2}
    document = answer(path, kv_transfer_params=params)
    assert document["usage"]["prompt_tokens_details"] == cached(path, 0)


def test_speed_makes_transfers_faster() -> None:
    assert first_token_after(RankRig(*PACED, "--speed", "2"), TEXT, **DECODE) == 1


@ROUTES
def test_a_failed_transfer_is_a_500_when_its_time_is_over(path: str) -> None:
    rig = RankRig(*PACED, *FAILING)
    reply = failure_of(rig, path, 2)
    assert reply.status == 500
    assert reply.error["error"]["type"] == ("api_error" if path == MESSAGES else "InternalServerError")
    assert "KV blocks" in reply.error["error"]["message"]
    assert rig.rank.engine.idle
    stats = rig.rank.stats
    assert (stats.transfers.failed, stats.finished["error"], stats.generation_tokens) == (1, 1, 0)


@BOTH
def test_a_failed_transfer_of_a_stream_is_an_error_frame(path: str) -> None:
    reply = failure_of(RankRig(*PACED, *FAILING), path, 2, stream=True)
    error, done = events(reply.body)
    assert reply.status == 200
    assert (error["error"]["code"], done) == (500, "[DONE]")
    assert "KV blocks" in error["error"]["message"]


@pytest.mark.parametrize("path", [GENERATE, MESSAGES, RESPONSES])
def test_other_streams_end_with_an_error_as_well(path: str) -> None:
    rig = RankRig(*PACED, *FAILING)
    reply = failure_of(rig, path, 2, stream=True)
    assert reply.status == 200
    assert b"KV blocks" in reply.body
    assert rig.rank.engine.idle


@BOTH
def test_one_choice_whose_transfer_fails_fails_the_request(path: str) -> None:
    rig = RankRig(*PACED, "--kv-transfer-failure-rate", "50", "--seed", "1")
    assert failure_of(rig, path, 2, n=8).status == 500
    assert rig.rank.engine.idle
    assert 0 < rig.rank.stats.transfers.failed < 8


@ROUTES
def test_with_vllms_other_policy_it_is_prefilled_here(path: str) -> None:
    rig = RankRig(*PACED, *FAILING, *RECOMPUTE)
    assert first_token_after(rig, path, **DECODE) == 12
    assert rig.rank.stats.transfers.failed == 1


def test_the_rate_may_change_at_run_time() -> None:
    rig = RankRig()
    assert reply_of(rig.post(TEXT, {**BODIES[TEXT], **DECODE})).status == 200
    assert reply_of(rig.post("/admin/config", {"kv-transfer-failure-rate": 100})).status == 200
    assert reply_of(rig.post(TEXT, {**BODIES[TEXT], **DECODE})).status == 500
    assert reply_of(rig.post(TEXT, BODIES[TEXT])).status == 200


def test_replies_are_the_same_whether_transfers_fail_or_not() -> None:
    texts = []
    for flags in ((), (*FAILING, *RECOMPUTE)):
        rig = RankRig("--seed", "3", *flags)
        clients = [rig.post(TEXT, {**BODIES[TEXT], **DECODE}) for _ in range(5)]
        rig.clock.advance(1)
        replies = [json.loads(reply_of(client).body) for client in clients]
        texts.append([reply["choices"][0]["text"] for reply in replies])
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("flags", "early"),
    [
        ((), False),
        (("--kv-transfer-config", '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'), True),
        (("--kv-cache-transfer-time-per-token", "1us"), True),
        (("--kv-transfer-failure-rate", "0"), True),
    ],
)
def test_families_of_transfers_are_there_where_transfers_are(flags: tuple[str, ...], early: bool) -> None:
    rig = RankRig(*flags)

    def page() -> bytes:
        client = rig.connect().send(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        return client.received

    assert (b"vllm:nixl_" in page()) is early
    rig.post(TEXT, {**BODIES[TEXT], **DECODE})
    rig.clock.advance(1)
    assert b'vllm:nixl_xfer_time_seconds_count{engine="0",model_name="m"} 1.0' in page()


def test_a_server_without_vllms_metrics_has_none_of_transfers() -> None:
    rig = RankRig("--disable-log-stats", *FAILING)
    assert b"nixl" not in rig.connect().send(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").received
