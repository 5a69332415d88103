"""The KV cache behind a real daemon: hits, pressure, preemption, and what clients and metrics are told."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.integration.client import Client, eventually
from tests.integration.daemon import Pool

pytestmark = pytest.mark.integration

CACHE = ("--enable-kvcache", "--zmq-endpoint=", "--block-size", "8", "--seed", "1")


def ids(tokens: int, first: int = 1) -> list[int]:
    return list(range(first, first + tokens))


def cached(reply: Any) -> int:
    assert reply.status == 200, reply.text
    return int(reply.json["usage"]["prompt_tokens_details"]["cached_tokens"])


def at_once(client: Client, prompts: list[list[int]], **fields: object) -> list[int]:
    """What becomes of these prompts, sent at the same time: the status of each reply."""
    statuses: list[int] = []

    def ask(prompt: list[int]) -> None:
        statuses.append(client.text(prompt=prompt, **fields).status)

    threads = [threading.Thread(target=ask, args=(prompt,)) for prompt in prompts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return statuses


@pytest.fixture
def roomy(daemon_with: Pool) -> Client:
    client = daemon_with(*CACHE, "--served-model-name", "m", "alias", "--lora-modules", "l1=/l1").client
    assert client.post("/reset_prefix_cache", {}).json == {"success": True}
    return client


def test_a_prompt_that_came_before_is_cached_up_to_its_last_token(roomy: Client) -> None:
    before = roomy.metrics()
    assert cached(roomy.text(prompt=ids(20), max_tokens=1)) == 0
    assert cached(roomy.text(prompt=ids(20), max_tokens=1)) == 16
    assert cached(roomy.text(prompt=ids(16), max_tokens=1)) == 8
    assert cached(roomy.text(prompt=ids(20), max_tokens=1, model="alias")) == 16
    after = roomy.metrics()

    def more(name: str, **labels: str) -> float:
        return after.value(name, **labels) - before.value(name, **labels)

    assert more("vllm:prefix_cache_queries_total") == 76
    assert more("vllm:prefix_cache_hits_total") == 40
    assert more("vllm:prompt_tokens_cached_total") == 40
    assert more("vllm:prompt_tokens_by_source_total", source="local_cache_hit") == 40
    assert more("vllm:prompt_tokens_by_source_total", source="local_compute") == 36
    assert after.value("vllm:kv_cache_usage_perc") == 0


def test_r60_an_adapter_shares_no_block_with_its_base(roomy: Client) -> None:
    for model in ("m", "l1"):
        assert cached(roomy.text(prompt=ids(20), max_tokens=1, model=model)) == 0
        assert cached(roomy.text(prompt=ids(20), max_tokens=1, model=model)) == 16


def test_salts_keep_clients_apart(roomy: Client) -> None:
    for salt in (None, "one", "two"):
        more = {} if salt is None else {"cache_salt": salt}
        assert cached(roomy.text(prompt=ids(20), max_tokens=1, **more)) == 0
        assert cached(roomy.text(prompt=ids(20), max_tokens=1, **more)) == 16


def test_r71_the_same_tokens_after_others_are_other_blocks(roomy: Client) -> None:
    same = ids(8, 500)
    assert cached(roomy.text(prompt=[*ids(8, 1), *same, 9], max_tokens=1)) == 0
    assert cached(roomy.text(prompt=[*ids(8, 100), *same, 9], max_tokens=1)) == 0
    assert cached(roomy.text(prompt=[*ids(8, 1), *same, 9], max_tokens=1)) == 16


def test_the_next_turn_finds_what_the_last_one_said(roomy: Client) -> None:
    prompt = ids(12)
    reply = roomy.text(prompt=prompt, max_tokens=30, ignore_eos=True, return_token_ids=True)
    said = reply.json["choices"][0]["token_ids"]
    assert len(said) == 30
    # 41 tokens were computed: the last one said was not.
    assert cached(roomy.text(prompt=[*prompt, *said, 7, 8, 9], max_tokens=1)) == 40


def test_chats_streams_and_messages_tell_what_was_cached(roomy: Client) -> None:
    text = " ".join(f"word{number}" for number in range(40))
    messages = [{"role": "user", "content": text}]
    assert cached(roomy.chat(messages=messages, max_tokens=1)) == 0
    assert cached(roomy.chat(messages=messages, max_tokens=1)) == 40
    body = {"model": "m", "messages": messages, "max_tokens": 1}
    told = roomy.post("/v1/messages", body).json["usage"]
    assert told["cache_read_input_tokens"] == 40
    told = roomy.post("/v1/responses", {"model": "m", "input": text, "max_output_tokens": 1}).json["usage"]
    assert told["input_tokens_details"]["cached_tokens"] == 40


def test_resetting_forgets_it_all(roomy: Client) -> None:
    roomy.text(prompt=ids(20), max_tokens=1)
    assert roomy.post("/reset_prefix_cache", {}).json == {"success": True}
    assert cached(roomy.text(prompt=ids(20), max_tokens=1)) == 0


def test_thresholds_go_by_what_is_cached_and_a_refused_prompt_stores_nothing(roomy: Client) -> None:
    fields: dict[str, Any] = {"prompt": ids(20), "max_tokens": 4, "cache_hit_threshold": 0.8}
    for _ in range(2):
        refused = roomy.text(**fields)
        assert refused.json["choices"][0]["finish_reason"] == "cache_threshold"
    roomy.text(prompt=ids(20), max_tokens=1)
    served = roomy.text(**fields)
    assert served.json["choices"][0]["finish_reason"] != "cache_threshold"
    assert cached(served) == 16


@pytest.fixture
def tight(daemon_with: Pool) -> Client:
    """Ten blocks of eight."""
    more = ("--kv-cache-size", "10", "--max-num-seqs", "20", "--inter-token-latency", "2ms")
    return daemon_with(*CACHE, *more).client


def test_r11_r57_under_pressure_every_request_is_answered(tight: Client) -> None:
    before = tight.metrics().value("vllm:num_preemptions_total")
    prompts = [ids(20, 1000 * number) for number in range(1, 31)]
    assert at_once(tight, prompts, max_tokens=40, ignore_eos=True) == [200] * 30
    metrics = tight.metrics()
    assert metrics.value("vllm:num_preemptions_total") > before
    assert metrics.value("vllm:num_requests_running") == 0
    assert metrics.value("vllm:num_requests_waiting") == 0
    assert metrics.value("vllm:kv_cache_usage_perc") == 0
    assert metrics.value("vllm:request_num_preemptions_sum") > 0


def test_r69_what_can_never_fit_is_refused_at_once(tight: Client) -> None:
    assert tight.get("/v1/models").json["data"][0]["max_model_len"] == 80
    refused = tight.text(prompt=ids(400), max_tokens=1)
    assert refused.status == 400
    assert "80" in refused.error["message"]
    assert tight.text(prompt=ids(79), max_tokens=1).status == 200


def test_r70_what_runs_keeps_its_blocks(tight: Client) -> None:
    """Others come and go, and the long one is not disturbed: it was there first."""
    with tight.connect() as connection:
        body = {"prompt": ids(20, 7), "max_tokens": 50, "ignore_eos": True, "stream": True, "model": "m"}
        connection.post("/v1/completions", body)
        eventually(lambda: tight.metrics().value("vllm:num_requests_running") == 1)
        usage = tight.metrics().value("vllm:kv_cache_usage_perc")
        assert 0.3 <= usage <= 0.9
        assert at_once(tight, [ids(8, 3000 + 100 * n) for n in range(10)], max_tokens=1) == [200] * 10
        assert connection.read_head()[0] == 200
        assert len(list(connection.events())) > 50


def test_clients_that_leave_while_they_wait_or_run_leave_no_block_behind(tight: Client) -> None:
    for _ in range(3):
        connections = [tight.connect() for _ in range(8)]
        for number, connection in enumerate(connections):
            body = {"prompt": ids(30, 100 * number), "max_tokens": 40, "ignore_eos": True, "stream": True}
            connection.post("/v1/completions", {"model": "m", **body})
        eventually(lambda: tight.metrics().value("vllm:num_requests_waiting") > 0)
        for connection in connections:
            connection.reset()
        eventually(lambda: tight.metrics().value("vllm:kv_cache_usage_perc") == 0)
    assert tight.text(prompt=ids(70), max_tokens=5).status == 200
