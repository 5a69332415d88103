"""Cut replies are what was revealed of the whole one, in every respect."""

from __future__ import annotations

import pytest

from llmdsim.reply.cut import CutReply
from llmdsim.reply.parts import PartedReply, Stretch
from llmdsim.reply.reply import Part, Reply
from llmdsim.tokenization import Prompt
from tests.reply.asks import TOKENIZER, author, requested


def replies() -> list[Reply]:
    return [
        author().write(requested(12, ignore_eos=True)),
        author().write(requested(3000, ignore_eos=True)),
        author(mode="echo").write(requested(12, text="one two three four five six seven é ü")),
        author(mode="echo").write(requested(12, text="one two three four five six", stop=("never said",))),
    ]


@pytest.mark.parametrize("kind", range(4))
@pytest.mark.parametrize("total", [0, 1, 4])
def test_as_much_is_shown_as_was_revealed(kind: int, total: int) -> None:
    whole = replies()[kind]
    cut = CutReply(whole, total)
    assert (cut.total, cut.finish_reason, cut.stop_reason) == (total, "abort", None)
    assert cut.texts(0, 99) == whole.texts(0, total)
    assert cut.pieces(0, 99) == whole.pieces(0, total)
    assert cut.token_texts(0, 99) == whole.token_texts(0, total)
    assert cut.ids(0, 99) == whole.ids(0, total)
    assert cut.text() == "".join(whole.texts(0, total))
    assert cut.json_text() == b"".join(whole.pieces(0, total))
    assert cut.deltas(0, 99) == whole.deltas(0, total)
    assert cut.part_texts() == [cut.text()]
    assert cut.pieces(total, total) == []


def test_nothing_is_shown_of_a_reply_that_was_not_written() -> None:
    cut = CutReply(None, 0)
    assert (cut.total, cut.text(), cut.json_text(), cut.ids(0, 5), cut.part_texts()) == (0, "", b"", [], [""])


@pytest.mark.parametrize("total", range(7))
def test_parts_that_were_not_begun_are_none(total: int) -> None:
    text = "one two three four five six"
    words = text.split()
    starts = [text.index(word) for word in words]
    stretches = [
        Stretch(Part("reasoning"), starts[0], starts[1] + 3),
        Stretch(Part("text"), starts[2], starts[3] + 4),
        Stretch(Part("call", "f"), starts[4], len(text)),
    ]
    whole = PartedReply(Prompt(TOKENIZER, text).layout, stretches, range(1, 3), "stop")
    cut = CutReply(whole, min(total, whole.total))
    texts: list[str] = ["", "", ""]
    for step in whole.deltas(0, cut.total):
        for delta in step:
            texts[delta.part] += delta.text
    begun = [part for part in zip(whole.parts, texts, strict=True) if part[1]]
    assert list(zip(cut.parts, cut.part_texts(), strict=True)) == begun
    assert cut.reasoning_tokens(99) == whole.reasoning_tokens(cut.total)
