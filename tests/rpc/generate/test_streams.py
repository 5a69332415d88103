"""Streams: a chunk a delta, and a complete behind the last of each choice, which has that delta again."""

from __future__ import annotations

from typing import Any

import pytest

from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from tests.rpc.client import RpcClient
from tests.rpc.generate.asking import (
    IDS,
    ask,
    begin,
    chunks,
    completes,
    joined,
    only,
    refusal,
    request,
    stream,
    whole,
)
from tests.web.rig import RankRig

LONG = {"max_tokens": 9, "ignore_eos": True, "seed": 5}
PACED = ("--time-to-first-token", "1s", "--inter-token-latency", "1s")


def test_a_chunk_a_token_and_a_complete_with_the_last_once_more() -> None:
    messages = stream(RankRig(), LONG)
    assert [message.WhichOneof("response") for message in messages] == ["chunk"] * 9 + ["complete"]
    ids = joined(messages)
    for chunk in chunks(messages):
        assert (len(chunk.token_ids), chunk.completion_tokens, chunk.prompt_tokens) == (1, 1, 5)
        assert (chunk.cached_tokens, chunk.index) == (0, 0)
        assert not chunk.HasField("output_logprobs")
        assert not chunk.HasField("input_logprobs")
    last = messages[-1].complete
    assert (list(last.output_ids), last.completion_tokens) == (ids[-1:], 1)
    assert (last.finish_reason, last.prompt_tokens, last.index) == ("length", 5, 0)


def test_a_stream_says_what_the_whole_says() -> None:
    rig = RankRig()
    for sampling in (LONG, {**LONG, "n": 3}, {**LONG, "logprobs": 3}, {**LONG, "max_tokens": 1}):
        said = whole(rig, sampling)
        messages = stream(rig, sampling)
        for found in said:
            assert joined(messages, found.index) == list(found.output_ids)
            scores = pb.OutputLogProbs()
            for chunk in chunks(messages, found.index):
                scores.MergeFrom(chunk.output_logprobs)
            assert scores == found.output_logprobs


def test_every_message_is_as_protobuf_would_write_it() -> None:
    rig = RankRig("--enable-kvcache", "--block-size", "8")
    prompt = list(range(1, 200))
    for _ in range(2):  # the second finds the prompt cached
        for sampling in (LONG, {**LONG, "n": 2}, {**LONG, "logprobs": 2, "prompt_logprobs": 1}):
            call = ask(rig, sampling, stream=True, tokenized={"input_ids": prompt})
            assert call.ok()[0].chunk.prompt_tokens == 199
            for data in call.data:
                assert pb.GenerateResponse.FromString(data).SerializeToString() == data


def test_each_token_is_sent_as_it_falls_due() -> None:
    rig = RankRig(*PACED)
    client = RpcClient(rig)
    call = begin(client, request(LONG, stream=True))
    assert call.headers[b":status"] == b"200"
    assert call.headers[b"content-type"] == b"application/grpc"
    for seconds in range(9):
        assert len(call.messages) == seconds
        client.wait(1.0)
    assert len(call.messages) == 10
    assert call.ended


def test_tokens_due_in_one_pass_leave_in_one_write_each_a_message() -> None:
    rig = RankRig()
    client = RpcClient(rig)
    writes: list[bytes] = []
    write = client.h2.transport.write
    client.h2.transport.write = lambda data: (writes.append(data), write(data))[1]
    call = begin(client, request({**LONG, "max_tokens": 200}, stream=True))
    client.finish(call)
    assert len(chunks(call.ok())) == 200
    assert len([data for data in writes if len(data) > 200]) <= 2


def test_choices_are_told_apart_by_index() -> None:
    messages = stream(RankRig(*PACED), {**LONG, "n": 3})
    order = [message.chunk.index for message in messages if message.HasField("chunk")]
    assert order == [0, 1, 2] * 9
    assert [last.index for last in completes(messages)] == [0, 1, 2]
    for index in range(3):
        found = [
            message.WhichOneof("response")
            for message in messages
            if (message.chunk.index if message.HasField("chunk") else message.complete.index) == index
        ]
        assert found == ["chunk"] * 9 + ["complete"]
    assert len({tuple(joined(messages, index)) for index in range(3)}) == 3


@pytest.mark.parametrize("pace", [(), PACED])
@pytest.mark.parametrize("interval", [2, 4, 100])
def test_tokens_may_go_together(interval: int, pace: tuple[str, ...]) -> None:
    messages = stream(RankRig("--stream-interval", str(interval), *pace), LONG)
    sizes = [len(chunk.token_ids) for chunk in chunks(messages)]
    # The first goes alone (vLLM).
    rest = [interval] * (8 // interval) + ([8 % interval] if 8 % interval else [])
    assert sizes == [1, *rest]
    assert [chunk.completion_tokens for chunk in chunks(messages)] == sizes
    assert list(completes(messages)[0].output_ids) == joined(messages)[-sizes[-1] :]
    assert joined(messages) == list(only(RankRig(), LONG).output_ids)


def test_what_is_cached_is_told() -> None:
    rig = RankRig("--enable-kvcache", "--block-size", "8")
    prompt: dict[str, Any] = {"tokenized": {"input_ids": list(range(1, 20))}}
    assert {chunk.cached_tokens for chunk in chunks(stream(rig, LONG, **prompt))} == {0}
    messages = stream(rig, LONG, **prompt)
    assert {chunk.cached_tokens for chunk in chunks(messages)} == {16}
    assert completes(messages)[0].cached_tokens == 16
    assert only(rig, LONG, **prompt).cached_tokens == 16


def test_a_long_stream_is_whole() -> None:
    rig = RankRig("--max-model-len", "10000", "--mode", "echo")
    ids = list(range(9000))
    messages = stream(rig, tokenized={"input_ids": ids[:4900]})
    assert joined(messages) == ids[:4900]


# --- log probabilities


def test_scores_of_what_is_said() -> None:
    found = only(RankRig(), {**LONG, "logprobs": 0})
    scores = found.output_logprobs
    assert list(scores.token_ids) == list(found.output_ids)
    assert scores.token_logprobs[:4] == pytest.approx([-1.0, -1.1, -1.2, -1.0])
    assert not scores.top_logprobs
    assert not only(RankRig(), LONG).HasField("output_logprobs")


@pytest.mark.parametrize("count", [1, 3, 20])
def test_the_likeliest_begin_with_what_is_said(count: int) -> None:
    messages = stream(RankRig(), {**LONG, "logprobs": count})
    for chunk in chunks(messages):
        (top,) = chunk.output_logprobs.top_logprobs
        assert len(top.values) == len(top.token_ids) == count
        assert top.token_ids[0] == chunk.token_ids[0]
        assert top.values[0] == chunk.output_logprobs.token_logprobs[0]
        assert list(top.values) == sorted(top.values, reverse=True)
        assert len(set(top.token_ids)) == count
    assert completes(messages)[0].output_logprobs == chunks(messages)[-1].output_logprobs


def test_all_of_the_vocabulary_are_none() -> None:
    found = only(RankRig("--max-logprobs", "-1"), {**LONG, "logprobs": -1})
    assert [len(top.values) for top in found.output_logprobs.top_logprobs] == [0] * 9
    assert len(found.output_logprobs.token_ids) == 9


def test_those_of_the_prompt_are_in_each_choices_first_chunk() -> None:
    sampling = {**LONG, "n": 2, "prompt_logprobs": 2}
    messages = stream(RankRig(), sampling)
    for index in range(2):
        first, *others = chunks(messages, index)
        scores = first.input_logprobs
        assert list(scores.token_ids) == IDS
        assert [score.HasField("value") for score in scores.token_logprobs] == [False] + [True] * 4
        assert [len(top.values) for top in scores.top_logprobs] == [0] + [2] * 4
        assert [top.token_ids[0] for top in scores.top_logprobs[1:]] == IDS[1:]
        assert not any(chunk.HasField("input_logprobs") for chunk in others)
        assert not completes(messages)[index].HasField("input_logprobs")
        assert whole(RankRig(), sampling)[index].input_logprobs == scores


def test_those_of_a_long_prompt_are_put_together() -> None:
    ids = list(range(3000))
    rig = RankRig("--max-model-len", "10000")
    for count in (0, 3):
        scores = only(rig, {"prompt_logprobs": count}, tokenized={"input_ids": ids}).input_logprobs
        assert list(scores.token_ids) == ids
        assert len(scores.token_logprobs) == 3000
        assert scores.token_logprobs[2999].value == pytest.approx(-1.2)
        assert len(scores.top_logprobs) == (3000 if count else 0)


def test_a_prompt_whose_scores_are_wanted_is_computed() -> None:
    rig = RankRig("--enable-kvcache", "--block-size", "8")
    prompt: dict[str, Any] = {"tokenized": {"input_ids": list(range(1, 20))}}
    only(rig, **prompt)
    assert only(rig, {"prompt_logprobs": 0}, **prompt).cached_tokens == 0
    assert only(rig, **prompt).cached_tokens == 16


def test_more_scores_than_may_be_are_refused() -> None:
    rig = RankRig("--max-model-len", "100000", "--max-n", "1000")
    sampling = {"max_tokens": 90_000, "ignore_eos": True, "logprobs": 20, "n": 2}
    assert "2000000 log probabilities" in refusal(rig, sampling)
    ids = {"input_ids": [1] * 2000}
    assert "2000000" in refusal(rig, {"prompt_logprobs": 20, "n": 60}, tokenized=ids)
    assert only(rig, {"prompt_logprobs": 20}, tokenized=ids).prompt_tokens == 2000
