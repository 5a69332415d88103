"""Texts in parts: tokenized each by itself they give what the whole gives, and no part takes long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdsim.tokenization import BuiltinTokenizer, Layout, Prompt, builtin, prompt
from llmdsim.tokenization.tokenizer import TOLD
from tests.tokenization.test_builtin import ANY_TEXT, ASCII_TEXT, MIXED_TEXT

RUNS = st.sampled_from(
    [
        *("word", "_", "__x", " ", "\n \t", ".", "a_b", "é", "e\u0301", "世", "界", "か\u3099", "ก็", "한"),
        *("😀", "👩\u200d🚀", "👍🏽", "\u200d", "\ufe0f", "🇩", "🇩🇪", "①", "Ⓐ", "\ud83d", "\ude00"),
        *("क्", "\u3000", "\x0b"),
    ]
)
RUN_TEXT = st.lists(st.tuples(RUNS, st.integers(1, 6)), max_size=12).map(
    lambda runs: "".join(run * times for run, times in runs)
)
TEXTS = st.one_of(ANY_TEXT, ASCII_TEXT, MIXED_TEXT, RUN_TEXT)


@contextmanager
def parts_of(size: int) -> Iterator[BuiltinTokenizer]:
    """A tokenizer whose parts are as short as that."""
    with (
        patch.multiple(builtin, _PART=size, _ASCII_PART=size, _IDS_PART=size),
        patch.object(BuiltinTokenizer, "part", size),
    ):
        yield BuiltinTokenizer()


@given(TEXTS, st.integers(1, 5), st.booleans())
def test_parts_tokenize_as_the_whole_does(text: str, size: int, split: bool) -> None:
    whole = BuiltinTokenizer()
    with parts_of(size) as tokenizer:
        parts = list(tokenizer.parts(text, split))
    assert "".join(parts) == text
    assert sum(map(whole.count, parts)) == whole.count(text)
    ids, pieces = whole.split(text)
    assert [token_id for part in parts for token_id in whole.split(part)[0]] == ids
    assert [piece for part in parts for piece in whole.split(part)[1]] == pieces


@given(TEXTS, st.integers(1, 5))
def test_a_prompt_made_in_steps_is_the_one_made_at_once(text: str, size: int) -> None:
    whole = Prompt(BuiltinTokenizer(), text)
    with parts_of(size) as tokenizer:
        stepwise = Prompt(tokenizer, text)
        for _ in stepwise.count():
            pass
        assert len(stepwise) == len(whole) == tokenizer.count(whole.text or "")
        unlaid = Prompt(tokenizer, text)
        for _ in unlaid.tokenize():
            pass
        for _ in stepwise.lay_out():
            pass
    ids, texts = BuiltinTokenizer().split(whole.text or "")
    assert (
        unlaid.tokens.tolist()
        == stepwise.tokens.tolist()
        == Prompt.of_ids(tokenizer, ids).tokens.tolist()
        == ids
    )
    assert stepwise.layout == whole.layout == Layout.of(texts, ids)
    assert (stepwise.ids, stepwise.texts) == (ids, texts)


@given(st.lists(st.integers(0, 9)), st.integers(1, 5))
def test_ids_decode_in_steps_as_they_do_at_once(ids: list[int], size: int) -> None:
    with parts_of(size) as tokenizer:
        known = [tokenizer.encode(letter)[0] for letter in "abcde"]
        mixed = [known[number] if number < 5 else number for number in ids]
        stepwise = Prompt.of_ids(tokenizer, mixed)
        for _ in stepwise.lay_out():
            pass
        assert stepwise.texts == tokenizer.decode(mixed)
        assert stepwise.layout == Layout.of(tokenizer.decode(mixed), mixed)


@pytest.mark.parametrize(
    "text",
    [
        "The quick brown fox, jumps over. " * 3000,
        "x" * 100 + ".a" * 50_000,
        "我们今天去公园看花然后回家吃饭" * 3000,
        "การทดสอบภาษาไทยไม่มีช่องว่าง" * 3000,
        "Съешь же ещё этих мягких французских булок. " * 3000,
        "😀👩\u200d🚀👍🏽" * 20_000,
        "日本語のテキスト。ひらがなとカタカナ" * 3000,
    ],
)
def test_no_part_of_a_long_text_is_much_longer_than_the_others(text: str) -> None:
    tokenizer = BuiltinTokenizer()
    parts = list(tokenizer.parts(text, split=True))
    assert len(parts) > 10
    assert max(map(len, parts)) < tokenizer.part + 40


def test_a_giant_word_is_sought_through_in_steps() -> None:
    tokenizer = BuiltinTokenizer()
    parts = list(tokenizer.parts("ж" * 100_000 + " end"))
    assert parts.count("") > 20
    assert [part for part in parts if part] == ["ж" * 100_000 + " ", "end"]


@pytest.mark.parametrize("text", ["", "short"])
def test_a_short_text_is_one_part(text: str) -> None:
    assert list(BuiltinTokenizer().parts(text)) == [text]
    assert not Prompt(BuiltinTokenizer(), text).long
    assert not Prompt.of_ids(BuiltinTokenizer(), [1, 2]).long


def test_a_text_that_cannot_fit_is_not_counted_to_its_end() -> None:
    text = "世" * 1_000_000
    too_long = Prompt(BuiltinTokenizer(), text, most=1000)
    steps = sum(1 for _ in too_long.count())
    assert TOLD < len(too_long) <= TOLD + BuiltinTokenizer.part
    assert steps == TOLD // BuiltinTokenizer.part
    fits = Prompt(BuiltinTokenizer(), text, most=1_000_000)
    assert len(fits) == 1_000_000


def test_one_that_is_not_much_too_long_is_counted_to_its_end() -> None:
    assert len(Prompt(BuiltinTokenizer(), "世" * TOLD, most=10)) == TOLD


def test_counting_and_laying_out_are_done_once() -> None:
    with patch.object(BuiltinTokenizer, "parts", autospec=True, side_effect=BuiltinTokenizer.parts) as parts:
        text = Prompt(BuiltinTokenizer(), "a b " * 10_000)
        assert text.long
        assert len(text) == 20_000
        assert list(text.count()) == []
        assert text.layout is text.layout
        assert list(text.lay_out()) == []
        assert len(text.ids) == len(text.texts) == 20_000
    assert parts.call_count == 2


def test_a_layout_is_cut_to_its_first_tokens() -> None:
    said = Prompt(BuiltinTokenizer(), "one two three").layout
    assert said.cut(2) == Prompt(BuiltinTokenizer(), "one two ").layout
    assert said.cut(9) == said
    assert prompt.Layout.of([], []).cut(0) == prompt.Layout.of([], [])
