"""Tool calls in chats, whole and streamed."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from llmdsim.reply.composer import Composer
from llmdsim.reply.plan import Function
from tests.web.clients import CHAT, choices_of, events, finishes, post, reply_of
from tests.web.rig import RankRig

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather somewhere",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Zürich | é", "東京 😀"]}},
            "required": ["city"],
        },
    },
}
NOW = {"type": "function", "function": {"name": "now"}}
ALWAYS = ("--tool-call-extra-call-probability", "100")
NEVER = ("--tool-call-extra-call-probability", "0")
KINDS = pytest.mark.parametrize("stream", [False, True])
NAMED = {"type": "function", "function": {"name": "now"}}


def ask(rig: RankRig, stream: bool = False, **more: Any) -> Any:
    """One choice of a reply: its finish reason, content and calls, which if streamed are put together."""
    more = {"max_tokens": None, "ignore_eos": False, "tools": [WEATHER, NOW], **more}
    client = post(rig, CHAT, stream=stream, **more)
    rig.clock.pump([0.001] * 3)
    reply = reply_of(client)
    assert reply.status == 200, reply.body
    if not stream:
        (choice,) = json.loads(reply.body)["choices"]
        message = choice["message"]
        return choice["finish_reason"], message["content"], message.get("tool_calls", [])
    content, calls = None, []
    frames = events(reply.body)
    for choice in choices_of(frames):
        delta = choice["delta"]
        if delta.get("content"):
            content = (content or "") + delta["content"]
        for call in delta.get("tool_calls", ()):
            if call["index"] == len(calls):
                calls.append({"id": call["id"], "type": call["type"], "function": dict(call["function"])})
            else:
                calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
    ((_, reason),) = finishes(frames)
    return reason, content, calls


def names(calls: list[Any]) -> list[str]:
    return [call["function"]["name"] for call in calls]


def refusal(**more: Any) -> Any:
    reply = reply_of(post(RankRig(), CHAT, **more))
    assert reply.status == 400, reply.body
    return reply.error["error"]


@KINDS
@pytest.mark.parametrize(
    ("choice", "flags", "reason"),
    [
        ("auto", ALWAYS, "tool_calls"),
        ("auto", NEVER, "stop"),
        ("none", ALWAYS, "stop"),
        (None, ALWAYS, "stop"),
        ("required", NEVER, "tool_calls"),
        (NAMED, ALWAYS, "stop"),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NOW]}},
            NEVER,
            "tool_calls",
        ),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [NOW]}}, NEVER, "stop"),
    ],
)
def test_r37_finish_reasons_by_choice(stream: bool, choice: Any, flags: tuple[str, ...], reason: str) -> None:
    found, content, calls = ask(RankRig(*flags), stream, tool_choice=choice)
    assert found == reason
    assert bool(calls) == (reason == "tool_calls" or choice == NAMED)
    assert bool(content) == (not calls)
    if isinstance(choice, dict):
        assert set(names(calls)) <= {"now"}
    for call in calls:
        assert call["id"].startswith("chatcmpl-tool-")
        assert type(json.loads(call["function"]["arguments"])) is dict


def test_with_tools_the_choice_left_out_is_auto() -> None:
    assert ask(RankRig(*ALWAYS))[0] == "tool_calls"


def test_calls_the_model_chose_leave_content_null_and_forced_ones_empty() -> None:
    assert ask(RankRig(*ALWAYS), tool_choice="auto")[1] is None
    assert ask(RankRig(*ALWAYS), tool_choice="required")[1] == ""
    assert ask(RankRig(*ALWAYS), tool_choice=NAMED)[1] == ""


@KINDS
def test_parallel_calls_and_one_at_a_time(stream: bool) -> None:
    rig = RankRig(*ALWAYS)
    tools = [{"type": "function", "function": {"name": name}} for name in "abc"]
    assert len(ask(rig, stream, tools=tools)[2]) == 3
    assert len(ask(rig, stream, tools=tools, parallel_tool_calls=False)[2]) == 1
    assert len({call["id"] for call in ask(rig, stream, tools=tools)[2]}) == 3


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tool_choice": NAMED}, "tool_choice"),
        ({"tools": []}, "tools"),
        ({"tools": [WEATHER], "tool_choice": "banana"}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": NAMED}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function"}}, "tool_choice.function"),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": [NOW]}}},
            "tool_choice.allowed_tools",
        ),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": []}}},
            "tool_choice.allowed_tools",
        ),
    ],
)
def test_r38_impossible_choices_are_refused(more: dict[str, Any], param: str) -> None:
    assert refusal(**more)["param"] == param


def test_r39_streamed_arguments_come_in_pieces_with_the_identity_in_the_first() -> None:
    rig = RankRig(*ALWAYS)
    reply = reply_of(post(rig, CHAT, stream=True, max_tokens=500, ignore_eos=False, tools=[WEATHER, NOW]))
    deltas = [choice["delta"] for choice in choices_of(events(reply.body))]
    assert deltas[0] == {"role": "assistant", "content": ""}
    pieces: dict[int, list[Any]] = {}
    for delta in deltas[1:]:
        assert list(delta) in (["tool_calls"], [])
        for call in delta.get("tool_calls", ()):
            pieces.setdefault(call["index"], []).append(call)
    assert sorted(pieces) == [0, 1]
    for first, *others in pieces.values():
        assert list(first) == ["id", "type", "index", "function"]
        assert list(first["function"]) == ["name", "arguments"]
        assert others
        for other in others:
            assert list(other) == ["index", "function"]
            assert list(other["function"]) == ["arguments"]
            assert other["function"]["arguments"]


@KINDS
def test_a_call_cut_short_ends_by_length(stream: bool) -> None:
    reason, _, calls = ask(RankRig(), stream, tools=[WEATHER], tool_choice="required", max_tokens=22)
    assert reason == "length"
    for call in calls:
        assert not call["function"]["arguments"].endswith("}")


def test_each_choice_makes_calls_of_its_own() -> None:
    more = {"tools": [NOW], "tool_choice": "required", "n": 3, "max_tokens": 500, "ignore_eos": False}
    whole = json.loads(reply_of(post(RankRig(), CHAT, **more)).body)
    ids = {call["id"] for choice in whole["choices"] for call in choice["message"]["tool_calls"]}
    assert len(ids) == 3
    frames = events(reply_of(post(RankRig(), CHAT, stream=True, **more)).body)
    opened = [
        (choice["index"], call["id"])
        for choice in choices_of(frames)
        for call in choice["delta"].get("tool_calls", ())
        if "id" in call
    ]
    assert sorted(index for index, _ in opened) == [0, 1, 2]
    assert len(dict(opened).values()) == len({call_id for _, call_id in opened}) == 3
    assert finishes(frames) == [(index, "tool_calls") for index in range(3)]


@KINDS
def test_ids_and_log_probabilities_cover_the_markup_of_calls(stream: bool) -> None:
    more = {"logprobs": True, "return_token_ids": True, "stream_options": {"include_usage": True}}
    if not stream:
        del more["stream_options"]
    more |= {"tools": [NOW], "tool_choice": "required", "max_tokens": 500, "ignore_eos": False}
    reply = reply_of(post(RankRig(), CHAT, stream=stream, **more))
    documents = [json.loads(reply.body)] if not stream else events(reply.body)[:-1]
    total = documents[-1]["usage"]["completion_tokens"]
    choices = choices_of(documents)[stream:]
    assert sum(len(choice["token_ids"]) for choice in choices) == total
    entries = [entry for choice in choices for entry in choice["logprobs"]["content"]]
    assert len(entries) == total
    text = "".join(entry["token"] for entry in entries)
    assert text.startswith("<tool_call>")
    assert text.endswith("</tool_call>")


@pytest.mark.parametrize(
    "parameters",
    [
        None,
        {},
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {}},
        {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "default": 1}}},
        {
            "type": "object",
            "properties": {"a": {"const": 5}, "b": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
        },
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/A"}},
            "$defs": {"A": {"type": ["string", "null"]}},
        },
        {"type": "array", "items": [{"type": "string"}]},
        {"type": "object", "properties": 5, "required": "no"},
    ],
)
def test_r2_any_schema_is_accepted(parameters: Any) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    for stream in (False, True):
        _, _, (call,) = ask(RankRig(), stream, tools=[tool], tool_choice="required")
        assert type(json.loads(call["function"]["arguments"])) is dict


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_strict_validation_refuses_what_the_peer_does_not_know(choice: str) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "anyOf": []}}}
    strict = ("--strict-tool-validation",)
    reply = reply_of(post(RankRig(*strict), CHAT, tools=[tool], tool_choice=choice))
    assert reply.status == 400
    assert "Tool validation failed" in reply.error["error"]["message"]
    assert reply_of(post(RankRig(*strict), CHAT, tools=[WEATHER], tool_choice=choice)).status == 200
    assert reply_of(post(RankRig(*strict, "--skip-tool-validation"), CHAT, tools=[tool])).status == 200


def test_what_cannot_follow_its_schema_is_counted() -> None:
    rig = RankRig()
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "not": {}}}}
    ask(rig, tools=[tool], tool_choice="required")
    page = rig.rank.metrics.collector.page(None)[0].decode()
    assert 'llmdsim:nonconforming_replies_total{engine="0"} 1' in page


def test_names_that_would_be_repeated_without_bound_are_refused() -> None:
    long = {"type": "function", "function": {"name": "x" * 1025}}
    reply = reply_of(post(RankRig(), CHAT, tools=[long]))
    assert reply.status == 400
    assert reply.error["error"]["param"] == "tools"
    fits = {"type": "function", "function": {"name": "x" * 1024}}
    assert reply_of(post(RankRig(), CHAT, tools=[fits])).status == 200


def test_a_reply_makes_only_so_many_calls() -> None:
    many = [{"type": "function", "function": {"name": f"f{number}"}} for number in range(300)]
    rig = RankRig(*ALWAYS, "--max-model-len", "100000")
    client = post(rig, CHAT, tools=many, max_tokens=None, ignore_eos=False)
    rig.clock.pump([0.001] * 100)
    (choice,) = json.loads(reply_of(client).body)["choices"]
    assert (choice["finish_reason"], len(choice["message"]["tool_calls"])) == ("tool_calls", 128)


def test_calls_that_nobody_would_see_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    arguments = Composer._arguments

    def noted(composer: Composer, function: Function, random: Random) -> str:
        made.append(function.name)
        return arguments(composer, function, random)

    monkeypatch.setattr(Composer, "_arguments", noted)
    reason, _, _ = ask(RankRig(*ALWAYS), tools=[WEATHER] * 50, max_tokens=3)
    assert (reason, len(made)) == ("length", 1)
