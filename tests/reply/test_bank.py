"""The sentences of random replies."""

import re
from random import Random

from llmdsim.reply.bank import SENTENCES, Bank
from tests.reply.asks import TOKENIZER


def test_the_bank_is_large_and_varied() -> None:
    assert len(SENTENCES) == len(set(SENTENCES)) >= 40
    totals = [sentence.total for sentence in Bank(TOKENIZER).sentences]
    assert min(totals) <= 5
    assert max(totals) >= 20


def test_every_sentence_can_follow_any_other() -> None:
    for sentence in SENTENCES:
        assert re.fullmatch(r"[A-Z][ -~]*[.?!)] ", sentence), sentence
        assert "  " not in sentence


def test_tokens_of_the_bank_are_those_of_the_joined_text() -> None:
    sentences = Random(1).choices(Bank(TOKENIZER).sentences, k=200)
    joined = "".join(text for sentence in sentences for text in sentence.texts)
    ids, texts = TOKENIZER.split(joined)
    assert ids == [token_id for sentence in sentences for token_id in sentence.ids]
    assert texts == [text for sentence in sentences for text in sentence.texts]
