"""A prefill and a decode in two daemons, and latencies changed under a stream, with real time."""

import time
from typing import Any

import pytest

from tests.integration.client import Client, eventually
from tests.integration.daemon import Pool

pytestmark = pytest.mark.integration

PREFILLER = ("--time-to-first-token", "300ms", "--pod-ip", "127.0.0.1")
DECODER = (
    *("--time-to-first-token", "700ms", "--kv-cache-transfer-latency", "200ms"),
    *("--kv-transfer-config", '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'),
)
RECOMPUTING = (
    *("--time-to-first-token", "300ms", "--kv-cache-transfer-latency", "300ms"),
    *("--kv-transfer-failure-rate", "100", "--kv-transfer-config.kv_load_failure_policy", "recompute"),
)


def timed(client: Client, **fields: Any) -> tuple[Any, float]:
    """A text's reply, and the seconds it took."""
    sent = time.monotonic()
    reply = client.text(**fields)
    return reply, time.monotonic() - sent


def test_a_pair_of_prefill_and_decode(daemon_with: Pool) -> None:
    prefiller, decoder = daemon_with(*PREFILLER), daemon_with(*DECODER).client
    told, seconds = timed(prefiller.client, max_tokens=1, kv_transfer_params={"do_remote_decode": True})
    params = told.json["kv_transfer_params"]
    assert params["remote_port"] == prefiller.port
    assert 0.29 < seconds < 0.69

    before = decoder.metrics()
    reply, seconds = timed(decoder, max_tokens=4, kv_transfer_params=params)
    assert reply.status == 200
    assert reply.json["kv_transfer_params"] is None
    assert reply.json["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert 0.19 < seconds < 0.69, "the transfer, not the prefill"

    prompt = reply.json["usage"]["prompt_tokens"]
    after = decoder.metrics()
    for name, labels, rise in (
        ("vllm:nixl_xfer_time_seconds_count", {}, 1),
        ("vllm:nixl_num_descriptors_sum", {}, -(-prompt // 16)),
        ("vllm:external_prefix_cache_hits_total", {}, prompt),
        ("vllm:prompt_tokens_by_source_total", {"source": "external_kv_transfer"}, prompt),
        ("vllm:request_prefill_kv_computed_tokens_sum", {}, prompt),
        ("vllm:nixl_num_failed_transfers_total", {}, 0),
    ):
        assert after.value(name, **labels) - before.value(name, **labels) == rise, name
    moved = after.value("vllm:nixl_xfer_time_seconds_sum") - before.value("vllm:nixl_xfer_time_seconds_sum")
    assert 0.2 <= moved < 0.6
    assert "vllm:nixl_xfer_time_seconds" not in prefiller.client.metrics().families


def test_a_transfer_that_fails_and_one_that_is_made_good(daemon_with: Pool) -> None:
    decoder = daemon_with(*DECODER).client
    params = {"do_remote_prefill": True, "remote_block_ids": [[0]], "remote_host": "a", "remote_port": 1}
    assert decoder.post("/admin/config", {"kv-transfer-failure-rate": 100}).status == 200
    try:
        reply, seconds = timed(decoder, max_tokens=1, kv_transfer_params=params)
        assert reply.status == 500
        assert 0.19 < seconds < 0.69
        *_, error, done = decoder.text_stream(max_tokens=1, kv_transfer_params=params)
        assert (error.json["error"]["code"], done.data) == (500, "[DONE]")
    finally:
        assert decoder.post("/admin/config", {"kv-transfer-failure-rate": 0}).status == 200
    assert decoder.metrics().value("vllm:nixl_num_failed_transfers_total") >= 2

    recomputing = daemon_with(*RECOMPUTING).client
    reply, seconds = timed(recomputing, max_tokens=1, kv_transfer_params=params)
    assert reply.status == 200
    assert 0.59 < seconds < 2.0, "the transfer, then the prefill"
    assert recomputing.metrics().value("vllm:nixl_num_failed_transfers_total") == 1


def test_a_stream_of_a_minute_a_token_ends_when_it_is_made_fast(daemon_with: Pool) -> None:
    client = daemon_with("--inter-token-latency", "60s", "--seed", "4").client
    with client.connect() as connection:
        connection.post(
            "/v1/completions",
            {"model": "m", "prompt": "a", "max_tokens": 20, "ignore_eos": True, "stream": True},
        )
        connection.read_head()
        eventually(lambda: client.metrics().value("vllm:generation_tokens_total") == 1)
        changed = time.monotonic()
        assert client.post("/admin/config", {"inter-token-latency": "1ms"}).status == 200
        *_, done = connection.events()
        assert done.data == "[DONE]"
        assert time.monotonic() - changed < 2.0
    assert client.metrics().value("llmdsim:speed") == 1


def test_at_ten_times_the_speed_a_second_is_a_tenth(daemon_with: Pool) -> None:
    daemon = daemon_with("--time-to-first-token", "3s", "--speed", "10")
    _, seconds = timed(daemon.client, max_tokens=1)
    assert 0.29 < seconds < 2.0
    assert daemon.client.metrics().value("llmdsim:speed") == 10
    assert "all latencies run 10 times faster than configured" in daemon.stderr
