"""Answers as messages, as a render step's context has them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.web.generate.asking import answer, error
from tests.web.rig import RankRig

TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    },
}


def message(rig: RankRig, **context: Any) -> Any:
    (choice,) = answer(rig, output_mode="derender", parse_context=context)["choices"]
    return choice


def test_without_a_context_the_text_is_the_message() -> None:
    rig = RankRig("--mode", "echo")
    ids = rig.rank.context.tokenizer.encode("one two")
    document = answer(rig, token_ids=ids, output_mode="derender")
    assert document["output_mode"] == "derender"
    (choice,) = document["choices"]
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"] == "one two"
    assert list(choice)[-3:] == ["weight_versions", "message", "logprobs"]


@pytest.mark.parametrize(
    ("choice", "reason"),
    [("required", "tool_calls"), ({"type": "function", "function": {"name": "f"}}, "stop")],
)
def test_tools_are_called(choice: Any, reason: str) -> None:
    found = message(RankRig(), tools=[TOOL], tool_choice=choice)
    assert found["finish_reason"] == reason
    call = found["message"]["tool_calls"][0]
    assert call["function"]["name"] == "f"
    assert isinstance(json.loads(call["function"]["arguments"])["a"], int)


def test_tools_are_not_called_unless_the_context_says_so() -> None:
    assert "tool_calls" not in message(RankRig(), tools=[TOOL])["message"]


def test_what_hides_reasoning_hides_ids() -> None:
    rig = RankRig("--reasoning-parser", "deepseek_r1")
    shown, hidden = message(rig), message(rig, include_reasoning=False)
    assert shown["message"]["reasoning"]
    assert shown["token_ids"]
    assert hidden["message"]["reasoning"] is None
    assert hidden["token_ids"] is None


@pytest.mark.parametrize(
    "context",
    [
        {"newer": 1},
        {"tools": 5},
        {"tool_choice": "some"},
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}},
        {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"history_tool_call_cnt": -1},
    ],
)
def test_contexts_that_make_no_sense_are_refused_where_they_are_read(context: Any) -> None:
    rig = RankRig()
    assert error(rig, output_mode="derender", parse_context=context)
    assert answer(rig, parse_context=context)


def test_messages_are_not_streamed_and_need_a_context_where_there_is_a_parser() -> None:
    assert error(RankRig(), output_mode="derender", stream=True)["param"] is None
    assert error(RankRig("--reasoning-parser", "x"), output_mode="derender")["param"] is None
