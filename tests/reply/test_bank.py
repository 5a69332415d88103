"""The sentences of random replies."""

import re
from random import Random

import pytest
from tokenizers import Tokenizer, models, trainers

from llmdsim.reply.bank import SENTENCES, Bank
from llmdsim.tokenization import Layout
from llmdsim.tokenization.pretrained import PretrainedTokenizer
from tests.reply.asks import TOKENIZER
from tests.tokenization.trained import KINDS, trained


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


@pytest.mark.parametrize("kind", KINDS)
def test_so_they_are_with_a_models_tokenizer(kind: str) -> None:
    tokenizer = trained(kind)
    bank = Bank(tokenizer)
    source = Random(2)
    for total in (1, 5, 60, 300):
        ids, texts = bank.tokens(total, source)
        assert len(ids) == len(texts) == total
        assert tokenizer.encode("".join(texts)) == ids
        assert texts[0][0] != " "


def test_a_tokenizer_that_joins_sentences_has_them_all_the_same() -> None:
    library = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=300, show_progress=False, special_tokens=[])
    library.train_from_iterator(["".join(SENTENCES[:5])], trainer)
    library.add_tokens([". The"])
    bank = Bank(PretrainedTokenizer(library))
    ids, texts = bank.tokens(200, Random(1))
    assert len(ids) == len(texts) == 200


def test_what_was_said_is_gone_on_with_behind_a_blank() -> None:
    tokenizer = trained("byte level")
    ids, texts = tokenizer.split("It depends.")
    _, completed = Bank(tokenizer).completed(Layout.of(texts, ids), len(ids) + 20, Random(1))
    assert "".join(completed)[:12] == "It depends. "
    assert "".join(completed)[12] != " "
