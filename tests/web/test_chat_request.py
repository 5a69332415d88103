"""`POST /v1/chat/completions` bodies: what is taken, with which defaults, and what is refused, and how."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmdsim.web.chat_request import ChatRequest, ToolChoice, decode_chat, refuse_untrusted
from llmdsim.web.errors import ApiError

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
FIRST_TYPE = "body.messages.0.ChatCompletionDeveloperMessageParam"


def chat(**fields: Any) -> ChatRequest:
    return decode_chat(json.dumps({"messages": [USER], **fields}).encode())


def refused(**fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        chat(**fields)
    assert caught.value.status == 400
    return caught.value


def test_defaults() -> None:
    request = chat()
    assert request.messages == [USER]
    assert request.model is None
    assert (request.n, request.stream, request.max_tokens, request.max_completion_tokens) == (
        1,
        False,
        None,
        None,
    )
    assert (request.logprobs, request.top_logprobs, request.prompt_logprobs) == (False, 0, None)
    assert (request.temperature, request.top_p, request.top_k, request.min_p) == (None, None, None, None)
    assert (request.stop, request.stop_token_ids, request.bad_words, request.seed) == (None, None, [], None)
    assert (request.min_tokens, request.ignore_eos, request.include_stop_str_in_output) == (0, False, False)
    assert (request.echo, request.add_generation_prompt, request.continue_final_message) == (
        False,
        True,
        False,
    )
    assert (request.tools, request.tool_choice, request.parallel_tool_calls) == (None, "none", True)
    assert (request.priority, request.request_id, request.cache_salt, request.user) == (0, "", None, None)
    assert (request.kv_transfer_params, request.cache_hit_threshold) == (None, None)
    assert (request.include_usage, request.continuous_usage) == (False, False)
    assert (request.include_reasoning, request.skip_special_tokens) == (True, None)


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "m", "user": "u", "request_id": "r", "session_id": "s", "priority": -5},
        {"max_tokens": 5, "max_completion_tokens": 6, "min_tokens": 2, "n": 3, "seed": 2**63 - 1},
        {"temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1},
        {"presence_penalty": 0.5, "frequency_penalty": -0.5, "logit_bias": {"5": 1.5}, "length_penalty": 1.0},
        {"stop": "x", "stop_token_ids": [1, 2], "include_stop_str_in_output": True, "ignore_eos": True},
        {"stop": ["a", "b", "c", "d"], "bad_words": ["w"], "allowed_token_ids": [1], "echo": True},
        {"stream": True, "prompt_logprobs": 0, "return_token_ids": True, "return_tokens_as_token_ids": True},
        {"logprobs": True, "top_logprobs": 5, "prompt_logprobs": 2, "logprob_token_ids": [1]},
        {"logprobs": True, "top_logprobs": -1, "prompt_logprobs": -1},
        {"cache_salt": "salt", "cache_hit_threshold": 0.5, "kv_transfer_params": {"do_remote_decode": True}},
        {"ec_transfer_params": {"a": [1]}, "vllm_xargs": {"a": "x", "b": 1.5, "c": [1, "y"]}},
        {"truncate_prompt_tokens": -1, "truncation_side": "left", "stream_interval": 4, "watermarking": True},
        {"thinking_token_budget": -1, "reasoning_effort": "high", "include_reasoning": False},
        {"chat_template": "t", "chat_template_kwargs": {"k": 1}, "documents": [{"title": "t", "text": "x"}]},
        {"media_io_kwargs": {"image": {"a": 1}}, "mm_processor_kwargs": {"a": 1}, "mm_payload": "none"},
        {"use_beam_search": True, "skip_special_tokens": False, "spaces_between_special_tokens": False},
        {"return_prompt_text": True, "add_special_tokens": True, "routed_experts_prompt_start": 1},
        {"return_weight_versions": True, "return_token_offsets": True, "return_mm_kwargs": True},
        {"continue_final_message": True, "add_generation_prompt": False, "parallel_tool_calls": False},
    ],
)
def test_fields_are_decoded_as_sent(fields: dict[str, Any]) -> None:
    request = chat(**fields)
    assert {name: getattr(request, name) for name in fields} == fields


def test_stream_options() -> None:
    request = chat(stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True})
    assert (request.include_usage, request.continuous_usage) == (True, True)
    request = chat(stream=True, stream_options={"continuous_usage_stats": True})
    assert (request.include_usage, request.continuous_usage) == (False, False)
    request = chat(stream=True, stream_options={"include_usage": None})
    assert (request.include_usage, request.continuous_usage) == (False, False)


@pytest.mark.parametrize("options", [{}, None])
def test_empty_stream_options_need_no_stream(options: object) -> None:
    assert not chat(stream_options=options).include_usage


NULLABLE = [
    *(
        "model",
        "frequency_penalty",
        "presence_penalty",
        "repetition_penalty",
        "temperature",
        "top_p",
        "top_k",
    ),
    *(
        "min_p",
        "logit_bias",
        "logprobs",
        "max_tokens",
        "max_completion_tokens",
        "n",
        "seed",
        "stop",
        "stream",
    ),
    *("stream_options", "response_format", "tools", "tool_choice", "parallel_tool_calls", "reasoning_effort"),
    *("thinking_token_budget", "user", "stop_token_ids", "skip_special_tokens", "truncate_prompt_tokens"),
    *(
        "truncation_side",
        "prompt_logprobs",
        "logprob_token_ids",
        "allowed_token_ids",
        "documents",
        "cache_salt",
    ),
    *(
        "chat_template",
        "chat_template_kwargs",
        "media_io_kwargs",
        "mm_processor_kwargs",
        "structured_outputs",
    ),
    *("session_id", "return_tokens_as_token_ids", "return_token_ids", "return_token_offsets", "vllm_xargs"),
    *(
        "return_prompt_text",
        "kv_transfer_params",
        "ec_transfer_params",
        "repetition_detection",
        "watermarking",
    ),
    *("stream_interval", "cache_hit_threshold", "return_mm_kwargs"),
]
NOT_NULLABLE = [
    *("include_reasoning", "use_beam_search", "length_penalty", "include_stop_str_in_output", "ignore_eos"),
    *("min_tokens", "spaces_between_special_tokens", "bad_words", "echo", "add_generation_prompt"),
    *("continue_final_message", "add_special_tokens", "priority", "request_id", "return_weight_versions"),
    *("routed_experts_prompt_start", "mm_payload"),
]


@pytest.mark.parametrize("field", NULLABLE)
def test_null_is_taken(field: str) -> None:
    chat(**{field: None})


@pytest.mark.parametrize("field", NOT_NULLABLE)
def test_null_is_refused(field: str) -> None:
    error = refused(**{field: None})
    assert (error.type, error.param) == ("Bad Request", f"body.{field}")


def test_null_top_logprobs_is_zero() -> None:
    assert chat(logprobs=True, top_logprobs=None).top_logprobs == 0


def test_unknown_and_removed_fields_are_ignored() -> None:
    chat(best_of=5, guided_json="x", functions=[], store=True, metadata=5, Max_Tokens="x", temperatur="hot")


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"max_tokens": "1"}, "max_tokens", 1),
        ({"max_tokens": 5.0}, "max_tokens", 5),
        ({"n": True}, "n", 1),
        ({"temperature": "0.5"}, "temperature", 0.5),
        ({"temperature": 1}, "temperature", 1.0),
        ({"stream": "true"}, "stream", True),
        ({"stream": 1}, "stream", True),
        ({"ignore_eos": "no"}, "ignore_eos", False),
        ({"seed": "-5"}, "seed", -5),
        ({"stop_token_ids": ["1", 2.0]}, "stop_token_ids", [1, 2]),
        ({"logit_bias": {"1": "2"}}, "logit_bias", {"1": 2.0}),
        ({"logprobs": 1, "top_logprobs": 2.0}, "top_logprobs", 2),
    ],
)
def test_near_misses_are_coerced(fields: dict[str, Any], name: str, value: object) -> None:
    result = getattr(chat(**fields), name)
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    ("fields", "kind", "param"),
    [
        ({"n": "x"}, "int_parsing", "body.n"),
        ({"n": 1.5}, "int_from_float", "body.n"),
        ({"n": []}, "int_type", "body.n"),
        ({"temperature": "hot"}, "float_parsing", "body.temperature"),
        ({"model": 5}, "string_type", "body.model"),
        ({"user": True}, "string_type", "body.user"),
        ({"seed": 2**63}, "less_than_equal", "body.seed"),
        ({"seed": -(2**63) - 1}, "greater_than_equal", "body.seed"),
        ({"priority": 2**63}, "less_than_equal", "body.priority"),
        ({"stop": ["1", "2", "3", "4", "5"]}, "string_type", "body.stop"),
        ({"stop": 5}, "string_type", "body.stop"),
        ({"stop": ["a", 5]}, "string_type", "body.stop"),
        ({"stream": "maybe"}, "bool_parsing", "body.stream"),
        ({"stream": True, "stream_options": "x"}, "model_attributes_type", "body.stream_options"),
        ({"logit_bias": {"1": "x"}}, "float_parsing", "body.logit_bias.1"),
        ({"stop_token_ids": [1, "x"]}, "int_parsing", "body.stop_token_ids.1"),
        ({"reasoning_effort": "huge"}, "literal_error", "body.reasoning_effort"),
        ({"truncate_prompt_tokens": -2}, "greater_than_equal", "body.truncate_prompt_tokens"),
        ({"stream_interval": 0}, "greater_than_equal", "body.stream_interval"),
        ({"routed_experts_prompt_start": -1}, "greater_than_equal", "body.routed_experts_prompt_start"),
        ({"kv_transfer_params": "x"}, "dict_type", "body.kv_transfer_params"),
        ({"vllm_xargs": {"a": None}}, "string_type", "body.vllm_xargs.a"),
        ({"documents": [{"a": 5}]}, "string_type", "body.documents.0.a"),
        ({"tools": ["x"]}, "model_attributes_type", "body.tools.0"),
        ({"tools": [{}]}, "missing", "body.tools.0.function"),
        ({"tools": [{"function": {}}]}, "missing", "body.tools.0.function.name"),
        ({"tools": [{"function": {"name": 5}}]}, "string_type", "body.tools.0.function.name"),
        ({"tools": [{"type": "z", "function": {"name": "a"}}]}, "literal_error", "body.tools.0.type"),
        ({"tools": "x"}, "list_type", "body.tools"),
        ({"response_format": "x"}, "model_attributes_type", "body.response_format"),
        ({"response_format": {}}, "missing", "body.response_format.type"),
        ({"response_format": {"type": "x"}}, "literal_error", "body.response_format.type"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {}}},
            "missing",
            "body.response_format.json_schema.name",
        ),
        ({"structured_outputs": "x"}, "model_attributes_type", "body.structured_outputs"),
        ({"messages": "text"}, "list_type", "body.messages"),
        ({"messages": {}}, "list_type", "body.messages"),
        ({"messages": [5]}, "dict_type", FIRST_TYPE),
        ({"messages": [{"content": "x"}]}, "missing", f"{FIRST_TYPE}.role"),
        ({"messages": [{}]}, "missing", f"{FIRST_TYPE}.content"),
        ({"messages": [{"role": 5, "content": "x"}]}, "literal_error", f"{FIRST_TYPE}.role"),
        ({"messages": [{"role": "user", "content": None}]}, "string_type", f"{FIRST_TYPE}.content"),
        ({"messages": [{"role": "user", "content": 5}]}, "string_type", f"{FIRST_TYPE}.content"),
        ({"messages": [{"role": "user", "content": {}}]}, "string_type", f"{FIRST_TYPE}.content"),
        ({"messages": [{"role": "function", "content": None}]}, "string_type", f"{FIRST_TYPE}.content"),
        ({"messages": [{**USER, "name": None}]}, "string_type", f"{FIRST_TYPE}.name"),
        ({"messages": [{**USER, "tool_call_id": 5}]}, "string_type", f"{FIRST_TYPE}.tool_call_id"),
        ({"messages": [{**USER, "tool_calls": 5}]}, "iterable_type", f"{FIRST_TYPE}.tool_calls"),
    ],
)
def test_wrong_types_are_refused_by_name_and_place(fields: dict[str, Any], kind: str, param: str) -> None:
    error = refused(**fields)
    assert error.type == "Bad Request"
    assert "validation error" in error.message
    assert f"{{'type': '{kind}', 'loc': '{param}'" in error.message
    assert error.param == param


def test_absent_messages() -> None:
    with pytest.raises(ApiError) as caught:
        decode_chat(b'{"model":"m"}')
    assert caught.value.param == "body.messages"
    assert caught.value.message.startswith(
        "1 validation error:\n  {'type': 'missing', 'loc': 'body.messages'"
    )


def test_all_type_errors_come_together() -> None:
    error = refused(n="x", temperature="hot", messages=[5])
    assert error.message.startswith("3 validation errors:\n")


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"stream_options": {"include_usage": True}}, "stream_options", "Stream options"),
        ({"stream": False, "stream_options": {"x": 1}}, "stream_options", "`stream=True`"),
        ({"top_logprobs": 2}, "top_logprobs", "`logprobs` must be set to true"),
        ({"top_logprobs": -1}, "top_logprobs", "`logprobs` must be set to true"),
        ({"logprobs": False, "top_logprobs": 1}, "top_logprobs", "`logprobs` must be set to true"),
        ({"logprobs": True, "top_logprobs": -2}, "top_logprobs", "positive value or -1"),
        ({"logprobs": True, "top_logprobs": "2"}, "top_logprobs", "must be an integer"),
        ({"logprobs": True, "top_logprobs": []}, "top_logprobs", "must be an integer"),
        ({"prompt_logprobs": "2"}, "prompt_logprobs", "must be an integer"),
        ({"prompt_logprobs": -2}, "prompt_logprobs", "positive value or -1"),
        ({"stream": True, "prompt_logprobs": 1}, "prompt_logprobs", "not available when `stream=True`"),
        ({"stream": True, "prompt_logprobs": -1}, "prompt_logprobs", "not available when `stream=True`"),
        ({"logprob_token_ids": [1]}, "logprob_token_ids", "`logprobs`"),
        (
            {"logprobs": True, "logprob_token_ids": [1], "use_beam_search": True},
            "logprob_token_ids",
            "beam search",
        ),
        ({"tools": []}, "tools", "must not be an empty array"),
        ({"tool_choice": "auto"}, "tool_choice", "`tools` must be set"),
        ({"tool_choice": "required"}, "tool_choice", "`tools` must be set"),
        ({"tools": None, "tool_choice": "auto"}, "tool_choice", "`tools` must be set"),
        ({"tools": [TOOL], "tool_choice": "banana"}, "tool_choice", "Invalid value"),
        ({"tools": [TOOL], "tool_choice": 5}, "tool_choice", "Invalid value"),
        ({"tools": [TOOL], "tool_choice": {}}, "tool_choice.function", "`function`"),
        ({"tools": [TOOL], "tool_choice": {"function": "x"}}, "tool_choice.function", "`function`"),
        ({"tools": [TOOL], "tool_choice": {"function": {}}}, "tool_choice.function.name", "`name`"),
        ({"tools": [TOOL], "tool_choice": {"function": {"name": ""}}}, "tool_choice.function.name", "`name`"),
        ({"tools": [TOOL], "tool_choice": {"function": {"name": "x"}}}, "tool_choice", "does not match any"),
        ({"tools": [{}], "tool_choice": {"function": {"name": "x"}}}, "tool_choice", "does not match any"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "must be provided"),
        ({"response_format": {"type": "structural_tag"}}, "response_format", "invalid structural_tag"),
        (
            {"response_format": {"type": "structural_tag", "format": 5}},
            "response_format",
            "invalid structural_tag",
        ),
        ({"cache_salt": ""}, "cache_salt", "non-empty string"),
        ({"cache_salt": 5}, "cache_salt", "non-empty string"),
        ({"cache_salt": "x" * 129}, "cache_salt", "at most 128 characters"),
        ({"cache_salt": "a@b"}, "cache_salt", "'@'"),
        ({"cache_salt": "a\0b"}, "cache_salt", "NUL"),
        ({"thinking_token_budget": -2}, "thinking_token_budget", "non-negative integer"),
        ({"thinking_token_budget": True}, "thinking_token_budget", "non-negative integer"),
        ({"thinking_token_budget": 5.0}, "thinking_token_budget", "non-negative integer"),
        ({"thinking_token_budget": "5"}, "thinking_token_budget", "non-negative integer"),
    ],
)
def test_combinations_refused_with_a_param(fields: dict[str, Any], param: str, words: str) -> None:
    error = refused(**fields)
    assert (error.type, error.param) == ("BadRequestError", param)
    assert words in error.message
    assert f"(parameter={param}" in error.message


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"messages": None}, "not iterable"),
        ({"messages": 5}, "not iterable"),
        ({"messages": []}, "empty"),
        ({"continue_final_message": True, "add_generation_prompt": True}, "cannot both be set"),
        ({"continue_final_message": True}, "add_generation_prompt"),
        ({"chat_template_kwargs": {"tokenize": True}}, "tokenize"),
        ({"structured_outputs": {"json": {}, "regex": "x"}}, "one kind"),
        ({"structured_outputs": {"json": {}, "grammar": "x"}}, "one kind"),
        ({"structured_outputs": {}}, "one kind"),
        (
            {"structured_outputs": {"regex": "x"}, "response_format": {"type": "json_object"}},
            "more than one kind",
        ),
        (
            {"structured_outputs": {"json": {}}, "tools": [TOOL], "tool_choice": TOOL},
            "not both",
        ),
        ({"structured_outputs": {"choice": []}}, "cannot be an empty list"),
        ({"structured_outputs": {"grammar": " "}}, "cannot be an empty string"),
        ({"structured_outputs": {"json": ""}}, "cannot be an empty string"),
        ({"structured_outputs": {"json_object": False}}, "must be true"),
        ({"structured_outputs": {"regex": "a\0"}}, "NUL"),
        ({"repetition_detection": {"max_pattern_size": 2, "min_count": 1}}, "min_count"),
        ({"repetition_detection": {"max_pattern_size": 1, "min_pattern_size": 2}}, "min_pattern_size"),
        ({"repetition_detection": {"min_pattern_size": -1}}, "min_pattern_size"),
    ],
)
def test_combinations_refused_without_a_param(fields: dict[str, Any], words: str) -> None:
    error = refused(**fields)
    assert (error.type, error.param) == ("BadRequestError", None)
    assert words in error.message


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels - 1):
        schema = {"properties": schema}
    return schema


@pytest.mark.parametrize("as_text", [False, True])
def test_schemas_may_nest_64_levels(as_text: bool) -> None:
    schema = json.dumps(deep(64)) if as_text else deep(64)
    chat(structured_outputs={"json": schema})
    schema = json.dumps(deep(65)) if as_text else deep(65)
    assert "nested too deeply" in refused(structured_outputs={"json": schema}).message
    error = refused(response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": deep(65)}})
    assert "nested too deeply" in error.message


def test_a_schema_text_nested_without_end_is_refused() -> None:
    assert "nested too deeply" in refused(structured_outputs={"json": "[" * 100_000}).message


@pytest.mark.parametrize(
    "response_format",
    [
        {"type": "text"},
        {"type": "json_object"},
        {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True}},
        {"type": "structural_tag", "format": {"type": "any"}},
        {"type": "structural_tag", "structures": [{"begin": "<a>", "end": "</a>"}], "triggers": ["<a"]},
    ],
)
def test_response_formats(response_format: dict[str, Any]) -> None:
    request = chat(response_format=response_format)
    assert request.response_format is not None
    assert request.response_format.type == response_format["type"]


@pytest.mark.parametrize(
    ("fields", "choice"),
    [
        ({}, "none"),
        ({"tool_choice": None}, "none"),
        ({"tool_choice": "none"}, "none"),
        ({"tools": [TOOL]}, "auto"),
        ({"tools": [TOOL], "tool_choice": None}, "none"),
        ({"tools": [TOOL], "tool_choice": "none"}, "none"),
        ({"tools": [TOOL], "tool_choice": "auto"}, "auto"),
        ({"tools": [TOOL], "tool_choice": "required"}, "required"),
    ],
)
def test_tool_choice(fields: dict[str, Any], choice: str) -> None:
    assert chat(**fields).tool_choice == choice


def test_named_tool_choice() -> None:
    choice = chat(
        tools=[TOOL], tool_choice={"type": "function", "function": {"name": "get_weather"}}
    ).tool_choice
    assert isinstance(choice, ToolChoice)
    assert choice.function.name == "get_weather"


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"chat_template": ""}, None, "untrusted chat template"),
        ({"chat_template_kwargs": {"chat_template": "x"}}, None, "untrusted chat template"),
        ({"mm_processor_kwargs": {"a": 1}}, "mm_processor_kwargs", "disabled by default"),
        ({"media_io_kwargs": {"image": {}}}, "media_io_kwargs", "disabled by default"),
    ],
)
def test_what_needs_trust(fields: dict[str, Any], param: str | None, words: str) -> None:
    request = chat(**fields)
    with pytest.raises(ApiError) as caught:
        refuse_untrusted(request, False)
    assert (caught.value.status, caught.value.param) == (400, param)
    assert words in caught.value.message


@pytest.mark.parametrize(
    "fields", [{}, {"mm_processor_kwargs": {}}, {"chat_template_kwargs": {"chat_template": None}}]
)
def test_what_needs_no_trust(fields: dict[str, Any]) -> None:
    refuse_untrusted(chat(**fields), False)


def test_max_completion_tokens_wins() -> None:
    assert chat(max_tokens=50).asked_max_tokens == (50, "max_tokens")
    assert chat(max_tokens=50, max_completion_tokens=2).asked_max_tokens == (2, "max_completion_tokens")
    assert chat().asked_max_tokens[0] is None


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    "message",
    [
        {"role": "system", "content": "x"},
        {"role": "developer", "content": "x"},
        {"role": "anything", "content": "x"},
        {"role": "user"},
        {"role": "assistant"},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "assistant", "content": "x", "tool_calls": None, "refusal": None, "audio": None},
        {"role": "assistant", "content": "x", "tool_calls": []},
        {"role": "function", "name": "f", "content": None},
        {"role": "tool", "content": "x"},
        {"role": "tool", "content": "x", "tool_call_id": "c"},
        {"role": "user", "content": "x", "name": "n", "extra": {"a": 1}},
        {"role": "user", "content": []},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": ["plain", {"type": "input_text", "text": "a"}]},
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": "http://x/y.png", "detail": "low"}}],
        },
        {"role": "user", "content": [{"type": "image_url", "image_url": "http://x/y.png"}]},
        {"role": "user", "content": [{"image_url": "http://x/y.png"}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": None, "uuid": "u"}]},
        {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]},
        {"role": "user", "content": [{"type": "video_url", "video_url": {"url": "v"}}]},
        {"role": "user", "content": [{"type": "audio_url", "audio_url": {"url": "v"}}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]},
    ],
)
def test_messages_that_are_taken_as_they_are(message: dict[str, Any]) -> None:
    assert chat(messages=[USER, message]).messages == [USER, message]


@pytest.mark.parametrize(
    "part",
    [
        5,
        None,
        {},
        {"type": "text"},
        {"type": "text", "text": 5},
        {"type": "text", "text": None},
        {"type": "input_text"},
        {"type": "refusal", "text": "x"},
        {"type": "zzz", "text": "x"},
        {"type": 5},
        {"type": "image_url"},
        {"type": "image_url", "image_url": {}},
        {"type": "image_url", "image_url": {"url": 5}},
    ],
)
def test_unusable_content_parts(part: object) -> None:
    error = refused(messages=[USER, {"role": "user", "content": [{"type": "text", "text": "a"}, part]}])
    assert (error.type, error.param) == ("BadRequestError", None)
    assert error.message.startswith("messages.1.content.1: ")


@pytest.mark.parametrize("call", [5, {}, {"type": "custom", "function": {}}, {"function": "x"}])
def test_unusable_tool_calls(call: object) -> None:
    error = refused(messages=[USER, {"role": "assistant", "content": None, "tool_calls": [call]}])
    assert (error.type, error.param) == ("BadRequestError", "tool_calls")


def test_reasoning_content_is_renamed() -> None:
    assistant = {"role": "assistant", "content": "x", "reasoning_content": "old"}
    assert chat(messages=[USER, assistant]).messages[1] == {
        "role": "assistant",
        "content": "x",
        "reasoning": "old",
    }
    assistant["reasoning"] = "new"
    assert chat(messages=[USER, assistant]).messages[1]["reasoning"] == "new"


def test_the_first_broken_combination_is_the_one_named() -> None:
    error = refused(tools=[], stream_options={"include_usage": True}, cache_salt="", n="x")
    assert error.param == "tools"
    error = refused(stream_options={"include_usage": True}, cache_salt="", n="x")
    assert error.param == "stream_options"
