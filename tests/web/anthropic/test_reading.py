"""Bodies of the Messages routes: what is taken, with which defaults, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmdsim.web.anthropic.reading import decode
from llmdsim.web.anthropic.request import MessagesRequest
from llmdsim.web.errors import ApiError
from tests.web.anthropic.requests import USER, WEATHER, counted, fields, read, refused, said_by

ADDITION = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": WEATHER}}
REMOVAL = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "get_weather"}}


def test_defaults() -> None:
    request = read()
    assert (request.model, request.max_tokens, request.stream) == ("m", 50, False)
    assert (request.system, request.tools, request.tool_choice, request.thinking) == (None,) * 4
    assert (request.temperature, request.top_p, request.top_k, request.stop_sequences) == (None,) * 4
    (message,) = request.messages
    assert (message.role, message.content) == ("user", "hi")


@pytest.mark.parametrize(
    "more",
    [
        {"system": "be kind", "stream": True, "metadata": {"user_id": "u"}, "service_tier": "auto"},
        {"system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
        {"temperature": 1, "top_p": 0.5, "top_k": 7, "stop_sequences": ["a", "b", "c", "d"]},
        {
            "tools": [
                {**WEATHER, "description": "d", "strict": True, "defer_loading": False, "type": "custom"}
            ]
        },
        {"tool_choice": {"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True}},
        {"max_tokens": 4000, "thinking": {"type": "enabled", "budget_tokens": 1024, "display": "omitted"}},
        {"thinking": {"type": "adaptive", "display": "summarized"}},
        {"thinking": {"type": "disabled"}, "output_config": {"effort": "max", "format": None}},
        {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
        {
            "cache_salt": "s",
            "kv_transfer_params": {"a": 1},
            "vllm_xargs": {"a": [1, "b"]},
            "watermarking": True,
        },
        {"messages": [USER, said_by("assistant", {"type": "redacted_thinking", "data": "x"}), USER]},
        {"messages": [said_by("user", {"type": "tool_result", "tool_use_id": "t", "is_error": True})]},
        {"messages": [said_by("system", ADDITION, REMOVAL), USER]},
        {"stream": None, "tools": None, "tool_choice": None, "thinking": None, "system": None},
        {"an unknown field": [{}], "n": "many"},
    ],
)
def test_fields_are_taken_as_sent(more: dict[str, Any]) -> None:
    request = read(**more)
    assert isinstance(request, MessagesRequest)
    count = counted(**more)
    assert not isinstance(count, MessagesRequest)
    assert count.messages == request.messages


@pytest.mark.parametrize(
    ("sent", "exact"),
    [
        ({"max_tokens": "7"}, {"max_tokens": 7}),
        ({"max_tokens": 7.0, "stream": "yes"}, {"max_tokens": 7, "stream": True}),
        ({"temperature": "0.5", "top_k": "3"}, {"temperature": 0.5, "top_k": 3}),
        (
            {"max_tokens": 4000, "thinking": {"type": "enabled", "budget_tokens": "2000"}},
            {"max_tokens": 4000, "thinking": {"type": "enabled", "budget_tokens": 2000}},
        ),
        (
            {"tool_choice": {"type": "auto", "disable_parallel_tool_use": "true"}},
            {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        ),
    ],
)
def test_values_are_read_as_leniently_as_pydantic_does(sent: dict[str, Any], exact: dict[str, Any]) -> None:
    assert read(**sent) == read(**exact)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"model": ...}, "body.model"),
        ({"model": ""}, "a model is required"),
        ({"model": None}, "body.model"),
        ({"messages": ...}, "body.messages"),
        ({"messages": []}, "needs messages"),
        ({"messages": "hi"}, "body.messages"),
        ({"messages": [{"role": "user"}]}, "body.messages.0.content"),
        ({"messages": [{"role": "user", "content": None}]}, "body.messages.0.content"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "body.messages.0.role"),
        ({"messages": [said_by("user", {"type": "document", "source": {}})]}, "body.messages.0.content"),
        ({"messages": [said_by("user", {"type": "server_tool_use"})]}, "body.messages.0.content"),
        ({"messages": [said_by("user", {"text": "no type"})]}, "body.messages.0.content"),
        ({"messages": [said_by("user", {"type": "tool_result", "content": 5})]}, "body.messages.0.content"),
        ({"max_tokens": ...}, "body.max_tokens"),
        ({"max_tokens": None}, "body.max_tokens"),
        ({"max_tokens": 0}, "max_tokens must be positive"),
        ({"max_tokens": -1}, "max_tokens must be positive"),
        ({"max_tokens": 1.5}, "body.max_tokens"),
        ({"system": 5}, "body.system"),
        ({"system": [ADDITION]}, "only messages of role 'system'"),
        ({"messages": [said_by("user", ADDITION)]}, "only messages of role 'system'"),
        ({"messages": [said_by("system", {"type": "tool_addition"})]}, "needs its tool"),
        ({"messages": [said_by("system", {**ADDITION, "type": "tool_removal"})]}, "tool_reference only"),
        (
            {"messages": [said_by("system", {"type": "tool_addition", "tool": {"type": "tool_definition"}})]},
            "definition",
        ),
        (
            {"messages": [said_by("system", {"type": "tool_removal", "tool": {"type": "tool_reference"}})]},
            "tool.name",
        ),
        ({"stop_sequences": ["a"] * 5}, "body.stop_sequences"),
        ({"stop_sequences": "a"}, "body.stop_sequences"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "body.tools.0.input_schema"),
        ({"tools": [{"name": "f", "input_schema": []}]}, "body.tools.0.input_schema"),
        ({"tools": [{"input_schema": {}}]}, "body.tools.0.name"),
        ({"tool_choice": "auto"}, "body.tool_choice"),
        ({"tool_choice": {"type": "required"}}, "body.tool_choice.type"),
        ({"tool_choice": {"type": "tool"}, "tools": [WEATHER]}, "needs the tool's name"),
        ({"thinking": {"type": "enabled"}, "max_tokens": 4000}, "budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1023}, "max_tokens": 4000}, "at least 1024"),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 4000}, "max_tokens": 4000},
            "less than max_tokens",
        ),
        ({"thinking": {"type": "sometimes"}}, "body.thinking.type"),
        ({"output_config": {"effort": "none"}}, "body.output_config.effort"),
        ({"output_config": {"format": {"type": "json_object"}}}, "body.output_config.format.type"),
        ({"cache_salt": ""}, "cache_salt"),
        ({"cache_salt": "a/b"}, "cache_salt"),
        ({"mm_payload": None}, "body.mm_payload"),
        ({"metadata": "m"}, "body.metadata"),
    ],
)
def test_what_is_refused(more: dict[str, Any], said: str) -> None:
    assert said in refused(**more)


def test_a_prefill_leg_may_think_more_than_it_may_say() -> None:
    thinking = {"type": "enabled", "budget_tokens": 2048}
    more = {"max_tokens": 1, "thinking": thinking}
    assert "less than max_tokens" in refused(**more)
    assert read(**more, kv_transfer_params={"do_remote_decode": True}).max_tokens == 1


def test_a_count_needs_no_max_tokens_but_a_budget_in_range() -> None:
    assert counted().model == "m"
    with pytest.raises(ApiError, match="at least 1024"):
        counted(thinking={"type": "enabled", "budget_tokens": 1})


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"null", b"[]", b"{", b"\xff", b'{"model":"\\ud800"}', b'"x"'),
        json.dumps(fields(metadata={"a": "A"})).encode().replace(b'"A"', b"[" * 300 + b"]" * 300),
        json.dumps(fields()).encode().replace(b"hi", b"\xff"),
        json.dumps(fields(unknown="A")).encode().replace(b"A", b"\xff"),
    ],
)
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        decode(MessagesRequest, body)
    assert caught.value.status == 400


def test_a_form_is_refused_and_other_media_types_are_not() -> None:
    body = json.dumps(fields()).encode()
    assert decode(MessagesRequest, body, "text/plain").model == "m"
    with pytest.raises(ApiError, match="Unsupported Media Type"):
        decode(MessagesRequest, body, "multipart/form-data; boundary=x")


def test_many_faults_are_not_all_told() -> None:
    message = refused(messages=[said_by("user", *[{"type": "tool_addition"}] * 1000)])
    assert message.startswith("100 validation errors")
    assert len(message) < 5000
