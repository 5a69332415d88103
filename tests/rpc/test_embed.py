"""Embed: the embeddings of `/v1/embeddings`, counted and refused as these are."""

from __future__ import annotations

import json
from array import array
from typing import Any

import pytest

from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.wire.grpc import Code
from tests.rpc.client import Call, RpcClient
from tests.tokenization.trained import trained
from tests.web.rig import PassRig

IDS = [7, 8, 9, 7]
FLAGS = ("--max-model-len", "30000", "--default-embedding-dimensions", "16")


@pytest.fixture
def rig() -> PassRig:
    return PassRig(*FLAGS)


def asked(ids: list[int], **fields: Any) -> pb.EmbedRequest:
    return pb.EmbedRequest(tokenized=pb.TokenizedInput(input_ids=ids), **fields)


def embed(rig: PassRig, message: pb.EmbedRequest, *metadata: tuple[bytes, bytes]) -> Call[pb.EmbedResponse]:
    client = RpcClient(rig)
    return client.finish(client.call("Embed", message, pb.EmbedResponse, metadata=metadata))


def over_http(rig: PassRig, ids: list[int]) -> list[float]:
    reply = rig.ask("/v1/embeddings", {"model": "m", "input": ids})
    assert reply.status == 200, reply.body
    found: list[float] = json.loads(reply.body)["data"][0]["embedding"]
    return found


def test_it_is_the_embedding_that_http_has(rig: PassRig) -> None:
    (answer,) = embed(rig, asked(IDS, request_id="mine")).ok()
    assert (answer.prompt_tokens, answer.embedding_dim) == (4, 16)
    # A message has numbers of 32 bits.
    assert list(answer.embedding) == array("f", over_http(rig, IDS)).tolist()
    assert list(answer.embedding) != list(embed(rig, asked([7, 8, 9])).ok()[0].embedding)


def test_long_prompts_are_taken_in_steps_and_come_to_the_same(rig: PassRig) -> None:
    ids = [number % 1000 for number in range(30_000)]
    client = RpcClient(rig)
    call = client.call("Embed", asked(ids), pb.EmbedResponse)
    assert not call.ended
    assert rig.finish() > 5
    client.read()
    (answer,) = call.ok()
    assert answer.prompt_tokens == 30_000
    assert list(answer.embedding) == array("f", over_http(rig, ids)).tolist()


def test_one_that_is_too_long_is_refused_before_it_is_taken(rig: PassRig) -> None:
    call = RpcClient(rig).call("Embed", asked([1] * 30_001), pb.EmbedResponse)
    assert call.code is Code.INVALID_ARGUMENT


def test_a_client_that_leaves_ends_the_work(rig: PassRig) -> None:
    client = RpcClient(rig)
    call = client.call("Embed", asked([1] * 30_000), pb.EmbedResponse)
    assert rig.rank.context.turns.busy
    call.cancel()
    assert not rig.rank.context.turns.busy
    assert not rig.rank.stats.finished["stop"]


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (pb.EmbedRequest(), "tokenized is missing"),
        (pb.EmbedRequest(request_id="x"), "tokenized is missing"),
        (asked([]), "tokenized has no ids"),
        (pb.EmbedRequest(tokenized=pb.TokenizedInput(original_text="words alone")), "tokenized has no ids"),
        (asked([1] * 30_001), "maximum context length is 30000"),
        (asked(IDS, request_id="x" * 1025), "at most 1024 characters"),
    ],
)
def test_what_cannot_be_embedded_is_refused(rig: PassRig, message: pb.EmbedRequest, told: str) -> None:
    call = embed(rig, message)
    assert call.code is Code.INVALID_ARGUMENT
    assert told in call.message
    assert not call.messages
    assert not rig.rank.stats.prompt_tokens


def test_ids_are_those_of_the_tokenizer() -> None:
    rig = PassRig(tokenizer=trained("byte level"))
    size = rig.rank.context.limits.vocab_size
    embed(rig, asked([0, size - 1])).ok()
    call = embed(rig, asked([0, size]))
    assert call.code is Code.INVALID_ARGUMENT
    assert f"{size} is out of vocabulary" in call.message


def test_it_counts_as_over_http(rig: PassRig) -> None:
    embed(rig, asked(IDS)).ok()
    over = PassRig(*FLAGS)
    over_http(over, IDS)
    ours, theirs = rig.rank.stats, over.rank.stats
    assert ours.prompt_tokens == theirs.prompt_tokens == 4
    assert ours.finished == theirs.finished
    assert ours.request_prompt_tokens.counts == theirs.request_prompt_tokens.counts
    assert ours.time_to_first_token.count == 1


def test_limits_of_the_queue_hold() -> None:
    rig = PassRig("--max-num-queued-reqs", "1", "--inter-token-latency", "1s")
    rig.post("/v1/completions", {"prompt": "a", "max_tokens": 9, "ignore_eos": True})
    call = embed(rig, asked(IDS))
    assert call.code is Code.UNAVAILABLE
    assert rig.rank.stats.rejected["max_num_queued_reqs"] == 1


def test_none_while_generation_is_refused(rig: PassRig) -> None:
    suspension = rig.rank.context.suspension
    suspension.pause("keep", False)
    embed(rig, asked(IDS)).ok()
    suspension.pause("abort", False)
    assert embed(rig, asked(IDS)).code is Code.UNAVAILABLE
    suspension.resume()
    suspension.sleep(1, "abort")
    assert embed(rig, asked(IDS)).code is Code.UNAVAILABLE
    suspension.die()
    assert embed(rig, asked(IDS)).code is Code.INTERNAL


def test_none_once_shutdown_has_begun(rig: PassRig) -> None:
    rig.rank.context.draining = True
    assert embed(rig, asked(IDS)).code is Code.UNAVAILABLE


def test_aliases_are_no_hindrance() -> None:
    embed(PassRig("--served-model-name", "a", "b"), asked(IDS)).ok()


def test_an_encoder_alone_has_none() -> None:
    assert embed(PassRig("--mm-encoder-only"), asked(IDS)).code is Code.UNIMPLEMENTED


def test_the_pod_is_named() -> None:
    call = embed(PassRig("--pod-name", "p"), asked(IDS))
    assert call.headers[b"x-inference-pod"] == b"p"


def test_it_fails_on_purpose_unlike_over_http() -> None:
    assert embed(PassRig(), asked(IDS), (b"x-return-error", b"429")).code is Code.RESOURCE_EXHAUSTED
    rig = PassRig("--failure-injection-rate", "100", "--failure-types", "server_error")
    assert embed(rig, asked(IDS)).code is Code.UNAVAILABLE
