"""From a Messages request to a chat request: what becomes of each kind of block, and of each option."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmdsim.web.anthropic.conversion import chat_request
from llmdsim.web.chat_request import ToolChoice
from tests.web.anthropic.requests import USER, WEATHER, converted, counted, refused, said_by

PIXEL = {"type": "base64", "media_type": "image/png", "data": "aGk="}
LINK = {"type": "url", "url": "https://example.org/a.png"}
CALL = {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"city": "Zürich", "n": None}}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def image(source: Any) -> dict[str, Any]:
    return {"type": "image", "source": source}


def result(content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "t1", "content": content, **more}


def url(value: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": value}}


def messages_of(*messages: Any, **more: Any) -> list[dict[str, Any]]:
    return converted(messages=list(messages), **more).messages


@pytest.mark.parametrize(
    ("role", "blocks", "message"),
    [
        ("user", [text("a")], {"content": "a"}),
        ("user", [text("a"), text("b")], {"content": [text("a"), text("b")]}),
        ("user", [text(""), text("b")], {"content": "b"}),
        ("user", [image(PIXEL)], {"content": [url("data:image/png;base64,aGk=")]}),
        ("user", [image({"data": "x"})], {"content": [url("data:image/jpeg;base64,x")]}),
        ("user", [text("see"), image(LINK)], {"content": [text("see"), url("https://example.org/a.png")]}),
        ("user", [text("a"), {"type": "image"}], {"content": "a"}),
        ("user", [text("a"), {"type": "tool_reference", "tool_name": "x"}], {"content": "a"}),
        ("assistant", [], {}),
        ("assistant", [{"type": "thinking", "thinking": "hm", "signature": "s"}], {"reasoning": "hm"}),
        (
            "assistant",
            [
                {"type": "thinking", "thinking": "a"},
                {"type": "redacted_thinking", "data": "?"},
                {"type": "thinking", "thinking": "b"},
                text("so"),
            ],
            {"reasoning": "ab", "content": "so"},
        ),
        (
            "assistant",
            [text("x"), result([text("y")])],
            {"content": [text("x"), text("Tool result: [{'type': 'text', 'text': 'y'}]")]},
        ),
        ("assistant", [result(None)], {"content": "Tool result: "}),
    ],
)
def test_blocks_of_one_message(role: str, blocks: list[Any], message: dict[str, Any]) -> None:
    assert messages_of(said_by(role, *blocks), USER) == [{"role": role, **message}, USER]


def test_a_tool_use_is_a_call_with_arguments_as_json() -> None:
    (message,) = messages_of(said_by("assistant", text("I look."), CALL))
    (call,) = message["tool_calls"]
    assert message["content"] == "I look."
    assert (call["id"], call["type"], call["function"]["name"]) == ("t1", "function", "get_weather")
    assert call["function"]["arguments"] == '{"city": "Z\\u00fcrich", "n": null}'


def test_a_tool_use_may_lack_everything() -> None:
    (message,) = messages_of(said_by("assistant", {"type": "tool_use"}))
    (call,) = message["tool_calls"]
    assert call["id"].startswith("call_")
    assert call["function"] == {"name": "", "arguments": "{}"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("21", "21"),
        (None, ""),
        ([], ""),
        ([text("a"), text("b")], "a\nb"),
        ([{"type": "text"}, text("b"), {"type": "unknown"}, {}], "\nb"),
    ],
)
def test_a_tool_result_is_a_tool_message(content: Any, said: str) -> None:
    made = messages_of(said_by("user", result(content, is_error=True)))
    assert made == [{"role": "tool", "tool_call_id": "t1", "content": said}]


def test_results_come_before_the_rest_of_their_message_with_their_images_and_references() -> None:
    reference = {"type": "tool_reference", "tool_name": "f"}
    first = result([text("a"), image(LINK), reference, {"type": "tool_reference"}])
    second = result("b", tool_use_id="t2")
    assert messages_of(said_by("user", text("now?"), first, second)) == [
        {"role": "tool", "tool_call_id": "t1", "content": "a"},
        {"role": "user", "content": [url("https://example.org/a.png")]},
        {"role": "tool", "tool_call_id": "t1", "content": [{"type": "tool_reference", "name": "f"}]},
        {"role": "tool", "tool_call_id": "t2", "content": "b"},
        {"role": "user", "content": "now?"},
    ]


@pytest.mark.parametrize(
    "block",
    [
        image({"type": "url", "url": 5}),
        image({"data": [1]}),
        image({"media_type": None}),
        result([{"type": "text", "text": None}]),
        result([image("x")]),
        result([image({"type": "url", "url": {}})]),
    ],
)
def test_blocks_that_cannot_be_read_are_refused(block: dict[str, Any]) -> None:
    assert "must be" in refused(messages=[said_by("user", block)])


@pytest.mark.parametrize(
    ("system", "said"),
    [
        (None, None),
        ("", None),
        ([], None),
        ("be kind", "be kind"),
        ("x-anthropic-billing-header: 1", "x-anthropic-billing-header: 1"),
        ([text("a"), text(""), text("b")], "ab"),
        ([text("x-anthropic-billing-header: 1"), text("b"), image(LINK)], "b"),
        ([{"type": "thinking", "text": "a"}, text("b")], "b"),
        ([text("x-anthropic-billing-header: 1")], None),
    ],
)
def test_the_system_text_is_the_first_message(system: Any, said: str | None) -> None:
    first = [] if said is None else [{"role": "system", "content": said}]
    assert messages_of(USER, system=system) == [*first, USER]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("now", "now"),
        ([text("a"), image(LINK), text("b")], "ab"),
        ("", None),
        ([], None),
        ("x-anthropic-billing-header: 1", None),
        ([text("x-anthropic-billing-header: 1"), text("c")], "c"),
    ],
)
def test_system_messages_stay_where_they_are(content: Any, said: str | None) -> None:
    inline = [] if said is None else [{"role": "system", "content": said}]
    assert messages_of(USER, {"role": "system", "content": content}, USER) == [USER, *inline, USER]


def test_a_conversation_of_nothing_is_refused() -> None:
    assert "needs messages" in refused(messages=[said_by("user"), {"role": "system", "content": ""}])


def test_options_go_along() -> None:
    chat = converted(
        max_tokens=9,
        stop_sequences=["a"],
        temperature=0.5,
        top_p=0.6,
        top_k=7,
        stream=True,
        cache_salt="s",
        kv_transfer_params={"a": 1},
        vllm_xargs={"b": 2},
        chat_template_kwargs={"c": 3},
    )
    assert (chat.model, chat.asked_max_tokens, chat.stop) == ("m", (9, "max_completion_tokens"), ["a"])
    assert (chat.temperature, chat.top_p, chat.top_k, chat.stream) == (0.5, 0.6, 7, True)
    assert (chat.cache_salt, chat.kv_transfer_params, chat.vllm_xargs) == ("s", {"a": 1}, {"b": 2})
    assert chat.chat_template_kwargs == {"c": 3}


def test_a_count_is_a_chat_without_options() -> None:
    chat = chat_request(counted(tools=[WEATHER], system="s"))
    assert chat.asked_max_tokens[0] is None
    assert chat.messages[0] == {"role": "system", "content": "s"}
    assert chat.tool_choice == "auto"


@pytest.mark.parametrize(
    ("more", "effort", "budget"),
    [
        ({}, None, None),
        ({"output_config": {"effort": "high"}}, "high", None),
        ({"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}}, "none", None),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}, "low", None),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, None, 1024),
    ],
)
def test_how_hard_to_think(more: dict[str, Any], effort: str | None, budget: int | None) -> None:
    chat = converted(max_tokens=2000, **more)
    assert (chat.reasoning_effort, chat.thinking_token_budget) == (effort, budget)


def test_an_output_format_is_a_response_format() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    wanted = converted(output_config={"format": {"type": "json_schema", "schema": schema}}).response_format
    assert wanted is not None
    assert wanted.type == "json_schema"
    assert wanted.json_schema is not None
    assert (wanted.json_schema.name, wanted.json_schema.schema) == ("json_schema", schema)
    for format_ in (None, {"type": "json_schema"}, {"type": "json_schema", "schema": {}}):
        assert converted(output_config={"format": format_}).response_format is None


def test_a_schema_nested_too_deeply_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(70):
        schema = {"items": schema}
    assert "nested too deeply" in refused(output_config={"format": {"schema": schema}})


def test_tools_are_functions() -> None:
    (tool,) = converted(tools=[{**WEATHER, "description": "d", "strict": True}]).tools or ()
    function = tool.function
    assert (function.name, function.description, function.strict) == ("get_weather", "d", True)
    assert function.parameters == WEATHER["input_schema"]
    (tool,) = converted(tools=[{"name": "f", "input_schema": {"properties": {}}}]).tools or ()
    assert tool.function.parameters == {"properties": {}, "type": "object"}


@pytest.mark.parametrize(
    ("choice", "given", "parallel"),
    [
        (None, "auto", True),
        ({"type": "auto"}, "auto", True),
        ({"type": "auto", "disable_parallel_tool_use": True}, "auto", False),
        ({"type": "any", "disable_parallel_tool_use": False}, "required", True),
        ({"type": "none"}, "none", True),
    ],
)
def test_tool_choices(choice: Any, given: str, parallel: bool) -> None:
    chat = converted(tools=[WEATHER], tool_choice=choice)
    assert (chat.tool_choice, chat.parallel_tool_calls) == (given, parallel)


def test_a_tool_is_chosen_by_name() -> None:
    chat = converted(tools=[WEATHER], tool_choice={"type": "tool", "name": "get_weather"})
    assert isinstance(chat.tool_choice, ToolChoice)
    assert chat.tool_choice.names == ["get_weather"]
    assert "'nobody'" in refused(tools=[WEATHER], tool_choice={"type": "tool", "name": "nobody"})


@pytest.mark.parametrize("tools", [None, []])
def test_without_tools_there_is_nothing_to_choose(tools: Any) -> None:
    for choice in (None, {"type": "auto"}, {"type": "none"}):
        chat = converted(tools=tools, tool_choice=choice)
        assert (chat.tools, chat.tool_choice) == (None, "none")
    assert "needs tools" in refused(tools=tools, tool_choice={"type": "any"})
    assert "not among the tools" in refused(tools=tools, tool_choice={"type": "tool", "name": "f"})


def change(kind: str, name: str, **definition: Any) -> dict[str, Any]:
    tool: dict[str, Any] = {"type": "tool_reference", "name": name}
    if definition:
        tool = {"type": "tool_definition", "definition": {"name": name, **definition}}
    return {"type": kind, "tool": tool}


def test_the_conversation_adds_and_removes_tools() -> None:
    def names(*changes: dict[str, Any], tools: Any = (WEATHER,)) -> list[str]:
        chat = converted(tools=list(tools), messages=[USER, said_by("system", *changes), USER])
        return [tool.function.name for tool in chat.tools or ()]

    added = change("tool_addition", "f", input_schema={})
    gone = change("tool_removal", "get_weather")
    assert names(added) == ["get_weather", "f"]
    assert names(added, tools=()) == ["f"]
    assert names(gone) == []
    assert names(gone, added) == ["f"]
    assert names(gone, change("tool_addition", "get_weather")) == ["get_weather"]
    unknown = said_by("system", change("tool_removal", "nobody"))
    assert "not declared" in refused(tools=[WEATHER], messages=[USER, unknown])


def test_a_tool_added_anew_replaces_the_old_one() -> None:
    again = change("tool_addition", "get_weather", input_schema={"type": "object", "title": "new"})
    (tool,) = converted(tools=[WEATHER], messages=[USER, said_by("system", again)]).tools or ()
    assert tool.function.parameters == {"type": "object", "title": "new"}


def test_input_nested_as_deeply_as_a_body_may_be_is_converted() -> None:
    deep = json.loads("[" * 190 + "]" * 190)
    (message,) = messages_of(said_by("assistant", {"type": "tool_use", "input": {"a": deep}}))
    assert len(message["tool_calls"][0]["function"]["arguments"]) == 380 + len('{"a": }')
