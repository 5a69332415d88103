"""How alike texts are: 1 for the same words, 0 for none in common, in between by what they share."""

from __future__ import annotations

import pytest

from llmdsim.reply.similarity import similarity, words
from llmdsim.tokenization.builtin import BuiltinTokenizer
from llmdsim.tokenization.prompt import Prompt
from tests.reply.test_embedding import done

TOKENIZER = BuiltinTokenizer()


def alike(one: str, other: str) -> float:
    counts = [done(words(Prompt(TOKENIZER, text)))[0] for text in (one, other)]
    return done(similarity(*counts))[0]


@pytest.mark.parametrize("text", ["a", " ", "a b c", "日本語 text, with marks!", "the the the cat"])
def test_a_text_is_most_like_itself(text: str) -> None:
    assert alike(text, text) == pytest.approx(1, abs=1e-12)
    assert alike(text, text) <= 1


def test_capitals_and_blanks_make_no_difference() -> None:
    assert alike("The  quick\nFOX", "the quick fox ") == pytest.approx(1)


def test_texts_without_a_common_word_are_not_alike() -> None:
    assert alike("one two three", "four five") == 0


def test_the_answer_is_more_like_the_question_than_another_fact_is() -> None:
    question = "What is the capital of France?"
    assert alike(question, "The capital of France is Paris.") > alike(
        question, "The capital of Brazil is Brasilia."
    )


def test_it_is_the_same_both_ways() -> None:
    assert alike("a a b", "a c d e") == alike("a c d e", "a a b") == pytest.approx(2 / (5**0.5 * 2))


def test_long_texts_are_compared_in_steps() -> None:
    one = Prompt(TOKENIZER, " ".join(f"w{number}" for number in range(9000)))
    counts, steps = done(words(one))
    assert steps > 4
    assert sum(counts.values()) == 9000
    found, steps = done(similarity(counts, counts))
    assert found == pytest.approx(1)
    assert steps > 3
