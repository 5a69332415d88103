"""Replies of what a dataset says: their length, their end, and what stands behind them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdsim.reply.ask import Ask
from llmdsim.reply.bank import SENTENCES
from llmdsim.reply.plan import Constraint, Function, Plan
from llmdsim.reply.reply import Reply
from llmdsim.tokenization import Layout
from tests.reply.asks import TOKENIZER, ask, author, requested


def layout(text: str) -> Layout:
    ids, texts = TOKENIZER.split(text)
    return Layout.of(texts, ids)


SAID = layout("one two three four five six ")


def asked(most: int, **others: object) -> Ask:
    return requested(most, **{"stored": SAID, **others})


def write(given: Ask, **settings: object) -> Reply:
    return author(**settings).write(given)


@pytest.mark.parametrize(
    ("most", "text", "reason"),
    [
        (1, "one ", "length"),
        (5, "one two three four five ", "length"),
        (6, "one two three four five six ", "length"),
        (7, "one two three four five six ", "stop"),
    ],
)
def test_it_is_cut_to_the_maximum_and_ends_for_it_if_it_is_as_long(most: int, text: str, reason: str) -> None:
    reply = write(asked(most))
    assert (reply.text(), reply.finish_reason, reply.total) == (text, reason, min(most, 6))
    assert reply.ids(0, 99) == SAID.ids.tolist()[:most]


def test_to_the_very_end_it_is_followed_by_preset_text() -> None:
    reply = write(asked(40, ignore_eos=True))
    assert (reply.total, reply.finish_reason) == (40, "length")
    assert reply.text().startswith(SAID.text)
    assert any(reply.text()[len(SAID.text) :].startswith(sentence[:20]) for sentence in SENTENCES)


def test_so_it_is_up_to_the_minimum() -> None:
    reply = write(asked(40, min_tokens=10))
    assert (reply.total, reply.finish_reason) == (10, "stop")
    assert write(asked(40, min_tokens=3)).total == 6


def test_stops_end_it_as_they_end_anything() -> None:
    reply = write(asked(40, stop=("four",)))
    assert (reply.text(), reply.finish_reason, reply.stop_reason) == ("one two three ", "stop", "four")
    reply = write(asked(40, stop=("four",), include_stop=True))
    assert reply.text() == "one two three four"
    third = SAID.ids[2]
    reply = write(asked(40, stop_token_ids=frozenset([third])))
    assert (reply.text(), reply.stop_reason, reply.total) == ("one two ", third, 3)
    reply = write(asked(40, stop=("two",), min_tokens=3))
    assert reply.text() == SAID.text


def test_the_same_seed_says_the_same_behind_it() -> None:
    def text(seed: int) -> str:
        return write(asked(60, ignore_eos=True, seed=seed)).text()

    assert text(1) == text(1)
    assert len({text(seed) for seed in range(5)}) > 1


def test_an_encoder_says_its_mark_all_the_same() -> None:
    assert write(asked(3), mm_encoder_only=True).text() == "!!!"


def test_reasoning_comes_before_it() -> None:
    reply = write(asked(100, plan=Plan(reasoning="shown")))
    assert [part.kind for part in reply.parts] == ["reasoning", "text"]
    assert reply.part_texts()[1] == SAID.text
    assert reply.finish_reason == "stop"
    reply = write(asked(100, plan=Plan(reasoning="shown"), ignore_eos=True))
    assert (reply.total, reply.finish_reason) == (100, "length")
    assert [part.kind for part in reply.parts] == ["reasoning", "text"]
    assert reply.part_texts()[1].startswith(SAID.text)


def test_calls_take_its_place() -> None:
    plan = Plan(functions=(Function("f"),), calls="auto")
    parts = [author(seed=seed).write(asked(100, plan=plan)) for seed in range(20)]
    kinds = {tuple(part.kind for part in reply.parts) for reply in parts}
    assert kinds == {("text",), ("call",)}
    assert {reply.text() for reply in parts if reply.parts[0].kind == "text"} == {SAID.text}


def test_constrained_text_is_its_own() -> None:
    plan = Plan(constraint=Constraint("choice", ("yes",)))
    assert write(ask(plan=plan)).text() == "yes"


@given(st.integers(1, 30), st.integers(1, 40), st.integers(0, 40), st.booleans(), st.sampled_from([None, 7]))
def test_lengths(length: int, most: int, least: int, ignore_eos: bool, seed: int | None) -> None:
    said = Layout.of(["x "] * length, [5] * length)
    least = min(least, most)
    reply = write(asked(most, stored=said, min_tokens=least, ignore_eos=ignore_eos, seed=seed))
    assert reply.total == (most if ignore_eos else min(most, max(length, least)))
    assert (reply.finish_reason == "length") == (reply.total == most)
    shared = min(reply.total, length)
    assert reply.ids(0, shared) == [5] * shared
    assert len(reply.texts(0, reply.total)) == reply.total
