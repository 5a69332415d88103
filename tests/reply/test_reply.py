"""The forms of a reply: the same tokens, however they are stored."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdsim.reply import author as author_module
from llmdsim.reply.bank import SENTENCES, Bank
from llmdsim.reply.reply import LongSentenceReply, Reply, ShortSentenceReply, TextReply
from llmdsim.tokenization import Layout
from tests.reply.asks import TOKENIZER, author, requested

BANK = Bank(TOKENIZER)


def forms(order: list[int], total: int) -> list[Reply]:
    """One reply of bank sentences in each of the forms."""
    sentences = [BANK.sentences[index] for index in order]
    texts = [text for sentence in sentences for text in sentence.texts][:total]
    ids = [token_id for sentence in sentences for token_id in sentence.ids][:total]
    return [
        ShortSentenceReply(sentences, total, sum(sentence.total for sentence in sentences) - total, "stop"),
        LongSentenceReply(sentences, total, "stop"),
        TextReply(Layout.of(texts, ids), "stop"),
    ]


@given(
    order=st.lists(st.integers(0, len(SENTENCES) - 1), min_size=1, max_size=6),
    cut=st.integers(0, 20),
    start=st.integers(0, 130),
    length=st.integers(0, 130),
)
def test_the_forms_agree(order: list[int], cut: int, start: int, length: int) -> None:
    last = BANK.sentences[order[-1]].total
    total = sum(BANK.sentences[index].total for index in order) - min(cut, last - 1)
    stop = start + length
    whole = "".join(SENTENCES[index] for index in order)
    ids, texts = TOKENIZER.split(whole)
    for reply in forms(order, total):
        assert reply.total == total
        assert reply.text() == "".join(texts[:total])
        assert reply.ids(start, stop) == ids[:total][start:stop]
        assert reply.texts(start, stop) == texts[:total][start:stop]
        assert reply.token_texts(start, stop) == texts[:total][start:stop]
        assert reply.pieces(start, stop) == [
            json.dumps(text)[1:-1].encode() for text in texts[:total][start:stop]
        ]
        assert json.loads(b'"%b"' % reply.json_text()) == reply.text()
        assert not reply.pieces(total, total + 1)


@pytest.mark.parametrize("total", [2049, 2500, 30_000])
def test_long_replies_equal_short_ones(total: int, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = requested(total, ignore_eos=True)
    one, other = author(seed=5), author(seed=5)
    long = one.write(wanted)
    assert isinstance(long, LongSentenceReply)
    monkeypatch.setattr(author_module, "LONG", total)
    short = other.write(wanted)
    assert isinstance(short, ShortSentenceReply)
    assert one.write(wanted).text() == other.write(wanted).text()  # both drew as often
    assert long.total == short.total == total
    assert (
        (long.finish_reason, long.stop_reason) == (short.finish_reason, short.stop_reason) == ("length", None)
    )
    assert long.pieces(0, total) == short.pieces(0, total)
    assert [long.pieces(step, step + 1) for step in range(total)] == [
        [piece] for piece in short.pieces(0, total)
    ]
    assert long.ids(1000, total + 5) == short.ids(1000, total + 5)
    assert long.texts(0, total) == short.texts(0, total)
    assert long.text() == short.text()
    assert long.json_text() == short.json_text()


def test_replies_at_the_limit_are_short() -> None:
    assert isinstance(author().write(requested(2048, ignore_eos=True)), ShortSentenceReply)


def test_pieces_are_the_inside_of_json_strings() -> None:
    text = 'say "hi"\\\n\té世😀\x00 \u2028 </x>'
    ids, texts = TOKENIZER.split(text)
    reply = TextReply(Layout.of(texts, ids), "stop")
    pieces = reply.pieces(0, reply.total)
    assert [json.loads(b'"' + piece + b'"') for piece in pieces] == texts
    assert json.loads(b'"' + reply.json_text() + b'"') == text
    assert "é世😀".encode() in reply.json_text()  # not escaped


def test_a_reply_of_nothing() -> None:
    reply = TextReply(Layout.of([], []), "stop")
    assert (reply.total, reply.text(), reply.json_text()) == (0, "", b"")
    assert not any([reply.texts(0, 0), reply.pieces(0, 1), reply.token_texts(0, 5), reply.ids(0, 1)])
