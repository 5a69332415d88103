"""Sampling parameters: what is left out, what counts, and what is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from llmdsim.rpc.generate.conversion import MOST_ITEMS, request_of
from llmdsim.tokenization.builtin import BuiltinTokenizer
from llmdsim.web.generate.request import SamplingParams
from tests.rpc.generate.asking import IDS, only, refusal, request, whole
from tests.web.rig import RankRig

LONG = {"max_tokens": 9, "ignore_eos": True}


def params(**fields: Any) -> SamplingParams:
    return request_of(request(fields), IDS).sampling_params


def text_of(found: Any, rig: RankRig) -> str:
    return "".join(rig.rank.context.tokenizer.decode(list(found.output_ids)))


def test_what_is_left_out_is_vllms_default() -> None:
    # Two differ: these are what protobuf has for a switch that is left out, and what becomes of it.
    off = SamplingParams(max_tokens=None, skip_special_tokens=False, spaces_between_special_tokens=False)
    assert params() == off
    assert request_of(request(), IDS).sampling_params == off
    zeros = {"top_p": 0, "top_k": 0, "min_p": 0, "repetition_penalty": 0, "n": 0, "min_tokens": 0}
    assert params(**zeros) == off


def test_what_is_given_counts() -> None:
    given = {
        "temperature": 0.5,
        "top_p": 0.25,
        "top_k": 7,
        "min_p": 0.125,
        "frequency_penalty": 1.5,
        "presence_penalty": -1.5,
        "repetition_penalty": 2.0,
        "max_tokens": 11,
        "min_tokens": 3,
        "stop": ["a", "b"],
        "stop_token_ids": [5, 6],
        "skip_special_tokens": True,
        "spaces_between_special_tokens": True,
        "ignore_eos": True,
        "n": 4,
        "logprobs": 2,
        "prompt_logprobs": 3,
        "seed": 0,
        "include_stop_str_in_output": True,
    }
    assert params(**given, logit_bias={5: 1.0}) == SamplingParams(**given, logit_bias={"5": 1.0})
    assert params(temperature=0).temperature == 0


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"temperature": -0.5}, "temperature"),
        ({"temperature": 2.5}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"temperature": math.inf}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_p": -0.5}, "top_p"),
        ({"top_p": math.nan}, "top_p"),
        ({"min_p": 1.5}, "min_p"),
        ({"frequency_penalty": 3}, "frequency_penalty"),
        ({"presence_penalty": -3}, "presence_penalty"),
        ({"repetition_penalty": -1}, "repetition_penalty"),
        ({"repetition_penalty": math.inf}, "repetition_penalty"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 5, "min_tokens": 6}, "min_tokens"),
        ({"n": 129}, "n must be at most 128"),
        ({"n": 2**32 - 1}, "n must be at most 128"),
        ({"n": 2, "temperature": 0}, "n must be 1"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"logprobs": -2}, "logprobs"),
        ({"prompt_logprobs": 21}, "logprobs"),
        ({"prompt_logprobs": -2}, "prompt_logprobs"),
        ({"stop": ["a", ""]}, "stop"),
        ({"stop": ["a"] * 65}, "stop"),
        ({"stop_token_ids": [5, 50]}, "stop_token_ids"),
        ({"stop_token_ids": [5] * (MOST_ITEMS + 1)}, "stop_token_ids"),
        ({"logit_bias": {50: 1.0}}, "logit_bias"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias"),
        ({"regex": "("}, "regular expression"),
        ({"regex": "a\0"}, "regex"),
        ({"json_schema": "{"}, "JSON"),
        ({"json_schema": ""}, "json"),
        ({"json_schema": "[" * 5000}, "nested"),
        ({"json_object": False}, "json_object"),
        ({"grammar": " "}, "grammar"),
        ({"structural_tag": ""}, "structural_tag"),
        ({"choice": {}}, "choice"),
        ({"choice": {"choices": ["x" * 70_000]}}, "choice"),
    ],
)
def test_what_is_out_of_range_is_refused(wrong: dict[str, Any], named: str) -> None:
    tokenizer = BuiltinTokenizer()
    tokenizer.vocab_size = 50
    rig = RankRig(tokenizer=tokenizer)
    assert named in refusal(rig, wrong, tokenized={"input_ids": [1, 2, 3]})
    assert rig.rank.engine.idle
    assert rig.rank.stats.prompt_tokens == 0


def test_more_than_the_room_is_cut_to_it() -> None:
    rig = RankRig("--max-model-len", "20")
    for most in (15, 16, 21, 2**32 - 1):
        assert only(rig, {"max_tokens": most, "ignore_eos": True}).completion_tokens == 15
    assert only(rig, {"ignore_eos": True}).completion_tokens == 15
    assert only(rig, {"max_tokens": 2**32 - 1, "min_tokens": 2**31}).completion_tokens == 15
    strict = RankRig("--max-model-len", "20", "--strict-context")
    assert "context length" in refusal(strict, {"max_tokens": 16})


def test_tokens_are_as_many_as_asked_for() -> None:
    found = only(RankRig(), LONG)
    assert (found.completion_tokens, len(found.output_ids), found.finish_reason) == (9, 9, "length")
    found = only(RankRig(), {"max_tokens": 9, "min_tokens": 9})
    assert found.completion_tokens == 9


def test_a_seed_decides_what_is_said_and_each_choice_has_the_next() -> None:
    rig = RankRig()
    choices = [list(found.output_ids) for found in whole(rig, {**LONG, "seed": 5, "n": 3})]
    singles = [list(only(rig, {**LONG, "seed": seed}).output_ids) for seed in (5, 6, 7)]
    assert choices == singles
    assert len(set(map(tuple, choices))) == 3
    assert list(only(rig, {**LONG, "seed": 0}).output_ids) == list(only(rig, {**LONG, "seed": 0}).output_ids)
    assert list(only(rig, {**LONG, "seed": -7}).output_ids) == list(
        only(rig, {**LONG, "seed": -7}).output_ids
    )


def test_a_stop_string_ends_the_reply_and_is_told() -> None:
    rig = RankRig("--mode", "echo")
    text = "one two three four"
    found = only(rig, {"stop": ["zzz", "three"]}, text=text)
    assert (found.finish_reason, found.matched_stop_str) == ("stop", "three")
    assert found.WhichOneof("matched_stop") == "matched_stop_str"
    assert list(found.output_ids) == rig.rank.context.tokenizer.encode(text)[:3]


def test_a_stop_id_ends_the_reply_and_is_told() -> None:
    rig = RankRig("--mode", "echo")
    found = only(rig, {"stop_token_ids": [99, 33]})
    assert (list(found.output_ids), found.finish_reason) == ([11, 22, 33], "stop")
    assert found.WhichOneof("matched_stop") == "matched_token_id"
    assert found.matched_token_id == 33


def test_neither_is_told_where_nothing_matched() -> None:
    for sampling in (LONG, {"max_tokens": 500}, {"stop": ["zzzzz"], "max_tokens": 500}):
        assert only(RankRig(), sampling).WhichOneof("matched_stop") is None


@pytest.mark.parametrize(
    ("constraint", "fits"),
    [
        ({"regex": "[ab]{5}c"}, lambda text: set(text[:5]) <= {"a", "b"} and text[5:] == "c"),
        ({"choice": {"choices": ["left", "right"]}}, lambda text: text in ("left", "right")),
        ({"json_object": True}, lambda text: isinstance(json.loads(text), dict)),
        (
            {"json_schema": '{"properties": {"a": {"type": "integer"}}, "required": ["a"]}'},
            lambda text: isinstance(json.loads(text)["a"], int),
        ),
        ({"grammar": "root ::= x"}, lambda text: text),
        ({"structural_tag": '{"type": "structural_tag", "format": {}}'}, lambda text: text),
    ],
)
def test_text_is_what_a_constraint_wants(constraint: dict[str, Any], fits: Any) -> None:
    rig = RankRig()
    for found in whole(rig, {**constraint, "max_tokens": 500, "n": 2, "seed": 5}):
        assert found.finish_reason == "stop"
        assert fits(text_of(found, rig))


def test_echoes_are_cut_only_where_that_is_asked_for() -> None:
    rig = RankRig("--mode", "echo")
    assert list(only(rig).output_ids) == IDS
    found = only(rig, {"max_tokens": 2})
    assert (list(found.output_ids), found.finish_reason) == (IDS[:2], "length")
