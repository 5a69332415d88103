"""Conversations in files of every form, and what is no conversation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llmdsim.dataset.conversations import Conversation, Problem, exchanges, read

SHARED = {
    "id": "x",
    "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}],
}
CHAT = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}
PAIR = {"prompt": "Hi", "completion": "Hello"}


def found(path: Path, content: str) -> list[Conversation | Problem]:
    path.write_text(content)
    return list(read(path))


@pytest.mark.parametrize("item", [SHARED, CHAT, PAIR])
@pytest.mark.parametrize("form", ["[%s]", " \n[%s, %s]", "%s\n", "\n%s\n\n%s", "\ufeff%s"])
def test_every_form_reads_the_same(tmp_path: Path, item: dict[str, Any], form: str) -> None:
    content = form.replace("%s", json.dumps(item))
    conversations = found(tmp_path / "in", content)
    assert len(conversations) == form.count("%s")
    assert all(conversation.messages == CHAT["messages"] for conversation in conversations)  # type: ignore[union-attr]


def test_what_is_no_conversation_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "in"
    lines = [
        json.dumps(CHAT),
        "{",
        "7",
        "{}",
        '{"messages": 7}',
        '{"messages": [7]}',
        '{"messages": [{"content": "x"}]}',
        '{"conversations": [{"from": "human"}]}',
        '{"prompt": "x"}',
        json.dumps(PAIR),
    ]
    outcome = found(path, "\n".join(lines))
    assert [type(each) for each in outcome] == [Conversation, *[Problem] * 8, Conversation]
    assert [each.where for each in outcome] == [f"{path}:{line}" for line in range(1, 11)]
    assert "not JSON" in str(outcome[1])


def test_an_array_that_is_broken_is_one_problem(tmp_path: Path) -> None:
    (problem,) = found(tmp_path / "in", f"[{json.dumps(CHAT)}")
    assert isinstance(problem, Problem)


def said(*turns: str) -> list[dict[str, Any]]:
    roles = {"u": "user", "a": "assistant", "s": "system", "t": "tool"}
    return [{"role": roles[turn[0]], "content": turn} for turn in turns]


@pytest.mark.parametrize(
    ("turns", "pairs", "breaks"),
    [
        (("u1", "a1"), [("u1", "a1", 1)], False),
        (("s", "u1", "a1", "u2", "a2"), [("u1", "a1", 2), ("u2", "a2", 4)], False),
        (("u1", "a1", "s", "u2", "a2"), [("u1", "a1", 1), ("u2", "a2", 4)], False),
        (("u1", "a1", "u2"), [("u1", "a1", 1)], False),
        (("a1", "u1", "a2"), [], True),
        (("u1", "u2", "a1"), [], True),
        (("u1", "s", "a1"), [], True),
        (("u1", "a1", "a2", "u3", "a3"), [("u1", "a1", 1)], True),
        (("u1", "a1", "t", "a2"), [("u1", "a1", 1)], True),
        ((), [], False),
    ],
)
def test_questions_and_their_answers(
    turns: tuple[str, ...], pairs: list[tuple[str, str, int]], breaks: bool
) -> None:
    outcome, violation = exchanges(said(*turns))
    assert [(pair.question, pair.answer, len(pair.messages)) for pair in outcome] == pairs
    assert (violation is not None) == breaks


def test_a_call_is_no_answer() -> None:
    messages = [*said("u1"), {"role": "assistant", "content": "", "tool_calls": [{}]}]
    assert exchanges(messages)[0] == []
