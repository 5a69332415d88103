"""What is known of calls changes nothing but how long they take."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from llmdsim.engine.sequence import Sequence
from llmdsim.rpc.generate.known import LONGEST_KNOWN, KnownCalls, KnownTokens
from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.web.errors import ApiError
from llmdsim.web.recurring import MOST_KNOWN
from tests.rpc.client import RpcClient
from tests.rpc.generate.asking import Generate, begin, request
from tests.web.rig import RankRig

FLAGS = ("--enable-kvcache", "--max-model-len", "32", "--seed", "1", "--data-parallel-size", "2")

IMAGE = {"mm_placeholders": [{"offset": 0, "length": 2}], "mm_hashes": ("image",)}

#: Sampling parameters, and fields beside them, each of which may be in a call.
SAMPLING: dict[str, list[Any]] = {
    "max_tokens": [0, 3, 27, 28, 32],
    "min_tokens": [2],
    "n": [1, 2],
    "seed": [5],
    "temperature": [0.0, 3.0],
    "ignore_eos": [True],
    "stop": [["a"], [""]],
    "stop_token_ids": [[7]],
    "logprobs": [0, 2],
    "prompt_logprobs": [1],
    "regex": ["[ab]+"],
    "json_object": [True],
    "skip_special_tokens": [True],
    "repetition_penalty": [1.5],
}
FIELDS: dict[str, list[Any]] = {
    "stream": [True],
    "data_parallel_rank": [0, 1],
    "kv_transfer_params_json": ['{"do_remote_decode":true}', '{"do_remote_prefill":true}', "{}"],
    "mm_inputs": [IMAGE],
}


def some_of(choices: dict[str, list[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {}, optional={name: st.sampled_from(found) for name, found in choices.items()}
    )


def outcome(rig: RankRig, client: RpcClient, message: pb.GenerateRequest) -> Any:
    """What becomes of a call: what the engine is given, and what the client."""
    given: list[Sequence] = []
    submit = rig.rank.driver.submit

    def noted(sequences: list[Sequence]) -> None:
        given.extend(sequences)
        submit(sequences)

    rig.rank.driver.submit = noted  # type: ignore[method-assign, assignment]
    call: Generate = client.finish(begin(client, message))
    rig.rank.driver.submit = submit  # type: ignore[method-assign]
    asked = [
        (
            {**asdict(sequence.ask), "prompt": sequence.ask.prompt.ids, "echoed": sequence.ask.echoed.ids},
            sequence.cache_salt,
            sequence.reads_cache,
            sequence.remote_prefill is None,
            sequence.request_id,
            sequence.priority,
        )
        for sequence in given
    ]
    return call.code, call.message, asked


def check(sampling: dict[str, Any], fields: dict[str, Any], ids: list[int]) -> None:
    """See that a call comes to the same when it is known as when it was not."""
    rig = RankRig(*FLAGS)
    client = RpcClient(rig)
    asked = request(sampling, tokenized={"input_ids": ids}, request_id="call", **fields)
    first = outcome(rig, client, asked)
    # It becomes known by others with another prompt.
    other = request(sampling, tokenized={"input_ids": [1, 2]}, **fields)
    for _ in range(2):
        outcome(rig, client, other)
    assert outcome(rig, client, asked) == first


@pytest.mark.parametrize("tokens", [1, 5, 32, 33])
@pytest.mark.parametrize(
    "sampling", [{"max_tokens": 3, name: value} for name, values in SAMPLING.items() for value in values]
)
def test_a_known_call_comes_to_the_same(sampling: dict[str, Any], tokens: int) -> None:
    check(sampling, {}, [*range(1, tokens + 1)])


@pytest.mark.parametrize(
    "fields", [{}, *({name: value} for name, values in FIELDS.items() for value in values)]
)
def test_a_known_call_with_more_comes_to_the_same(fields: dict[str, Any]) -> None:
    check({"max_tokens": 3}, fields, [1, 2, 3])


@given(
    sampling=some_of(SAMPLING),
    fields=some_of(FIELDS),
    ids=st.lists(st.integers(1, 99), min_size=1, max_size=33),
)
def test_a_known_call_of_any_kind_comes_to_the_same(
    sampling: dict[str, Any], fields: dict[str, Any], ids: list[int]
) -> None:
    if {"regex", "json_object"} <= sampling.keys():
        del sampling["regex"]  # one constraint
    check(sampling, fields, ids)


def known_calls(result: KnownTokens | ApiError | None) -> tuple[KnownCalls, list[pb.GenerateRequest]]:
    worked: list[pb.GenerateRequest] = []

    def work_out(asked: pb.GenerateRequest) -> KnownTokens | None:
        worked.append(asked)
        if isinstance(result, ApiError):
            raise result
        return result

    return KnownCalls(work_out), worked


@pytest.mark.parametrize("result", [None, ApiError(400, "no")])
def test_what_recurs_is_worked_out_once(result: ApiError | None) -> None:
    known, worked = known_calls(result)
    for _ in range(5):
        assert known.find(pb.GenerateRequest(stream=True)) is None
    assert len(worked) == 1


def test_it_never_holds_more_than_so_many() -> None:
    known, worked = known_calls(None)
    for seed in range(3 * MOST_KNOWN):
        for _ in range(2):
            known.find(request({"seed": seed}))
        assert 0 < len(known) <= MOST_KNOWN
    assert len(worked) > 2 * MOST_KNOWN


def test_what_never_recurs_is_not_worked_out() -> None:
    known, worked = known_calls(None)
    for seed in range(3 * MOST_KNOWN):
        known.find(request({"seed": seed}))
    for _ in range(5):
        known.find(request({"stop": ["x" * LONGEST_KNOWN]}))
    assert not worked
    assert not known


def test_plain_calls_are_known_and_others_are_not() -> None:
    rig = RankRig(*FLAGS)
    client = RpcClient(rig)
    counted: list[bool] = []
    find = KnownCalls.find

    def noted(self: KnownCalls, asked: pb.GenerateRequest) -> KnownTokens | None:
        found = find(self, asked)
        counted.append(found is not None)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KnownCalls, "find", noted)
        for sampling in ({"max_tokens": 3}, {"max_tokens": 3, "n": 2}, {}, {"max_tokens": 3, "logprobs": 1}):
            for number in range(3):
                client.finish(begin(client, request(sampling, request_id=str(number))))
    assert counted == [False, True, True] + [False] * 9
