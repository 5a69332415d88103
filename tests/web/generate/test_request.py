"""Bodies of generate requests: what is read, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmdsim.web.errors import ApiError
from llmdsim.web.generate.request import GenerateRequest, decode_generate


def decode(**fields: Any) -> GenerateRequest:
    return decode_generate(json.dumps({"token_ids": [1, 2, 3], "sampling_params": {}, **fields}).encode())


def refused(**fields: Any) -> ApiError:
    with pytest.raises(ApiError) as found:
        decode(**fields)
    assert found.value.status == 400
    return found.value


def test_what_must_be_there_is_named_in_the_peers_words() -> None:
    error = refused(token_ids=None, sampling_params=None)
    assert "Missing input token_ids" in error.message
    assert "Missing sampling_params field" in error.message
    assert error.param == "body.token_ids"
    assert refused(sampling_params=None).param == "body.sampling_params"


@pytest.mark.parametrize("ids", [[], [-1], [1, -(2**70)], "1", {}, [[1]], ["x"], [None], [1.5]])
def test_ids_are_a_list_of_numbers_from_0(ids: Any) -> None:
    assert refused(token_ids=ids).param.startswith("body.token_ids")  # type: ignore[union-attr]


@pytest.mark.parametrize("ids", [["1", "2"], [1.0, 2.0], [True, 2]])
def test_ids_may_be_written_in_other_ways(ids: Any) -> None:
    assert decode(token_ids=ids).token_ids == [1, 2]


def test_parameters_are_read_leniently_and_unknown_ones_ignored() -> None:
    params = decode(
        sampling_params={"max_tokens": "7", "temperature": "0.5", "ignore_eos": 1, "flat_logprobs": {}}
    ).sampling_params
    assert (params.max_tokens, params.temperature, params.ignore_eos) == (7, 0.5, True)


@pytest.mark.parametrize("params", [{"n": None}, {"stop": 5}, {"seed": 2**63}, {"top_k": 2**70}, [], "x"])
def test_a_wrong_parameter_names_the_field_as_a_whole(params: Any) -> None:
    assert refused(sampling_params=params).param == "body.sampling_params"


def test_more_than_four_stop_strings_may_be_given() -> None:
    assert decode(sampling_params={"stop": ["x"] * 64}).sampling_params.stop == ["x"] * 64
    assert refused(sampling_params={"stop": ["x"] * 65})


def test_stream_options_go_without_stream() -> None:
    options = decode(stream_options={"include_usage": True}).stream_options
    assert options is not None
    assert options.include_usage


def test_extra_members_of_the_reasoning_parsers_arguments_are_refused() -> None:
    assert decode(reasoning_parser_kwargs={"chat_template_kwargs": {"a": 1}})
    assert refused(reasoning_parser_kwargs={"model": 1}).param == "body.reasoning_parser_kwargs.model"
    assert refused(reasoning_parser_kwargs={"chat_template_kwargs": 1})


@pytest.mark.parametrize("mode", ["text", "derender"])
def test_text_needs_to_be_made(mode: str) -> None:
    assert decode(output_mode=mode)
    assert decode(sampling_params={"detokenize": False})
    assert refused(output_mode=mode, sampling_params={"detokenize": False}).param == "body"


def test_a_salt_has_its_rules() -> None:
    assert decode(cache_salt="x").cache_salt == "x"
    assert refused(cache_salt="").param == "cache_salt"


def test_deep_bodies_are_refused() -> None:
    deep: Any = 1
    for _ in range(250):
        deep = [deep]
    refused(token_offsets=deep)
    refused(token_offsets=deep, cache_salt="x")
