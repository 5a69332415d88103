"""`POST /v1/completions` bodies: the forms of a prompt, what differs from chat, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmdsim.web.errors import ApiError
from llmdsim.web.limits import Limits
from llmdsim.web.text_request import TextRequest, decode_text, prompts

LIMITS = Limits(max_model_len=100, max_n=8, max_prompts=4, vocab_size=1000)


def text(**fields: Any) -> TextRequest:
    return decode_text(json.dumps({"prompt": "hi", **fields}).encode())


def refused(**fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        text(**fields)
    assert caught.value.status == 400
    return caught.value


def test_defaults() -> None:
    request = text()
    assert (request.prompt, request.n, request.logprobs, request.echo) == ("hi", 1, None, False)
    assert (request.max_tokens, request.asked_max_tokens) == (None, (None, "max_tokens"))
    assert (request.suffix, request.prompt_embeds, request.add_special_tokens) == (None, None, True)
    assert text(max_tokens=None).max_tokens is None


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("text", ["text"]),
        (["a"], ["a"]),
        (["a", ""], ["a", ""]),
        ([1, 2, 0], [[1, 2, 0]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
        ([999], [[999]]),
        (["1", "2"], ["1", "2"]),
        (["1", 2], [[1, 2]]),
        ([1.0, True], [[1, 1]]),
        ([["1"], [2.0]], [[1], [2]]),
        (["a", "b", "c", "d"], ["a", "b", "c", "d"]),
        (list(range(50)), [list(range(50))]),
    ],
)
def test_forms_of_a_prompt(prompt: object, expected: object) -> None:
    assert prompts(text(prompt=prompt), LIMITS) == expected


@pytest.mark.parametrize("prompt", [None, "", []])
def test_no_prompt(prompt: object) -> None:
    error = refused(prompt=prompt)
    assert (error.type, error.param) == ("BadRequestError", "prompt")


def test_absent_prompt() -> None:
    with pytest.raises(ApiError) as caught:
        decode_text(b'{"model":"m"}')
    assert caught.value.param == "prompt"


@pytest.mark.parametrize(
    ("prompt", "count", "param"),
    [
        (5, 4, "body.prompt"),
        ({}, 4, "body.prompt"),
        (True, 4, "body.prompt"),
        ([1, -2], 6, "body.prompt.1"),
        ([-1], 4, "body.prompt.0"),
        ([[1.5]], 4, "body.prompt.0"),
        ([[1, -1]], 4, "body.prompt.0"),
        (["a", 1], 5, "body.prompt.0"),
        ([[1], "a"], 5, "body.prompt.0"),
        ([None], 4, "body.prompt.0"),
        ([["a"]], 4, "body.prompt.0"),
    ],
)
def test_prompts_of_no_form_are_reported_as_each_form_sees_them(
    prompt: object, count: int, param: str
) -> None:
    error = refused(prompt=prompt)
    assert (error.type, error.param) == ("Bad Request", param)
    assert error.message.startswith(f"{count} validation errors:\n")


@pytest.mark.parametrize("prompt", [[5, *["a"] * 50_000], [["a"] * 50_000], [[], *[5.5] * 50_000]])
def test_reading_a_hopeless_prompt_stops_early(prompt: object) -> None:
    error = refused(prompt=prompt)
    assert int(error.message.split()[0]) < 500


@pytest.mark.parametrize(
    ("prompt", "n", "param", "words"),
    [
        ([[]], 1, None, "cannot be empty"),
        ([[1], []], 1, None, "cannot be empty"),
        ([1000], 1, None, "Token id 1000 is out of vocabulary"),
        ([[1], [1001, 5]], 1, None, "Token id 1001 is out of vocabulary"),
        (["a"] * 5, 1, "prompt", "exceeds the maximum of 4"),
        ([[1]] * 5, 1, "prompt", "exceeds the maximum of 4"),
        (["a"] * 3, 3, "n", "more than 8 choices"),
    ],
)
def test_prompts_beyond_the_limits(prompt: object, n: int, param: str | None, words: str) -> None:
    with pytest.raises(ApiError) as caught:
        prompts(text(prompt=prompt, n=n), LIMITS)
    assert (caught.value.status, caught.value.param) == (400, param)
    assert words in caught.value.message


def test_choices_are_bounded_over_all_prompts() -> None:
    assert len(prompts(text(prompt=["a"] * 4, n=2), LIMITS)) == 4


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": None}, "body.n"),
        ({"n": "x"}, "body.n"),
        ({"max_tokens": "many"}, "body.max_tokens"),
        ({"stop": ["1", "2", "3", "4", "5"]}, "body.stop"),
        ({"echo": "maybe"}, "body.echo"),
        ({"suffix": 5}, "body.suffix"),
    ],
)
def test_wrong_types(fields: dict[str, Any], param: str) -> None:
    error = refused(**fields)
    assert (error.type, error.param) == ("Bad Request", param)


@pytest.mark.parametrize(
    "field", ["echo", "logprobs", "max_tokens", "suffix", "stop", "model", "prompt_embeds"]
)
def test_null_is_taken(field: str) -> None:
    text(**{field: None})


def test_the_seeds_own_curl() -> None:
    assert text(max_tokens="1").max_tokens == 1


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"stream_options": {"include_usage": True}}, "stream_options", "Stream options"),
        ({"logprobs": -2}, "logprobs", "positive value or -1"),
        ({"logprobs": "5"}, "logprobs", "must be an integer"),
        ({"prompt_logprobs": []}, "prompt_logprobs", "must be an integer"),
        ({"prompt_logprobs": -2}, "prompt_logprobs", "positive value or -1"),
        ({"stream": True, "prompt_logprobs": 1}, "prompt_logprobs", "not available when `stream=True`"),
        ({"logprob_token_ids": [1]}, "logprob_token_ids", "`logprobs`"),
        (
            {"logprob_token_ids": [1], "logprobs": 1, "use_beam_search": True},
            "logprob_token_ids",
            "beam search",
        ),
        (
            {"logprob_token_ids": [1], "logprobs": 1, "echo": True, "max_tokens": 0},
            "logprob_token_ids",
            "`max_tokens=0`",
        ),
        ({"use_beam_search": True, "echo": True, "logprobs": 1}, "echo", "beam search"),
        ({"structured_outputs": {"json": {}, "choice": ["a"]}}, "structured_outputs", "one kind"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "must be provided"),
        ({"cache_salt": "a/b"}, "cache_salt", "128 characters"),
        ({"thinking_token_budget": 1.0}, "thinking_token_budget", "non-negative integer"),
        ({"prompt_embeds": "AAAA"}, "prompt_embeds", "--enable-prompt-embeds"),
        ({"prompt": None, "prompt_embeds": ""}, "prompt_embeds", "--enable-prompt-embeds"),
    ],
)
def test_combinations_refused_with_a_param(fields: dict[str, Any], param: str, words: str) -> None:
    error = refused(**fields)
    assert (error.type, error.param) == ("BadRequestError", param)
    assert words in error.message
    assert f"(parameter={param}" in error.message


def test_beam_search_does_not_stream() -> None:
    error = refused(stream=True, use_beam_search=True)
    assert (error.type, error.param) == ("BadRequestError", None)
    assert "beam search" in error.message
    assert text(use_beam_search=True).use_beam_search


def test_suffix_is_refused() -> None:
    error = refused(suffix="")
    assert (error.type, error.param) == ("BadRequestError", "suffix")


@pytest.mark.parametrize(
    "fields",
    [
        {"logprobs": 0},
        {"logprobs": -1},
        {"logprobs": 5, "prompt_logprobs": 5, "echo": True, "max_tokens": 0},
        {"logprobs": 1, "logprob_token_ids": [1, 2]},
        {"stream": True, "prompt_logprobs": 0},
        {"messages": 5, "tools": [], "top_logprobs": "x", "max_completion_tokens": "x", "best_of": 3},
        {"prompt_embeds": []},
    ],
)
def test_what_is_taken(fields: dict[str, Any]) -> None:
    text(**fields)


def test_chat_only_fields_are_ignored() -> None:
    assert text(max_completion_tokens=7).asked_max_tokens == (None, "max_tokens")
