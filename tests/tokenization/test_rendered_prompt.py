"""Prompts whose ids another tokenizer has found."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from llmdsim.tokenization import BuiltinTokenizer
from llmdsim.tokenization.rendered_prompt import RenderedPrompt
from llmdsim.tokenization.unicode import well_formed

TOKENIZER = BuiltinTokenizer()


def prompt(text: str, *ids: int) -> RenderedPrompt:
    return RenderedPrompt.of(TOKENIZER, text, ids)


def test_the_ids_are_those_given() -> None:
    made = prompt("one two three", 7, 8)
    assert (len(made), made.ids, list(made.tokens), made.text) == (2, [7, 8], [7, 8], "one two three")


def test_more_pieces_than_ids_go_to_the_last() -> None:
    assert prompt("one two three", 7, 8).texts == ["one ", "two three"]


def test_more_ids_than_pieces_have_no_text() -> None:
    made = prompt("one two", 7, 8, 9, 9)
    assert made.texts == ["one ", "two", "", ""]
    assert list(made.layout.ids) == [7, 8, 9, 9]


def test_just_as_many() -> None:
    assert prompt("one two", 7, 8).texts == ["one ", "two"]


def test_none_at_all() -> None:
    assert prompt("one two").texts == []
    assert prompt("", 7).texts == [""]


@given(text=st.text(), ids=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=9))
def test_the_text_is_whole(text: str, ids: list[Any]) -> None:
    made = prompt(text, *ids)
    assert "".join(made.texts) == made.layout.text == well_formed(text)
    assert (made.layout.ids.tolist(), len(made.texts), len(made)) == (ids, len(ids), len(ids))
