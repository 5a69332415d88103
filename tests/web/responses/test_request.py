"""Bodies of `/v1/responses`: what vLLM takes, and its refusals with what they name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmdsim.web.errors import ApiError
from llmdsim.web.responses import request as request_module
from llmdsim.web.responses.request import ResponsesRequest, decode_responses
from tests.web.responses.fuzz import response_body

FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object"}}
CUSTOM = {"type": "custom", "name": "c"}
NAMESPACE = {"type": "namespace", "name": "ns", "description": "d", "tools": [{**FUNCTION, "name": "g"}]}
OTHER = {**NAMESPACE, "name": "other"}


def decode(**body: Any) -> ResponsesRequest:
    return decode_responses(json.dumps({"input": "hi", **body}).encode())


def refused(**body: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        decode(**body)
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize(
    "body",
    [
        {"input": ""},
        {"input": []},
        {"unknown": 1, "max_tokens": "x", "response_format": 5, "n": "many", "conversation": {}},
        {"include": ["message.output_text.logprobs", "reasoning.encrypted_content"], "top_logprobs": None},
        {"metadata": {"a": "b"}, "user": "u", "safety_identifier": "s", "prompt_cache_key": "k"},
        {"prompt_cache_options": {"mode": "explicit", "ttl": "30m", "prewarm": True}},
        {"reasoning": {"effort": "max", "summary": "auto", "more": 1}, "service_tier": "flex"},
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": {}}, "verbosity": "low"}},
        {"text": {"format": None}},
        {"text": None, "truncation": None, "background": None, "store": None, "stream": None},
        {"tools": [FUNCTION, CUSTOM, NAMESPACE, {"type": "web_search"}], "tool_choice": "required"},
        {"tools": [{**CUSTOM, "format": {"type": "text"}}], "tool_choice": {"type": "custom", "name": "c"}},
        {"tools": [FUNCTION], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{}]}},
        {"tools": [FUNCTION], "tool_choice": {"type": "web_search_preview"}},
        {"tool_choice": {"type": "mcp", "server_label": "x"}},
        {"stop": ["a", "b", "c", "d"], "seed": "5", "temperature": "0.5", "max_output_tokens": 5.0},
        {"background": True, "store": True},
        {"prompt": None},
    ],
)
def test_what_is_taken(body: dict[str, Any]) -> None:
    assert isinstance(decode(**body), ResponsesRequest)


@pytest.mark.parametrize(
    ("param", "body"),
    [
        # Rules over the raw body.
        ("tool_choice", {"tool_choice": "required"}),
        ("tool_choice", {"tool_choice": "required", "tools": []}),
        ("tool_choice", {"tool_choice": {"type": "function", "name": "f"}}),
        ("tool_choice", {"tool_choice": {"type": "function", "name": "g"}, "tools": [FUNCTION]}),
        (
            "tool_choice",
            {"tool_choice": {"type": "function", "function": {"name": "f"}}, "tools": [FUNCTION]},
        ),
        ("tool_choice", {"tool_choice": {"type": "function", "name": "g"}, "tools": [NAMESPACE, OTHER]}),
        ("tools", {"tools": [{**CUSTOM, "format": {"type": "grammar", "syntax": "lark", "definition": ""}}]}),
        ("prompt", {"prompt": {"id": "p"}}),
        ("background", {"background": True, "store": False}),
        ("background", {"background": True, "store": None}),
        ("cache_salt", {"cache_salt": ""}),
        # The first of several.
        ("tool_choice", {"tool_choice": "required", "prompt": {}, "cache_salt": ""}),
        ("prompt", {"prompt": {}, "cache_salt": "", "input": None}),
        # Types.
        ("body.input", {"input": None}),
        ("body.input", {"input": 5}),
        ("body.input", {"input": {"role": "user", "content": "x"}}),
        ("body.input", {"input": [5]}),
        ("body.background", {"background": "maybe"}),
        ("body.include", {"include": "message.output_text.logprobs"}),
        ("body.include.0", {"include": ["everything"]}),
        ("body.metadata.a", {"metadata": {"a": 1}}),
        ("body.service_tier", {"service_tier": None}),
        ("body.tools", {"tools": None}),
        ("body.tool_choice", {"tool_choice": None}),
        ("body.tool_choice", {"tool_choice": None, "tools": [FUNCTION]}),
        ("body.tool_choice", {"tool_choice": "any", "tools": [FUNCTION]}),
        ("body.tool_choice", {"tool_choice": {"type": "what"}, "tools": [FUNCTION]}),
        ("body.tool_choice", {"tool_choice": {}, "tools": [FUNCTION]}),
        ("body.tool_choice", {"tool_choice": {"type": "allowed_tools", "mode": "all"}, "tools": [FUNCTION]}),
        ("body.tools.0", {"tools": [{"type": "function", "function": {"name": "f"}}]}),
        ("body.tools.1", {"tools": [FUNCTION, {"type": "what"}]}),
        ("body.tools.0", {"tools": ["f"]}),
        ("body.tools.0", {"tools": [{"name": "f"}]}),
        ("body.tools.0", {"tools": [{"type": [], "name": "f"}]}),
        ("body.tools.0", {"tools": [{**FUNCTION, "parameters": "x"}]}),
        ("body.tools.0", {"tools": [{**FUNCTION, "strict": "yes"}]}),
        ("body.tools.0", {"tools": [{**NAMESPACE, "tools": [NAMESPACE]}]}),
        ("body.tools.0", {"tools": [{"type": "mcp"}]}),
        ("body.presence_penalty", {"presence_penalty": 2.1}),
        ("body.frequency_penalty", {"frequency_penalty": -2.1}),
        ("body.reasoning.effort", {"reasoning": {"effort": "huge"}}),
        ("body.text", {"text": "json"}),
        ("body.text.format.type", {"text": {"format": {"type": "xml"}}}),
        ("body.text.format.name", {"text": {"format": {"type": "json_schema"}}}),
        ("body.text.format.schema", {"text": {"format": {"type": "json_schema", "name": "n"}}}),
        ("body.truncation", {"truncation": "left"}),
        ("body.prompt_cache_retention", {"prompt_cache_retention": "1h"}),
        ("body.prompt_cache_options.ttl", {"prompt_cache_options": {"ttl": "1h"}}),
        ("body.stop", {"stop": ["a", "b", "c", "d", "e"]}),
        ("body.max_output_tokens", {"max_output_tokens": 1.5}),
        ("body.top_logprobs", {"top_logprobs": "many"}),
    ],
)
def test_what_is_refused_names_the_field(param: str, body: dict[str, Any]) -> None:
    assert refused(**body).param == param


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"{", b"\xff", b'{"input":"\\ud800"}'])
def test_what_is_no_request_at_all(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        decode_responses(body)
    assert caught.value.status == 400


def test_without_tools_the_choice_becomes_none() -> None:
    assert decode().tool_choice == "none"
    assert decode(tool_choice="auto", tools=[]).tool_choice == "none"
    assert decode(tools=[FUNCTION]).tool_choice == "auto"


def test_a_name_within_a_namespace_becomes_its_full_name() -> None:
    choice = {"type": "function", "name": "g"}
    assert decode(tools=[NAMESPACE], tool_choice=choice).tool_choice == {**choice, "name": "ns__g"}
    full = {"type": "function", "name": "other__g"}
    assert decode(tools=[NAMESPACE, OTHER], tool_choice=full).tool_choice == full
    assert decode(tools=[NAMESPACE, {**FUNCTION, "name": "g"}], tool_choice=choice).tool_choice == choice


def test_the_older_spelling_of_a_retention_is_understood() -> None:
    assert decode(prompt_cache_retention="in-memory").prompt_cache_retention == "in_memory"


ITEMS: list[tuple[bool, Any]] = [
    (True, {"role": "user", "content": "x"}),
    (True, {"role": "developer", "content": [], "type": "message", "status": "completed"}),
    (True, {"role": "user", "content": [{"type": "input_text", "text": "x"}]}),
    (True, {"role": "user", "content": [{"type": "input_image", "image_url": "u"}]}),
    (True, {"role": "user", "content": [{"type": "input_image", "image_url": "u", "detail": "low"}]}),
    (True, {"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}),
    (True, {"role": "user", "content": [{"type": "input_audio", "data": "", "format": "wav"}]}),
    (True, {"role": "assistant", "content": [{"type": "output_text", "text": "x"}]}),
    (True, {"role": "assistant", "content": [{"type": "refusal", "refusal": "x"}]}),
    (True, {"type": "function_call", "arguments": "{}", "call_id": "c", "name": "f", "namespace": None}),
    (True, {"type": "function_call_output", "call_id": "c", "output": "x"}),
    (True, {"type": "function_call_output", "output": [{"type": "input_text", "text": "x"}]}),
    (True, {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": ""}),
    (True, {"type": "custom_tool_call_output", "call_id": "c", "output": "x"}),
    (True, {"type": "reasoning", "summary": [], "status": None}),
    (True, {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "x"}]}),
    (True, {"type": "item_reference", "id": "x"}),
    (True, {"id": "x"}),
    (False, None),
    (False, {}),
    (False, {"type": "what"}),
    (False, {"type": ["message"]}),
    (False, {"content": "x"}),
    (False, {"role": "tool", "content": "x"}),
    (False, {"role": ["user"], "content": "x"}),
    (False, {"role": "user"}),
    (False, {"role": "user", "content": None}),
    (False, {"role": "user", "content": 5}),
    (False, {"role": "user", "content": ["x"]}),
    (False, {"role": "user", "content": [{"text": "x"}]}),
    (False, {"role": "user", "content": [{"type": "text", "text": "x"}]}),
    (False, {"role": "user", "content": [{"type": "output_text", "text": "x"}]}),
    (False, {"role": "user", "content": [{"type": "input_text"}]}),
    (False, {"role": "user", "content": [{"type": "input_image", "image_url": {"url": "u"}}]}),
    (False, {"role": "user", "content": [{"type": "input_image", "detail": "best"}]}),
    (False, {"role": "user", "content": "x", "type": "message", "status": "done"}),
    (False, {"type": "function_call", "arguments": {}, "call_id": "c", "name": "f"}),
    (False, {"type": "function_call", "arguments": "{}", "name": "f"}),
    (False, {"type": "function_call_output", "call_id": "c"}),
    (False, {"type": "function_call_output", "call_id": 5, "output": "x"}),
    (False, {"type": "custom_tool_call_output", "output": "x"}),
    (False, {"type": "reasoning"}),
    (False, {"type": "reasoning", "summary": ["x"]}),
]


@pytest.mark.parametrize(("taken", "item"), ITEMS)
def test_items(taken: bool, item: Any) -> None:
    items = [{"role": "user", "content": "x"}, item]
    if taken:
        assert decode(input=items).input == items
        return
    error = refused(input=items)
    assert (error.param, error.type) == ("body.input", "Bad Request")
    assert "item 1" in error.message


@pytest.mark.parametrize("start", range(0, 2000, 500))
def test_both_readings_of_a_body_agree(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(body: bytes) -> Any:
        try:
            return decode_responses(body)
        except ApiError as error:
            return error.body

    bodies = [response_body(f"both {number}") for number in range(start, start + 500)]
    usual = [answer(body) for body in bodies]
    monkeypatch.setattr(request_module, "_may_be_refused", lambda request: True)
    for body, first in zip(bodies, usual, strict=True):
        second = answer(body)
        if isinstance(second, bytes) and b"error parsing the body" in second:
            # Of fields that nobody reads, one reading does not look at the digits.
            continue
        # As text: NaN is not equal to itself.
        assert repr(second) == repr(first), body
    assert any(isinstance(found, ResponsesRequest) for found in usual)


def test_of_many_bad_items_a_few_are_told() -> None:
    assert len(refused(input=[5] * 100_000).message) < 20_000
