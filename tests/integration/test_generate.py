"""Tokens in, tokens out, against a real daemon: over a socket, through treq, and by halves as proxies do."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import pytest
import pytest_twisted

from tests.integration.daemon import Daemon, Pool

pytestmark = pytest.mark.integration

GENERATE = "/inference/v1/generate"
IDS = [101, 202, 303, 404, 505, 606]


@pytest.fixture
def echoing(daemon_with: Pool) -> Daemon:
    return daemon_with("--mode", "echo")


def test_ids_come_back_and_a_stream_says_the_same(echoing: Daemon) -> None:
    client = echoing.client
    body: dict[str, Any] = {"token_ids": IDS, "sampling_params": {"n": 2, "logprobs": 1}}
    whole = client.post(GENERATE, body)
    assert whole.status == 200
    assert [choice["token_ids"] for choice in whole.json["choices"]] == [IDS, IDS]
    *frames, done = client.stream(
        GENERATE, {**body, "stream": True, "stream_options": {"include_usage": True}}
    )
    assert done.data == "[DONE]"
    for index in (0, 1):
        choices = [c for frame in frames for c in frame.json["choices"] if c["index"] == index]
        assert [token for choice in choices for token in choice["token_ids"]] == IDS
    assert frames[-1].json["usage"]["completion_tokens"] == whole.json["usage"]["completion_tokens"] == 12


def test_long_prompts_go_in_and_out(daemon_with: Pool) -> None:
    daemon = daemon_with("--mode", "echo", "--max-model-len", "100000")
    ids = [number * 7919 % 2**32 for number in range(40_000)]
    reply = daemon.client.post(GENERATE, {"token_ids": ids, "sampling_params": {}, "return_token_ids": True})
    assert reply.json["choices"][0]["token_ids"] == reply.json["prompt_token_ids"] == ids


def test_a_prefill_and_its_decode(daemon: Daemon) -> None:
    body = {"token_ids": IDS, "sampling_params": {"max_tokens": 1}}
    prefill = daemon.client.post(GENERATE, {**body, "kv_transfer_params": {"do_remote_decode": True}}).json
    assert prefill["choices"][0]["finish_reason"] == "length"
    body["sampling_params"] = {"max_tokens": 4, "ignore_eos": True}
    params = prefill["kv_transfer_params"]
    decode = daemon.client.post(GENERATE, {**body, "kv_transfer_params": params})
    assert decode.status == 200
    assert len(decode.json["choices"][0]["token_ids"]) == 4
    assert decode.json["kv_transfer_params"] is None


@pytest_twisted.inlineCallbacks
def test_treq(daemon: Daemon) -> Generator[Any, Any, None]:
    import treq

    body = {"token_ids": IDS, "sampling_params": {"max_tokens": 3, "ignore_eos": True}, "request_id": "x"}
    response = yield treq.post(f"{daemon.base_url}{GENERATE}", json=body, persistent=False, timeout=15)
    document = json.loads((yield response.content()))
    assert response.code == 200
    assert document["request_id"] == "generate-tokens-x"
    assert len(document["choices"][0]["token_ids"]) == 3
    response = yield treq.post(f"{daemon.base_url}{GENERATE}", json={}, persistent=False, timeout=15)
    document = json.loads((yield response.content()))
    assert response.code == 400
    assert "Missing input token_ids" in document["error"]["message"]
