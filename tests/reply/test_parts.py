"""Replies of several parts."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from llmdsim.reply.draft import Draft
from llmdsim.reply.parts import PartedReply
from llmdsim.reply.reply import Part
from tests.reply.asks import TOKENIZER

TEXTS = st.text(max_size=12)
KINDS = st.sampled_from([None, Part("text"), Part("reasoning"), Part("call", "f")])


def reply_of(
    *pieces: tuple[str, Part | None], total: int | None = None, shown: int | None = None, held_back: int = 0
) -> PartedReply:
    """A reply of pieces, each shown as a part or not at all, cut to `total` tokens."""
    draft = Draft(TOKENIZER)
    for text, part in pieces:
        draft.tokens(TOKENIZER.split(text), part)
    layout = draft.layout()
    if total is not None:
        layout = layout.cut(min(total, draft.total))
    return PartedReply(layout, draft.stretches, range(0), "stop", None, shown, held_back)


def joined(reply: PartedReply, size: int) -> list[str]:
    """The texts of the parts, put together from deltas of `size` steps at a time."""
    texts = [""] * len(reply.parts)
    last = 0
    for start in range(0, reply.total, size):
        for deltas in reply.deltas(start, min(start + size, reply.total)):
            for part, text in deltas:
                assert text
                assert part >= last
                last = part
                texts[part] += text
    return texts


def test_markup_between_parts_is_not_shown() -> None:
    reply = reply_of(
        ("<think>", None), ("Hm. ", Part("reasoning")), ("</think>", None), ("Yes.", Part("text"))
    )
    assert reply.parts == (Part("reasoning"), Part("text"))
    assert reply.part_texts() == ["Hm. ", "Yes."]
    assert reply.text() == "<think>Hm. </think>Yes."


def test_a_part_cut_off_before_it_began_is_none() -> None:
    reply = reply_of(("One two ", Part("text")), ("<call>", None), ("{}", Part("call", "f")), total=4)
    assert reply.parts == (Part("text"),)


def test_the_end_of_what_is_shown_cuts_parts_too() -> None:
    reply = reply_of(("One two ", Part("text")), ("three", Part("call", "f")), shown=10)
    assert reply.part_texts() == ["One two ", "th"]
    assert joined(reply, 1) == ["One two ", "th"]


def test_every_token_has_text_of_one_part() -> None:
    reply = reply_of(("ab", Part("reasoning")), ("cd", Part("text")))
    assert all(len(deltas) == 1 for deltas in reply.deltas(0, reply.total))


def test_tokens_of_reasoning_are_counted_without_its_marks() -> None:
    draft = Draft(TOKENIZER)
    draft.thoughts(TOKENIZER.split("one two three "), None)
    draft.text("four", Part("text"))
    marks = len(TOKENIZER.split("<think>")[0])
    reply = PartedReply(draft.layout(), draft.stretches, draft.reasoning, "stop")
    assert [reply.reasoning_tokens(marks + tokens) for tokens in (-1, 0, 1, 3, 4)] == [0, 0, 1, 3, 3]
    assert reply.parts == (Part("text"),)


@given(
    st.lists(st.tuples(TEXTS, KINDS), max_size=6),
    st.integers(1, 5),
    st.integers(0, 4),
    st.none() | st.integers(0, 30),
)
def test_deltas_join_to_the_parts_however_they_are_read(
    pieces: list[tuple[str, Part | None]], size: int, held_back: int, total: int | None
) -> None:
    reply = reply_of(*pieces, held_back=held_back, total=total)
    assert joined(reply, size) == reply.part_texts()
    assert all(reply.part_texts())
    msgspec.json.encode(reply.part_texts())
