"""Synthetic log probabilities."""

import pytest

from llmdsim.reply.logprobs import candidates, main
from llmdsim.tokenization import BuiltinTokenizer


@pytest.mark.parametrize(("position", "value"), [(0, -1.0), (1, -1.1), (2, -1.2), (3, -1.0), (3001, -1.1)])
def test_main(position: int, value: float) -> None:
    assert main(position) == pytest.approx(value)


def test_the_token_said_comes_first_then_its_alternatives() -> None:
    entries = candidates(77, "hi ", 0, 3)
    assert [(entry.text, entry.logprob) for entry in entries] == [
        ("hi ", -1.0),
        ("hi _1", -1.5),
        ("hi _2", -2.0),
        ("hi _3", -2.5),
    ]
    assert entries[0].id == 77


@pytest.mark.parametrize("k", [0, -1])
def test_without_alternatives_only_the_token_said(k: int) -> None:
    assert candidates(5, "x", 2, k) == [(5, "x", -1.2)]


def test_ids_of_alternatives_are_told_apart_and_stay_in_the_vocabulary() -> None:
    entries = candidates(5, "naïve", 1, 20)
    ids = [entry.id for entry in entries]
    assert len(set(ids)) == 21
    assert ids == [entry.id for entry in candidates(5, "naïve", 4, 20)]
    small = candidates(5, "naïve", 1, 20, vocab_size=1000)
    assert all(0 <= entry.id < 1000 for entry in small)
    for own in range(25):
        fewest = candidates(own, "naïve", 1, 24, vocab_size=25)
        assert sorted(entry.id for entry in fewest) == list(range(25))
    assert [entry.text for entry in small] == [entry.text for entry in entries]


def test_an_alternatives_id_is_the_hash_of_its_text() -> None:
    _, alternative = candidates(5, "word", 0, 1)
    tokenizer = BuiltinTokenizer()
    assert tokenizer.encode("word_1") == [alternative.id]


def test_lone_surrogates_do_no_harm() -> None:
    assert candidates(5, "\ud800", 0, 1)[1].text == "\ud800_1"
