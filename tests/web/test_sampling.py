"""From request and prompt length to what a choice is asked for: clamping, ranges, and their order."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdsim.web.chat_request import ChatRequest, decode_chat
from llmdsim.web.context_length import check_budget, truncation
from llmdsim.web.errors import ApiError
from llmdsim.web.sampling import Limits, Sampling, sampling
from llmdsim.web.text_request import TextRequest, decode_text

LIMITS = Limits(max_model_len=100, max_logprobs=20, max_n=8, vocab_size=1000)
STRICT = replace(LIMITS, strict_context=True)


def chat(**fields: Any) -> ChatRequest:
    return decode_chat(json.dumps({"messages": [{"role": "user", "content": "hi"}], **fields}).encode())


def text(**fields: Any) -> TextRequest:
    return decode_text(json.dumps({"prompt": "hi", **fields}).encode())


def refused(request: ChatRequest | TextRequest, prompt_tokens: int = 10, limits: Limits = LIMITS) -> ApiError:
    with pytest.raises(ApiError) as caught:
        sampling(request, prompt_tokens, limits)
    assert (caught.value.status, caught.value.type) == (400, "BadRequestError")
    return caught.value


def test_defaults() -> None:
    assert sampling(chat(), 10, LIMITS) == Sampling(max_tokens=90, requested_max=None)
    assert sampling(text(), 10, LIMITS) == Sampling(max_tokens=16, requested_max=None)


def test_everything_is_carried_over() -> None:
    request = chat(
        max_completion_tokens=20,
        max_tokens=50,
        min_tokens=3,
        n=2,
        seed=7,
        stop=["a", "b"],
        stop_token_ids=[5, 6, 5],
        include_stop_str_in_output=True,
        ignore_eos=True,
        temperature=0.5,
        logprobs=True,
        top_logprobs=4,
        prompt_logprobs=2,
    )
    assert sampling(request, 10, LIMITS) == Sampling(
        max_tokens=20,
        requested_max=20,
        min_tokens=3,
        n=2,
        seed=7,
        stop=("a", "b"),
        stop_token_ids=frozenset((5, 6)),
        include_stop=True,
        ignore_eos=True,
        temperature=0.5,
        logprobs=4,
        prompt_logprobs=2,
    )


@pytest.mark.parametrize(
    ("request_", "prompt_tokens", "most", "asked"),
    [
        (chat(max_tokens=5), 10, 5, 5),
        (chat(max_tokens=90), 10, 90, 90),
        (chat(max_tokens=91), 10, 90, 91),
        (chat(max_tokens=100), 10, 90, 100),
        (chat(max_completion_tokens=100), 99, 1, 100),
        (chat(), 99, 1, None),
        (text(), 10, 16, None),
        (text(max_tokens=None), 10, 16, None),
        (text(), 90, 10, None),
        (text(max_tokens=16), 10, 16, 16),
        (text(max_tokens=100), 40, 60, 100),
    ],
)
def test_the_answer_is_clamped_to_the_room(
    request_: ChatRequest | TextRequest, prompt_tokens: int, most: int, asked: int | None
) -> None:
    sized = sampling(request_, prompt_tokens, LIMITS)
    assert (sized.max_tokens, sized.requested_max) == (most, asked)


@pytest.mark.parametrize(
    ("request_", "prompt_tokens", "param", "words"),
    [
        (chat(max_tokens=101), 10, "max_tokens", "max_tokens=101 cannot be greater than max_model_len=100"),
        (chat(max_completion_tokens=101), 10, "max_completion_tokens", "max_completion_tokens=101 cannot be"),
        (text(max_tokens=101), 200, "max_tokens", "cannot be greater than"),
        (chat(max_tokens=10**30), 10, "max_tokens", "cannot be greater than"),
        (chat(truncate_prompt_tokens=101), 10, "truncate_prompt_tokens", "cannot be greater than"),
        (chat(), 101, "input_tokens", "maximum context length is 100 tokens"),
        (text(), 101, "input_tokens", "101 input tokens"),
        (chat(max_tokens=5), 500, "input_tokens", "maximum context length is 100 tokens"),
        (chat(), 100, "max_tokens", "max_tokens must be at least 1, got 0"),
        (text(), 100, "max_tokens", "max_tokens must be at least 1, got 0"),
        (chat(max_tokens=0), 10, "max_tokens", "at least 1, got 0"),
        (chat(max_completion_tokens=-5), 10, "max_tokens", "at least 1, got -5"),
        (chat(max_tokens=0, echo=True), 10, "max_tokens", "should be positive"),
        (text(max_tokens=0), 10, "max_tokens", "should be positive"),
        (text(max_tokens=0, echo=True), 100, None, "context length of 100 tokens"),
        (chat(), 0, None, "cannot be empty"),
        (text(), 0, None, "cannot be empty"),
    ],
)
def test_requests_that_do_not_fit(
    request_: ChatRequest | TextRequest, prompt_tokens: int, param: str | None, words: str
) -> None:
    error = refused(request_, prompt_tokens)
    assert error.param == param
    assert words in error.message


@pytest.mark.parametrize(
    ("request_", "prompt_tokens", "total", "parts"),
    [
        (chat(max_tokens=91), 10, 101, "10 in the messages, 91 in the completion"),
        (chat(max_completion_tokens=200), 10, 210, "10 in the messages, 200 in the completion"),
        (text(max_tokens=50), 60, 110, "60 in the messages, 50 in the completion"),
        (chat(), 100, 101, "100 in the messages, 1 in the completion"),
        (chat(), 150, 151, "150 in the messages, 1 in the completion"),
    ],
)
def test_strict_context_refuses_the_sum_with_the_peers_words(
    request_: ChatRequest | TextRequest, prompt_tokens: int, total: int, parts: str
) -> None:
    error = refused(request_, prompt_tokens, STRICT)
    assert "maximum context length is 100 tokens" in error.message
    assert f"requested {total} tokens" in error.message
    assert parts in error.message
    assert error.param is None


@pytest.mark.parametrize(
    ("request_", "prompt_tokens", "most"),
    [(chat(max_tokens=90), 10, 90), (chat(), 99, 1), (text(), 95, 5), (text(max_tokens=40), 60, 40)],
)
def test_strict_context_takes_what_fits(
    request_: ChatRequest | TextRequest, prompt_tokens: int, most: int
) -> None:
    assert sampling(request_, prompt_tokens, STRICT).max_tokens == most


def test_echo_without_an_answer_generates_one_token_unseen() -> None:
    sized = sampling(text(max_tokens=0, echo=True), 10, LIMITS)
    assert (sized.prompt_only, sized.max_tokens, sized.requested_max) == (True, 1, 1)
    assert not sampling(text(max_tokens=1, echo=True), 10, LIMITS).prompt_only


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"n": 0}, None, "n must be at least 1, got 0"),
        ({"n": -1}, None, "n must be at least 1"),
        ({"n": 9}, None, "n must be at most 8, got 9"),
        ({"n": 10**30}, None, "n must be at most 8"),
        ({"presence_penalty": 2.1}, None, "presence_penalty must be in [-2, 2]"),
        ({"presence_penalty": math.nan}, None, "presence_penalty"),
        ({"frequency_penalty": -2.1}, None, "frequency_penalty must be in [-2, 2]"),
        ({"repetition_penalty": 0}, None, "repetition_penalty must be greater than zero"),
        ({"repetition_penalty": math.inf}, None, "repetition_penalty must be a finite number"),
        ({"repetition_penalty": math.nan}, None, "repetition_penalty must be a finite number"),
        ({"temperature": -1}, "temperature", "temperature must be in [0, 2], got -1.0"),
        ({"temperature": 2.01}, "temperature", "temperature must be in [0, 2]"),
        ({"temperature": math.nan}, "temperature", "temperature must be a finite number"),
        ({"temperature": math.inf}, "temperature", "temperature must be a finite number"),
        ({"top_p": 0}, "top_p", "top_p must be in (0, 1]"),
        ({"top_p": 1.1}, "top_p", "top_p must be in (0, 1]"),
        ({"top_p": math.nan}, "top_p", "top_p"),
        ({"top_k": -2}, None, "top_k"),
        ({"min_p": 1.1}, None, "min_p must be in [0, 1]"),
        ({"min_p": -0.1}, None, "min_p must be in [0, 1]"),
        ({"min_tokens": -1}, None, "min_tokens must be greater than or equal to 0"),
        ({"min_tokens": 6, "max_tokens": 5}, None, "less than or equal to max_tokens=5, got 6"),
        ({"min_tokens": 91}, None, "less than or equal to max_tokens"),
        ({"stop": ""}, None, "empty string"),
        ({"stop": ["a", ""]}, None, "empty string"),
        ({"bad_words": ["a", ""]}, None, "empty string"),
        ({"n": 2, "temperature": 0}, None, "n must be 1"),
        ({"n": 2, "temperature": 0.0}, None, "n must be 1"),
        ({"logit_bias": {"x": 1, "5": 1}}, "logit_bias", "cannot be converted to integer token IDs: ['x']"),
        ({"logit_bias": {"1000": 1}}, "logit_bias", "out-of-vocab"),
        ({"logit_bias": {"-1": 1}}, "logit_bias", "out-of-vocab"),
        ({"stop_token_ids": [1, 1000]}, "stop_token_ids", "out-of-vocab"),
        ({"stop_token_ids": [-1]}, "stop_token_ids", "out-of-vocab"),
        ({"allowed_token_ids": []}, "allowed_token_ids", "empty"),
        ({"allowed_token_ids": [1000]}, "allowed_token_ids", "out-of-vocab"),
        ({"bad_words": [f"w{i}" for i in range(129)]}, "bad_words", "too many bad words"),
        ({"vllm_xargs": {"a": 2**64}}, "extra_args", "2**64"),
        ({"kv_transfer_params": {"a": [{"b": -(2**63) - 1}]}}, "extra_args", "2**63"),
        ({"routed_experts_prompt_start": 11}, "routed_experts_prompt_start", "prompt's length"),
        ({"prompt_logprobs": 21}, "prompt_logprobs", "greater than max allowed: 20"),
        ({"prompt_logprobs": -1}, "prompt_logprobs", "greater than max allowed: 20"),
    ],
)
@pytest.mark.parametrize("make", [chat, text])
def test_ranges(make: Any, fields: dict[str, Any], param: str | None, words: str) -> None:
    error = refused(make(**{"max_tokens": 90, **fields}))
    assert error.param == param
    assert words in error.message
    assert (f"(parameter={param}" in error.message) == (param is not None)


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 8},
        {"presence_penalty": -2, "frequency_penalty": 2, "repetition_penalty": 0.001},
        {"temperature": 2, "top_p": 1, "top_k": -1, "min_p": 0},
        {"temperature": 0, "top_k": 0, "min_p": 1},
        {"min_tokens": 5, "max_tokens": 5},
        {"logit_bias": {" 5 ": 1000, "999": -1000}, "stop_token_ids": [0, 999], "allowed_token_ids": [0]},
        {"logit_bias": {"5": math.nan}, "bad_words": ["w"] * 200},
        {"vllm_xargs": {"a": 2**64 - 1, "b": -(2**63)}, "routed_experts_prompt_start": 10},
    ],
)
@pytest.mark.parametrize("make", [chat, text])
def test_edges_of_the_ranges(make: Any, fields: dict[str, Any]) -> None:
    sampling(make(**fields), 10, LIMITS)


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        (chat(logprobs=True, top_logprobs=21), "logprobs"),
        (chat(logprobs=True, top_logprobs=-1), "logprobs"),
        (text(logprobs=25), "logprobs"),
        (text(logprobs=-1), "logprobs"),
        (chat(logprobs=True, logprob_token_ids=list(range(129))), "logprob_token_ids"),
        (chat(logprobs=True, logprob_token_ids=[1000]), "logprob_token_ids"),
        (chat(echo=True, top_logprobs=20, logprobs=True, prompt_logprobs=21), "prompt_logprobs"),
    ],
)
def test_too_many_logprobs(request_: ChatRequest | TextRequest, param: str) -> None:
    assert refused(request_).param == param


@pytest.mark.parametrize(
    ("request_", "logprobs", "of_prompt"),
    [
        (chat(), None, None),
        (chat(logprobs=True), 0, None),
        (chat(logprobs=True, top_logprobs=20), 20, None),
        (chat(logprobs=True, top_logprobs=3, echo=True), 3, 3),
        (chat(echo=True), None, 0),
        (chat(prompt_logprobs=0), None, 0),
        (chat(logprobs=True, top_logprobs=3, logprob_token_ids=[7, 8]), 2, None),
        (text(), None, None),
        (text(logprobs=0), 0, None),
        (text(logprobs=5), 5, None),
        (text(logprobs=5, echo=True), 5, 5),
        (text(logprobs=5, echo=True, prompt_logprobs=1), 5, 1),
        (text(echo=True), None, None),
        (text(logprobs=True), 1, None),
    ],
)
def test_how_many_logprobs(
    request_: ChatRequest | TextRequest, logprobs: int | None, of_prompt: int | None
) -> None:
    sized = sampling(request_, 10, LIMITS)
    assert (sized.logprobs, sized.prompt_logprobs) == (logprobs, of_prompt)


def test_the_whole_vocabulary_where_the_server_allows_it() -> None:
    sized = sampling(text(logprobs=-1), 10, replace(LIMITS, max_logprobs=-1))
    assert sized.logprobs == 1000


def test_chosen_ids_are_carried_over() -> None:
    assert sampling(chat(logprobs=True, logprob_token_ids=[7, 8]), 10, LIMITS).logprob_token_ids == (7, 8)


@pytest.mark.parametrize(
    ("given_", "used"), [(None, 1.0), (0, 0.0), (0.001, 0.01), (0.01, 0.01), (0.7, 0.7), (2, 2.0)]
)
def test_low_temperatures_are_raised(given_: float | None, used: float) -> None:
    assert sampling(chat(temperature=given_), 10, LIMITS).temperature == used


def test_seed_of_minus_one_is_none() -> None:
    assert sampling(chat(seed=-1), 10, LIMITS).seed is None
    assert sampling(chat(seed=0), 10, LIMITS).seed == 0


def test_a_single_stop_string_and_null_n() -> None:
    sized = sampling(chat(stop="end", n=None), 10, LIMITS)
    assert (sized.stop, sized.n) == (("end",), 1)


@pytest.mark.parametrize(
    ("fields", "prompt_tokens", "param"),
    [
        ({"max_tokens": 101, "truncate_prompt_tokens": 101, "temperature": 3}, 500, "max_tokens"),
        ({"truncate_prompt_tokens": 101, "temperature": 3}, 500, "truncate_prompt_tokens"),
        ({"temperature": 3, "logit_bias": {"x": 1}}, 500, "input_tokens"),
        ({"temperature": 3, "top_p": 5, "logit_bias": {"x": 1}}, 10, "logit_bias"),
        ({"temperature": 3, "top_p": 5, "max_tokens": 0}, 10, "temperature"),
        ({"top_p": 5, "max_tokens": 0}, 10, "top_p"),
        ({"max_tokens": 0, "stop_token_ids": [1000]}, 10, "max_tokens"),
        ({"logprobs": True, "top_logprobs": 21, "stop_token_ids": [1000]}, 10, "logprobs"),
    ],
)
def test_checks_run_in_vllms_order(fields: dict[str, Any], prompt_tokens: int, param: str) -> None:
    assert refused(chat(**fields), prompt_tokens).param == param


def test_a_hopeless_budget_is_refused_before_the_prompt_is_known() -> None:
    check_budget(chat(max_tokens=100), LIMITS)
    with pytest.raises(ApiError) as caught:
        check_budget(chat(max_tokens=101), LIMITS)
    assert caught.value.param == "max_tokens"


@pytest.mark.parametrize(
    ("request_", "kept"),
    [
        (chat(), None),
        (chat(truncate_prompt_tokens=7), 7),
        (chat(truncate_prompt_tokens=0), 0),
        (chat(truncate_prompt_tokens=-1), 99),
        (text(truncate_prompt_tokens=-1), 99),
        (text(truncate_prompt_tokens=-1, max_tokens=0, echo=True), 100),
    ],
)
def test_truncation(request_: ChatRequest | TextRequest, kept: int | None) -> None:
    assert truncation(request_, LIMITS) == kept


@given(st.integers(1, 99), st.integers(1, 100) | st.none(), st.integers(0, 100))
def test_whatever_is_taken_fits(prompt_tokens: int, asked: int | None, least: int) -> None:
    request = chat(max_tokens=asked, min_tokens=least)
    room = 100 - prompt_tokens
    most = room if asked is None else min(asked, room)
    if least > most:
        refused(request, prompt_tokens)
    else:
        sized = sampling(request, prompt_tokens, LIMITS)
        assert (sized.max_tokens, sized.min_tokens, sized.requested_max) == (most, least, asked)
