"""Content blocks: whatever a reply is made of and however sliced, they are well-formed and say it all."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from llmdsim.reply.parts import PartedReply
from llmdsim.reply.reply import Part
from llmdsim.web.anthropic.blocks import Blocks
from tests.web.anthropic.answers import blocks, events
from tests.web.anthropic.replies import SAYS, THINKS, calls, reply_of

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
PARTS = st.sampled_from([THINKS, SAYS, calls("f"), calls("g \"'é")])
MARKUP = st.lists(st.text("<>|", max_size=3), max_size=8)


def streamed(reply: PartedReply, cuts: list[int]) -> list[dict[str, Any]]:
    """The blocks of a reply rendered in so many steps at a time."""
    made = Blocks()
    bounds = [0, *sorted(cut % (reply.total + 1) for cut in cuts), reply.total]
    data = b""
    for start, stop in pairwise(bounds):
        for step in reply.deltas(start, stop):
            for delta in step:
                data += made.add(reply.parts[delta.part], delta)
    data += made.close()
    return blocks(events(data)) if data else []


def runs(reply: PartedReply) -> list[tuple[str, str, str]]:
    """(kind, name, text) of the blocks a reply should have: what lies side by side is one, but for calls."""
    found: list[tuple[str, str, str]] = []
    texts = zip(reply.parts, reply.part_texts(), strict=True)
    for (kind, _), group in groupby(
        enumerate(texts), key=lambda item: (item[1][0].kind, item[0] if item[1][0].kind == "call" else -1)
    ):
        members = [said for _, said in group]
        found.append((kind, members[0][0].name, "".join(text for _, text in members)))
    return found


@given(
    st.lists(st.tuples(PARTS, TEXTS), max_size=7),
    MARKUP,
    st.integers(1, 30),
    st.lists(st.integers(0, 100), max_size=4),
)
def test_any_parts_in_any_slices_are_well_formed_blocks_that_join_to_them(
    said: list[tuple[Part, str]], markup: list[str], width: int, cuts: list[int]
) -> None:
    reply = reply_of(*said, markup=markup, width=width)
    found = []
    for block in streamed(reply, cuts):
        match block["type"]:
            case "text":
                found.append(("text", "", block["text"]))
            case "thinking":
                found.append(("reasoning", "", block["thinking"]))
            case _:
                found.append(("call", block["name"], block["arguments"]))
    assert found == runs(reply)


def test_text_behind_a_call_comes_in_one_piece_once_the_call_is_over() -> None:
    reply = reply_of((calls(), '{"a":1}'), (SAYS, "and so on and on"), (calls(), "{}"), (SAYS, "end"))
    made = Blocks()
    seen = []
    for step in reply.deltas(0, reply.total):
        data = b"".join(made.add(reply.parts[delta.part], delta) for delta in step)
        seen += [event.data for event in events(data)] if data else []
    seen += [event.data for event in events(made.close())]
    texts = [data["delta"]["text"] for data in seen if data.get("delta", {}).get("type") == "text_delta"]
    assert texts == ["and so on and on", "end"]


def test_plain_text_is_one_block_without_empty_deltas() -> None:
    made = Blocks()
    assert made.text([b"", b""]) == b""
    data = made.text([b"a", b"", b"\\n"]) + made.text([b"c"]) + made.close()
    assert blocks(events(data)) == [{"type": "text", "text": "a\nc"}]
    assert len(events(data)) == 5


def test_nothing_at_all_is_no_block() -> None:
    made = Blocks()
    assert made.text([]) + made.close() == b""
