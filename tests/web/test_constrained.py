"""Answers that must satisfy a schema, an expression or a list, and reasoning before them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from twisted.logger import capturedLogs

from tests.web.clients import CHAT, TEXT, choices_of, events, post, reply_of, said
from tests.web.rig import RankRig

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 3, "maximum": 5}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
BOTH = pytest.mark.parametrize("path", [CHAT, TEXT])
KINDS = pytest.mark.parametrize("stream", [False, True])
THINKING = ("--reasoning-parser", "deepseek_r1")


def text_of(path: str, stream: bool, *flags: str, **more: Any) -> str:
    rig = RankRig("--max-model-len", "4096", *flags)
    client = post(rig, path, stream=stream, max_tokens=2000, ignore_eos=False, **more)
    rig.clock.pump([0.001] * 12)
    reply = reply_of(client)
    assert reply.status == 200, reply.body
    if stream:
        return said(events(reply.body))
    (choice,) = json.loads(reply.body)["choices"]
    return str(choice["message"]["content"] if path == CHAT else choice["text"])


def fits(text: str) -> bool:
    value = json.loads(text)
    return list(value) == ["name", "age"] and type(value["name"]) is str and 3 <= value["age"] <= 5


@BOTH
@KINDS
@pytest.mark.parametrize(
    "more",
    [
        {"response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}},
        {"structured_outputs": {"json": SCHEMA}},
        {"structured_outputs": {"json": json.dumps(SCHEMA)}},
        {"guided_json": SCHEMA},
    ],
)
def test_json_schemas(path: str, stream: bool, more: dict[str, Any]) -> None:
    assert fits(text_of(path, stream, **more))
    assert fits(text_of(path, stream, "--mode", "echo", **more))


@BOTH
@KINDS
@pytest.mark.parametrize(
    "more",
    [
        {"response_format": {"type": "json_object"}},
        {"structured_outputs": {"json_object": True}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "any"}}},
    ],
)
def test_any_json_object(path: str, stream: bool, more: dict[str, Any]) -> None:
    assert type(json.loads(text_of(path, stream, **more))) is dict


@BOTH
@KINDS
def test_expressions_and_choices(path: str, stream: bool) -> None:
    pattern = r"[A-Z]{2}-\d{3}(é|日)"
    for more in ({"structured_outputs": {"regex": pattern}}, {"guided_regex": pattern}):
        assert re.fullmatch(pattern, text_of(path, stream, **more))
    for more in ({"structured_outputs": {"choice": ["yes é", "no"]}}, {"guided_choice": ["yes é", "no"]}):
        assert text_of(path, stream, **more) in ("yes é", "no")


@BOTH
@pytest.mark.parametrize(
    "more",
    [
        {"structured_outputs": {"grammar": "root ::= 'x'"}},
        {"structured_outputs": {"structural_tag": "{}"}},
        {"guided_grammar": "root ::= 'x'"},
    ],
)
def test_a_grammar_is_answered_in_plain_text_and_logged(path: str, more: dict[str, Any]) -> None:
    with capturedLogs() as logged:
        assert re.search(r"[a-z]", text_of(path, False, **more))
    assert any("does not conform" in event.get("log_format", "") for event in logged)


@BOTH
def test_response_format_text_is_no_constraint(path: str) -> None:
    assert text_of(path, False, "--mode", "echo", response_format={"type": "text"}).startswith("one two")


@BOTH
@pytest.mark.parametrize(
    "wanted",
    [
        {"regex": "("},
        {"regex": "[z-a]"},
        {"json": "{no"},
        {"choice": []},
        {"json": {}, "regex": "a"},
        {"choice": ["a", "x" * 65_537]},
    ],
)
def test_impossible_constraints_are_refused(path: str, wanted: dict[str, Any]) -> None:
    reply = reply_of(post(RankRig(), path, structured_outputs=wanted))
    assert reply.status == 400
    assert reply.error["error"]["type"] == "BadRequestError"


def thoughts_of(stream: bool, *flags: str, **more: Any) -> tuple[str, str, Any]:
    """Reasoning, content and usage of a chat."""
    if stream:
        more["stream_options"] = {"include_usage": True}
    reply = reply_of(
        post(RankRig(*flags), CHAT, **{"stream": stream, "max_tokens": 200, "ignore_eos": False, **more})
    )
    assert reply.status == 200, reply.body
    if not stream:
        document = json.loads(reply.body)
        message = document["choices"][0]["message"]
        assert message.get("reasoning_content") == message["reasoning"]
        return message["reasoning"] or "", message["content"] or "", document["usage"]
    frames = events(reply.body)
    deltas = [choice["delta"] for choice in choices_of(frames)]
    assert [delta.get("reasoning") for delta in deltas] == [
        delta.get("reasoning_content") for delta in deltas
    ]
    thoughts = "".join(delta.get("reasoning") or "" for delta in deltas)
    return thoughts, "".join(delta.get("content") or "" for delta in deltas), frames[-2]["usage"]


@KINDS
def test_with_a_reasoning_parser_chats_think_first(stream: bool) -> None:
    thoughts, content, usage = thoughts_of(stream, *THINKING)
    assert thoughts
    assert content
    assert "<think>" not in thoughts + content
    counted = usage["completion_tokens_details"]["reasoning_tokens"]
    assert 0 < counted < usage["completion_tokens"]


@KINDS
def test_without_one_they_do_not(stream: bool) -> None:
    thoughts, content, usage = thoughts_of(stream)
    assert (thoughts, bool(content)) == ("", True)
    assert usage.get("completion_tokens_details") is None


@KINDS
@pytest.mark.parametrize(
    "more",
    [
        {"reasoning_effort": "none"},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"chat_template_kwargs": {"thinking": False}},
    ],
)
def test_thinking_can_be_switched_off(stream: bool, more: dict[str, Any]) -> None:
    thoughts, content, usage = thoughts_of(stream, *THINKING, **more)
    assert (thoughts, bool(content)) == ("", True)
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 0}


@KINDS
def test_hidden_reasoning_is_counted_and_hides_ids_and_log_probabilities(stream: bool) -> None:
    thoughts, content, usage = thoughts_of(stream, *THINKING, include_reasoning=False)
    assert (thoughts, bool(content)) == ("", True)
    assert usage["completion_tokens_details"]["reasoning_tokens"] > 0
    more = {"include_reasoning": False, "logprobs": True, "return_token_ids": True, "stream": stream}
    reply = reply_of(post(RankRig(*THINKING), CHAT, **more))
    for choice in choices_of(events(reply.body) if stream else [json.loads(reply.body)]):
        assert choice["logprobs"] is None
        assert choice.get("token_ids") is None


@KINDS
def test_reasoning_before_a_constrained_answer(stream: bool) -> None:
    wanted = {"response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": SCHEMA}}}
    thoughts, content, _ = thoughts_of(stream, *THINKING, **wanted)
    assert thoughts
    assert fits(content)


@KINDS
def test_a_reply_cut_while_it_thinks_has_no_content(stream: bool) -> None:
    thoughts, content, usage = thoughts_of(
        stream, *THINKING, max_tokens=8, structured_outputs={"choice": ["a"]}
    )
    assert (bool(thoughts), content) == (True, "")
    assert usage["completion_tokens"] == 8
    if not stream:
        reply = reply_of(post(RankRig(*THINKING), CHAT, max_tokens=8, structured_outputs={"choice": ["a"]}))
        assert json.loads(reply.body)["choices"][0]["message"]["content"] is None


def test_texts_do_not_think() -> None:
    reply = reply_of(post(RankRig(*THINKING), TEXT))
    (choice,) = json.loads(reply.body)["choices"]
    assert "<think>" not in choice["text"]


def test_usage_that_goes_along_tells_reasoning_so_far() -> None:
    more = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}, "stream": True}
    reply = reply_of(post(RankRig(*THINKING), CHAT, max_tokens=60, **more))
    counts = [
        frame["usage"]["completion_tokens_details"]["reasoning_tokens"] for frame in events(reply.body)[:-1]
    ]
    assert counts[0] == 0
    assert counts == sorted(counts)
    assert counts[-1] > 5
