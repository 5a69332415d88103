"""Generate against a real daemon with grpcio, sync and aio."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
import grpc.aio
import pytest

from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from tests.integration.client import eventually
from tests.integration.daemon import Daemon, Pool

pytestmark = pytest.mark.integration

METHOD = "/vllm.grpc.engine.VllmEngine/Generate"
IDS = [101, 202, 303, 404, 505, 606]
LONG = {"max_tokens": 9, "ignore_eos": True, "seed": 5}
RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
#: One call would last for half a minute.
SLOW = ("--inter-token-latency", "100ms", "--max-num-seqs", "3")
ENDLESS = {"max_tokens": 300, "ignore_eos": True}


def request(sampling: dict[str, Any], **fields: Any) -> pb.GenerateRequest:
    return pb.GenerateRequest(tokenized={"input_ids": IDS}, sampling_params=sampling, **fields)


class Generating:
    """A channel to a daemon, and its Generate."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.channel = grpc.insecure_channel(f"127.0.0.1:{daemon.port}")
        self.generate = self.channel.unary_stream(
            METHOD,
            request_serializer=pb.GenerateRequest.SerializeToString,
            response_deserializer=pb.GenerateResponse.FromString,
        )

    def ask(self, sampling: dict[str, Any], **fields: Any) -> list[pb.GenerateResponse]:
        return list(self.generate(request(sampling, **fields), timeout=20))

    def load(self) -> tuple[float, float]:
        metrics = self.daemon.client.metrics()
        return metrics.value(RUNNING), metrics.value(WAITING)

    def idle(self) -> bool:
        return self.load() == (0, 0)


@pytest.fixture
def fast(daemon: Daemon) -> Iterator[Generating]:
    generating = Generating(daemon)
    yield generating
    eventually(generating.idle)
    generating.channel.close()


@pytest.fixture
def slow(daemon_with: Pool) -> Iterator[Generating]:
    generating = Generating(daemon_with(*SLOW))
    yield generating
    eventually(generating.idle)
    generating.channel.close()


def ids_of(messages: list[pb.GenerateResponse], index: int = 0) -> list[int]:
    found = [message.chunk for message in messages if message.HasField("chunk")]
    return [token for chunk in found if chunk.index == index for token in chunk.token_ids]


def test_whole_and_streamed_and_over_http_are_the_same(fast: Generating) -> None:
    sampling = {**LONG, "n": 2, "logprobs": 1}
    choices = [message.complete for message in fast.ask(sampling)]
    assert [(found.index, found.finish_reason) for found in choices] == [(0, "length"), (1, "length")]
    messages = fast.ask(sampling, stream=True)
    body = {"token_ids": IDS, "sampling_params": sampling}
    http = fast.daemon.client.post("/inference/v1/generate", body).json["choices"]
    for found, choice in zip(choices, http, strict=True):
        assert list(found.output_ids) == ids_of(messages, found.index) == choice["token_ids"]
        assert len(found.output_logprobs.token_logprobs) == 9
    assert [message.complete.index for message in messages if message.HasField("complete")] == [0, 1]


def test_text_stops_and_scores(daemon_with: Pool) -> None:
    echoing = Generating(daemon_with("--mode", "echo"))
    asked = pb.GenerateRequest(
        text="one two three four", sampling_params={"stop": ["three"], "prompt_logprobs": 1}
    )
    (message,) = echoing.generate(asked, timeout=20)
    found = message.complete
    assert (found.finish_reason, found.matched_stop_str, found.completion_tokens) == ("stop", "three", 3)
    assert len(found.input_logprobs.token_logprobs) == found.prompt_tokens == 4
    echoing.channel.close()


def test_what_is_refused_has_a_code_and_a_message(fast: Generating) -> None:
    with pytest.raises(grpc.RpcError) as problem:
        fast.ask({"max_tokens": 0})
    assert problem.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "max_tokens must be at least 1" in problem.value.details()


def test_long_prompts_go_in_and_out(daemon_with: Pool) -> None:
    echoing = Generating(daemon_with("--mode", "echo", "--max-model-len", "100000"))
    ids = [number * 7919 % 2**32 for number in range(20_000)]
    for streamed in (False, True):
        asked = pb.GenerateRequest(tokenized={"input_ids": ids}, stream=streamed)
        messages = list(echoing.generate(asked, timeout=30))
        assert (ids_of(messages) if streamed else list(messages[0].complete.output_ids)) == ids
    echoing.channel.close()


@pytest.mark.parametrize("streamed", [False, True])
def test_cancelling_frees_the_slot_at_once(slow: Generating, streamed: bool) -> None:
    call = slow.generate(request({**ENDLESS, "n": 2}, stream=streamed))
    if streamed:
        next(call)
    eventually(lambda: slow.load() == (2, 0))
    began = time.monotonic()
    call.cancel()
    eventually(slow.idle)
    assert time.monotonic() - began < 5
    with pytest.raises(grpc.RpcError) as problem:
        list(call)
    assert problem.value.code() is grpc.StatusCode.CANCELLED


@pytest.mark.parametrize("streamed", [False, True])
def test_a_deadline_does_too(slow: Generating, streamed: bool) -> None:
    call = slow.generate(request(ENDLESS, stream=streamed), timeout=1.5)
    if streamed:
        assert next(call).chunk.token_ids
    with pytest.raises(grpc.RpcError) as problem:
        list(call)
    assert problem.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    eventually(slow.idle)


def test_a_closed_channel_does_too(slow: Generating) -> None:
    other = Generating(slow.daemon)
    calls = [other.generate(request(ENDLESS, stream=True)) for _ in range(2)]
    for call in calls:
        next(call)
    other.channel.close()
    eventually(slow.idle)


def test_threads_share_a_channel(fast: Generating) -> None:
    found: dict[int, list[int]] = {}

    def ask(seed: int) -> None:
        found[seed] = ids_of(fast.ask({**LONG, "seed": seed}, stream=True))

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(found) == 20
    for seed in (0, 7, 19):
        assert list(fast.ask({**LONG, "seed": seed})[0].complete.output_ids) == found[seed]


def test_a_hundred_streams_on_one_aio_channel(daemon_with: Pool) -> None:
    daemon = daemon_with("--inter-token-latency", "20ms", "--max-num-seqs", "200")

    async def run() -> list[list[pb.GenerateResponse]]:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{daemon.port}") as channel:
            generate = channel.unary_stream(
                METHOD,
                request_serializer=pb.GenerateRequest.SerializeToString,
                response_deserializer=pb.GenerateResponse.FromString,
            )

            async def ask(seed: int) -> list[pb.GenerateResponse]:
                sampling = {"max_tokens": 30, "ignore_eos": True, "seed": seed}
                return [message async for message in generate(request(sampling, stream=True), timeout=30)]

            cancelled = generate(request(ENDLESS, stream=True))
            streams = asyncio.gather(*(ask(seed) for seed in range(100)))
            await cancelled.read()
            cancelled.cancel()
            return await streams

    streams = asyncio.run(run())
    assert [len(messages) for messages in streams] == [31] * 100
    assert len({tuple(ids_of(messages)) for messages in streams}) > 90
    generating = Generating(daemon)
    eventually(generating.idle)
    assert list(
        generating.ask({"max_tokens": 30, "ignore_eos": True, "seed": 9})[0].complete.output_ids
    ) == ids_of(streams[9])
    generating.channel.close()
