"""Messages as chat templates read them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmdsim.tokenization.media import TOKENS, item_of
from llmdsim.tokenization.template_messages import templated, without_developer

IMAGE = {"type": "image_url", "image_url": {"url": "http://x/y.png"}}


def text(content: Any, role: str = "user") -> Any:
    (message,) = templated([{"role": role, "content": content}], "string")
    return message["content"]


def parts(content: Any, role: str = "user") -> Any:
    (message,) = templated([{"role": role, "content": content}], "openai")
    return message["content"]


def part(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def test_content_that_is_a_text() -> None:
    assert text("hi") == "hi"
    assert text(None, "assistant") == ""
    assert text([part("a"), "b", part(""), {"type": "refusal", "refusal": "c"}]) == "a\nb\nc"


def test_content_that_is_a_list() -> None:
    assert parts("hi") == [part("hi")]
    assert parts("") == [part("")]
    assert parts(None, "assistant") == []
    assert parts([part("a"), "b", {"type": "thinking", "thinking": "c", "closed": True}]) == [
        part("a"),
        part("b"),
        part("c"),
    ]


def test_what_else_a_part_has_is_kept() -> None:
    given = {**part("a"), "cache_control": {"type": "ephemeral"}, "item": 1}
    assert parts([given]) == [given]
    assert parts([{**IMAGE, "detail": "low"}])[0] == {"type": "image", "detail": "low"}


def test_media_are_told_by_kind_with_words_for_their_tokens() -> None:
    item = item_of(IMAGE)
    assert item is not None
    assert parts([part("see"), IMAGE]) == [part("see"), {"type": "image"}, part(item.placeholders)]
    assert text([part("see"), IMAGE]) == f"see\nimage: http://x/y.png\n{item.placeholders}"
    assert len(item.placeholders.split()) == TOKENS["image"]
    assert [each["type"] for each in parts([{"type": "input_audio", "input_audio": {"data": "x"}}])] == [
        "audio",
        "text",
    ]


def test_references_to_tools() -> None:
    reference = {"type": "tool_reference", "name": "f", "x": 1}
    assert parts([reference], "tool") == [{"type": "tool_reference", "name": "f"}]
    assert text([reference, part("a")]) == "f\na"
    assert parts([{"type": "tool_reference"}, {"type": "file", "file": {}}]) == []


def test_what_tools_say_is_a_text_in_any_form() -> None:
    assert parts("a", "tool") == "a"
    assert parts([part("a"), part("b")], "tool") == "a\nb"
    assert parts([], "tool") == ""


def test_lines_of_claude_code_are_left_out_of_the_system() -> None:
    header = "x-anthropic-billing-header: cch=1234"
    assert text(header, "system") == ""
    assert text(f"{header}\nBe kind.", "system") == "Be kind."
    assert text([part(f"{header}\nBe"), f"{header}\nkind", part("."), header], "system") == "Be\nkind\n."
    assert text(header) == header


@pytest.mark.parametrize(
    ("arguments", "parsed"),
    [
        ('{"a": 1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        ("", {}),
        (None, {}),
        ("{", {}),
        ("[1]", {}),
        ("42", {}),
        ([1], {}),
        ("9" * 5000, {}),
        ("[" * 100_000, {}),
    ],
)
def test_arguments_are_objects(arguments: Any, parsed: dict[str, Any]) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    messages = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    before = json.dumps(messages)
    (message,) = templated(messages, "string")
    assert message["tool_calls"] == [{**call, "function": {"name": "f", "arguments": parsed}}]
    assert json.dumps(messages) == before


def test_no_calls_are_no_calls() -> None:
    (message,) = templated([{"role": "assistant", "content": "a", "tool_calls": []}], "string")
    assert message == {"role": "assistant", "content": "a"}


def test_reasoning_goes_by_all_its_names() -> None:
    (message,) = templated([{"role": "assistant", "content": "a", "reasoning": "b"}], "string")
    assert message["reasoning"] == message["reasoning_content"] == message["thinking"] == "b"
    (message,) = templated([{"role": "user", "content": "a", "reasoning": "b"}], "string")
    assert message == {"role": "user", "content": "a"}


def test_only_what_templates_know_is_kept() -> None:
    tool = {"role": "tool", "content": "a", "tool_call_id": "1", "x": 1, "name": "f", "task": "t"}
    assert templated([tool], "string") == [
        {"role": "tool", "content": "a", "tool_call_id": "1", "name": "f", "task": "t"}
    ]
    developer = {"role": "developer", "content": "a", "tools": [1]}
    assert templated([developer], "string") == [developer]
    untold = {"role": "developer", "content": "a", "tools": None}
    for message in (untold, {"role": "developer", "content": "a"}):
        assert templated([message], "string") == [untold]


def test_what_developers_have_comes_in_vllms_order() -> None:
    (message,) = templated([{"tools": [1], "name": "n", "content": "a", "role": "developer"}], "string")
    assert list(message) == ["role", "content", "name", "tools"], "templates may show a message as JSON"


def test_developers_are_systems() -> None:
    user = {"role": "user", "content": "u"}
    developer = {"role": "developer", "content": [part("a"), part("b")], "tools": [1], "name": "n"}
    # One at the start keeps its form; else all become one there.
    assert without_developer([developer, user]) == [
        {"role": "system", "content": [part("a"), part("b")], "name": "n"},
        user,
    ]
    merged = {"role": "system", "content": "s\n\na\nb"}
    assert without_developer([{"role": "system", "content": "s"}, user, developer]) == [merged, user]
    assert without_developer([user, developer]) == [{"role": "system", "content": "a\nb"}, user]
