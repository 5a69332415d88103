"""Messages that are made to a plan: calls, reasoning, and text to a schema; whole and streamed."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from tests.web.anthropic.answers import merged
from tests.web.anthropic.asking import response, streamed, whole
from tests.web.anthropic.requests import USER, said_by
from tests.web.rig import RankRig

ALWAYS = ("--tool-call-extra-call-probability", "100")
NEVER = ("--tool-call-extra-call-probability", "0")
THINKING = ("--reasoning-parser", "any")
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Zürich | é", "東京 😀"]}, "days": {"type": "integer"}},
    "required": ["city", "days"],
}
WEATHER = {"name": "weather", "input_schema": SCHEMA}
NOW = {"name": "now", "input_schema": {"properties": {}}}
TOOLS = [WEATHER, NOW]
SAID = ("end_turn", "max_tokens")
BOTH = pytest.mark.parametrize("answer", [whole, streamed])


def kinds(made: Any) -> list[str]:
    return [block["type"] for block in made["content"]]


@BOTH
@pytest.mark.parametrize(
    ("choice", "flags", "calls"),
    [
        (None, ALWAYS, {"weather", "now"}),
        (None, NEVER, set()),
        ({"type": "auto"}, ALWAYS, {"weather", "now"}),
        ({"type": "none"}, ALWAYS, set()),
        ({"type": "any"}, NEVER, {"weather", "now"}),
        ({"type": "tool", "name": "weather"}, ALWAYS, {"weather"}),
    ],
)
def test_tools_are_called_as_chosen(
    answer: Any, choice: Any, flags: tuple[str, ...], calls: set[str]
) -> None:
    made = answer(RankRig(*flags), tools=TOOLS, tool_choice=choice, max_tokens=500)
    _, text, called = merged(made["content"])
    assert made["stop_reason"] in (("tool_use",) if calls else SAID)
    assert bool(called) == bool(calls)
    assert bool(text) == (not calls)
    for name, given in called:
        assert name in calls
        if name == "weather":
            jsonschema.validate(given, SCHEMA)


@BOTH
def test_one_call_at_a_time(answer: Any) -> None:
    for disable, count in ((False, 2), (True, 1)):
        choice = {"type": "auto", "disable_parallel_tool_use": disable}
        made = answer(RankRig(*ALWAYS), tools=TOOLS, tool_choice=choice, max_tokens=500)
        assert kinds(made) == ["tool_use"] * count


@BOTH
def test_a_conversation_goes_on_behind_a_result(answer: Any) -> None:
    rig = RankRig(*NEVER)
    asked: list[Any] = [USER]
    choice = {"type": "any"}
    made = whole(rig, messages=asked, tools=TOOLS, tool_choice=choice, max_tokens=500)
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": "21"} for block in made["content"]
    ]
    asked += [{"role": "assistant", "content": made["content"]}, said_by("user", *results)]
    again = answer(rig, messages=asked, tools=TOOLS, max_tokens=500)
    assert kinds(again) == ["text"]
    assert again["usage"]["input_tokens"] > made["usage"]["input_tokens"]


def test_a_forced_call_that_is_cut_short() -> None:
    more = {"tools": [WEATHER], "tool_choice": {"type": "any"}, "max_tokens": 22}
    assert response(RankRig(), **more).status == 400
    made = streamed(RankRig(), **more)
    assert made["stop_reason"] == "max_tokens"
    with pytest.raises(json.JSONDecodeError):
        json.loads(made["content"][-1]["arguments"])


def test_a_free_call_that_is_cut_short() -> None:
    made = whole(RankRig(*ALWAYS), tools=[WEATHER], max_tokens=22)
    assert (kinds(made), made["stop_reason"]) == (["text"], "max_tokens")


@BOTH
@pytest.mark.parametrize(
    ("thinking", "thinks"),
    [
        (None, True),
        ({"type": "adaptive"}, True),
        ({"type": "enabled", "budget_tokens": 1024}, True),
        ({"type": "disabled"}, False),
    ],
)
def test_reasoning_comes_before_the_answer(answer: Any, thinking: Any, thinks: bool) -> None:
    made = answer(RankRig(*THINKING, "--max-model-len", "4096"), thinking=thinking, max_tokens=1500)
    assert kinds(made) == ["thinking", "text"][not thinks :]
    assert made["stop_reason"] in SAID


@BOTH
def test_reasoning_comes_before_calls_too(answer: Any) -> None:
    made = answer(RankRig(*THINKING), tools=[NOW], tool_choice={"type": "any"}, max_tokens=500)
    assert kinds(made) == ["thinking", "tool_use"]


@BOTH
def test_an_output_format_is_followed(answer: Any) -> None:
    format_ = {"type": "json_schema", "schema": SCHEMA}
    for flags in ((), THINKING):
        made = answer(RankRig(*flags), output_config={"format": format_}, max_tokens=500)
        jsonschema.validate(json.loads(merged(made["content"])[1]), SCHEMA)


@BOTH
@pytest.mark.parametrize("length", range(1, 40, 3))
def test_whatever_the_length_a_stream_is_well_formed(answer: Any, length: int) -> None:
    rig = RankRig(*ALWAYS, *THINKING)
    made = answer(rig, tools=TOOLS, max_tokens=length)
    assert made["usage"]["output_tokens"] <= length


@BOTH
def test_stop_sequences_do_not_hurt_calls_they_are_not_in(answer: Any) -> None:
    more = {"tools": [WEATHER], "tool_choice": {"type": "any"}, "stop_sequences": ["\n\nHuman:"]}
    made = answer(RankRig(), **more, max_tokens=500)
    assert made["stop_reason"] == "tool_use"


def test_a_stop_sequence_may_cut_a_call() -> None:
    more = {"tools": [WEATHER], "tool_choice": {"type": "any"}, "stop_sequences": ["city"], "max_tokens": 500}
    assert response(RankRig(), **more).status == 400
    made = streamed(RankRig(), **more)
    assert (made["stop_reason"], made["stop_sequence"]) == ("stop_sequence", "city")


def test_strict_validation_of_tools_is_for_messages_and_counts_too() -> None:
    rig = RankRig("--strict-tool-validation")
    tool = {"name": "f", "input_schema": {"type": "object", "anyOf": []}}
    assert response(rig, tools=[tool]).status == 400
    assert response(rig, "/v1/messages/count_tokens", tools=[tool]).status == 400


def test_images_take_tokens() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    rig = RankRig("--max-model-len", "4096")
    with_image = whole(rig, messages=[said_by("user", {"type": "text", "text": "hi"}, image)])
    assert with_image["usage"]["input_tokens"] > whole(rig)["usage"]["input_tokens"] + 200
    assert response(RankRig(), messages=[said_by("user", *[image] * 100)]).status == 400
    assert (
        response(RankRig(), "/v1/messages/count_tokens", messages=[said_by("user", *[image] * 100)]).status
        == 400
    )
