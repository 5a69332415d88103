"""Abort: what has one of the ids ends as it stands, and nobody else is told."""

from __future__ import annotations

import json

import pytest

from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.wire.grpc import Code
from tests.rpc.client import Call, RpcClient
from tests.web.rig import RankRig
from tests.wire.channel import Client

TEXT = {"prompt": "one two", "max_tokens": 50, "ignore_eos": True}


@pytest.fixture
def rig() -> RankRig:
    return RankRig("--inter-token-latency", "100ms", "--max-num-seqs", "2")


def begin(rig: RankRig, name: str, **more: object) -> Client:
    return rig.post("/v1/completions", {**TEXT, "request_id": name, **more})


def abort(rig: RankRig, *ids: str) -> None:
    assert RpcClient(rig).unary("Abort", pb.AbortRequest(request_ids=ids), pb.AbortResponse) is not None


def choices(client: Client) -> list[tuple[str, int]]:
    """How each ended, and with how many tokens; none while the answer is still to come."""
    replies = client.replies(b"POST") if client.received else []
    if not replies:
        return []
    body = json.loads(replies[0].body)
    return [(choice["finish_reason"], body["usage"]["completion_tokens"]) for choice in body["choices"]]


def generate(rig: RankRig, name: str, stream: bool, n: int = 1) -> Call[pb.GenerateResponse]:
    asked = pb.GenerateRequest(request_id=name, stream=stream, tokenized=pb.TokenizedInput(input_ids=[1, 2]))
    asked.sampling_params.max_tokens = 50
    asked.sampling_params.ignore_eos = True
    asked.sampling_params.n = n
    return RpcClient(rig).call("Generate", asked, pb.GenerateResponse)


def ends(call: Call[pb.GenerateResponse]) -> list[tuple[int, str]]:
    """How each choice of a call that is over, and over well, ended."""
    call.client.read()
    found = [each.complete for each in call.ok() if each.HasField("complete")]
    return sorted((complete.index, complete.finish_reason) for complete in found)


@pytest.mark.parametrize("stream", [True, False])
def test_a_generate_ends_well_with_a_complete(rig: RankRig, stream: bool) -> None:
    call, other = generate(rig, "mine", stream), generate(rig, "other", stream)
    for _ in range(5):
        rig.clock.advance(0.1)
    abort(rig, "mine")
    assert ends(call) == [(0, "abort")]
    assert not other.ended
    tokens = [token for each in call.messages for token in each.chunk.token_ids]
    if not stream:
        tokens = list(call.messages[-1].complete.output_ids)
    assert len(tokens) == 6


@pytest.mark.parametrize("stream", [True, False])
def test_every_choice_of_a_generate_ends_waiting_ones_too(rig: RankRig, stream: bool) -> None:
    call = generate(rig, "mine", stream, n=3)
    assert (rig.rank.stats.running, rig.rank.stats.waiting) == (2, 1)
    abort(rig, "mine")
    assert ends(call) == [(0, "abort"), (1, "abort"), (2, "abort")]
    assert rig.rank.engine.idle


def test_generates_of_one_id_all_end(rig: RankRig) -> None:
    calls = [generate(rig, "mine", True) for _ in range(3)]
    abort(rig, "mine", "mine")
    assert [ends(call) for call in calls] == [[(0, "abort")]] * 3


def test_what_runs_and_what_waits_ends_with_what_there_is(rig: RankRig) -> None:
    first, second, third = (begin(rig, name) for name in "abc")
    for _ in range(5):
        rig.clock.advance(0.1)
    abort(rig, "cmpl-a", "cmpl-c")
    rig.settle()
    assert choices(first) == [("abort", 6)]
    assert choices(third) == [("abort", 0)]
    assert not second.received
    assert (rig.rank.stats.running, rig.rank.stats.waiting) == (1, 0)
    assert rig.rank.stats.finished["abort"] == 2


def test_all_choices_of_a_request_end(rig: RankRig) -> None:
    client = begin(rig, "a", n=4)
    rig.clock.advance(0.1)
    abort(rig, "cmpl-a")
    rig.settle()
    assert [reason for reason, _ in choices(client)] == ["abort"] * 4
    assert rig.rank.engine.idle


def test_all_that_have_the_same_id_end(rig: RankRig) -> None:
    clients = [begin(rig, "same") for _ in range(2)]
    abort(rig, "cmpl-same")
    rig.settle()
    assert [reason for client in clients for reason, _ in choices(client)] == ["abort"] * 2


@pytest.mark.parametrize("ids", [(), ("unknown",), ("", "cmpl-", "cmpl-a-1", "\N{SNOWMAN}")])
def test_unknown_ids_and_none_at_all_are_no_error(rig: RankRig, ids: tuple[str, ...]) -> None:
    client = begin(rig, "a")
    abort(rig, *ids)
    rig.settle()
    assert not client.received
    assert rig.rank.stats.running == 1


def test_it_works_while_nothing_new_is_taken(rig: RankRig) -> None:
    client = begin(rig, "a")
    rig.rank.context.suspension.pause("keep", False)
    rig.rank.context.draining = True
    abort(rig, "cmpl-a")
    rig.settle()
    assert choices(client) == [("abort", 1)]


def test_a_dead_engine_has_nothing_to_end(rig: RankRig) -> None:
    rig.rank.context.suspension.die()
    abort(rig, "a")


def test_endless_lists_are_refused_unread(rig: RankRig) -> None:
    call = RpcClient(rig).call("Abort", b"\n\0" * 70_000, pb.AbortResponse)
    assert call.code is Code.RESOURCE_EXHAUSTED
    abort(rig, *["x" * 100] * 1200)
