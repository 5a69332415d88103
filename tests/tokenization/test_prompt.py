"""Prompts: text or ids, tokenized once and on demand."""

import pytest

from llmdsim.tokenization import BuiltinTokenizer, Prompt, well_formed


class Counting(BuiltinTokenizer):
    """Notes what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def count(self, text: str) -> int:
        self.calls.append("count")
        return super().count(text)

    def encode(self, text: str) -> list[int]:
        self.calls.append("encode")
        return super().encode(text)


def test_text_is_counted_once_and_encoded_only_when_ids_are_wanted() -> None:
    tokenizer = Counting()
    prompt = Prompt(tokenizer, "one two three")
    assert (len(prompt), len(prompt)) == (3, 3)
    assert tokenizer.calls == ["count"]
    assert prompt.ids is prompt.ids
    assert prompt.ids == BuiltinTokenizer().encode("one two three")
    assert tokenizer.calls == ["count", "encode"]
    assert prompt.texts == ["one ", "two ", "three"]
    assert prompt.text == "one two three"


def test_ids_are_the_prompt_and_their_texts_decoded() -> None:
    tokenizer = BuiltinTokenizer()
    ids = (*tokenizer.encode("one two"), 7)
    prompt = Prompt.of_ids(tokenizer, ids)
    assert prompt.text is None
    assert len(prompt) == 3
    assert prompt.ids == list(ids)
    assert prompt.texts == ["one ", "two", "7"]


def test_empty_prompts_have_no_tokens() -> None:
    assert len(Prompt(BuiltinTokenizer(), "")) == 0
    assert len(Prompt.of_ids(BuiltinTokenizer(), [])) == 0
    assert Prompt(BuiltinTokenizer(), "").texts == []


def test_prompt_text_can_always_be_encoded() -> None:
    prompt = Prompt(BuiltinTokenizer(), "a\ud800b")
    assert prompt.text == "a\ufffdb"
    assert "".join(prompt.texts) == prompt.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("é世😀", "é世😀"),
        ("\ud83d\ude00", "😀"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("x\ud800", "x\ufffd"),
    ],
)
def test_well_formed(text: str, expected: str) -> None:
    assert well_formed(text) == expected


def test_repr_is_short() -> None:
    assert len(repr(Prompt(BuiltinTokenizer(), "x" * 10_000))) < 100
    assert repr(Prompt.of_ids(BuiltinTokenizer(), [1, 2])) == "<Prompt of 2 ids>"
