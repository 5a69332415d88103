"""Stop strings and stop token ids, against a reading of the text one character at a time."""

import json
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdsim.reply.ask import Ask
from llmdsim.reply.reply import Reply, TextReply
from llmdsim.reply.stopping import Ending, find_ending, stopped
from llmdsim.tokenization import Layout
from tests.reply.asks import ask, author, requested


def ending(pieces: list[str], ids: list[int] | None = None, **wanted: Any) -> Ending | None:
    ends = list(accumulate(map(len, pieces), initial=0))
    return find_ending("".join(pieces), ends, ids or list(range(len(pieces))), ask(**wanted))


@pytest.mark.parametrize(
    ("pieces", "stop", "expected"),
    [
        (["ab", "cd", "ef"], ("x",), None),
        (["ab", "cd", "ef"], ("c",), (2, 2, "c")),
        (["ab", "cd", "ef"], ("bc",), (2, 1, "bc")),  # across tokens
        (["ab", "cd", "ef"], ("a",), (1, 0, "a")),  # at the very start
        (["ab", "cd", "ef"], ("f",), (3, 5, "f")),  # at the very end
        (["ab", "cd", "ef"], ("abcdef",), (3, 0, "abcdef")),
        (["ab", "cd", "ef"], ("e", "c"), (2, 2, "c")),  # the earliest, not the first listed
        (["ab", "cd", "ef"], ("abcde", "c"), (2, 2, "c")),  # earliest by its end, not its start
        (["ab", "cd", "ef"], ("d", "cd"), (2, 3, "d")),  # both end there: the first listed
        (["ab", "cd", "ef"], ("cd", "d"), (2, 2, "cd")),
        (["aaaa"], ("aa",), (1, 0, "aa")),
        (["ab", "", "cd"], ("b",), (1, 1, "b")),  # a token without text completes nothing
        (["ab", "", "cd"], ("bc",), (3, 1, "bc")),
        ([], ("a",), None),
    ],
)
def test_stop_strings(pieces: list[str], stop: tuple[str, ...], expected: Any) -> None:
    assert ending(pieces, stop=stop) == expected
    if expected is not None:
        total, shown, reason = expected
        kept = ending(pieces, stop=stop, include_stop=True)
        assert kept == (total, shown + len(reason), reason)


@pytest.mark.parametrize(
    ("min_tokens", "expected"),
    [
        (0, (1, 0, "a")),
        (1, (2, 2, "a")),
        (2, (3, 4, "a")),
        (3, None),
        (9, None),
    ],
)
def test_min_tokens_suppresses_stop_strings_that_end_inside_them(min_tokens: int, expected: Any) -> None:
    assert ending(["ab", "ab", "ab"], stop=("a",), min_tokens=min_tokens) == expected


def test_a_stop_string_may_begin_inside_min_tokens() -> None:
    assert ending(["ab", "cd"], stop=("bc",), min_tokens=1) == (2, 1, "bc")
    assert ending(["ab", "ab"], stop=("ab",), min_tokens=1) == (2, 2, "ab")


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, (2, 2, 7)),
        ({"include_stop": True}, (2, 4, 7)),
        ({"min_tokens": 1}, (2, 2, 7)),
        ({"min_tokens": 2}, (4, 6, 7)),
        ({"min_tokens": 4}, None),
        ({"stop": ("c",)}, (2, 2, 7)),  # the stop token's text is not looked at
        ({"stop": ("c",), "include_stop": True}, (2, 3, "c")),  # unless it is shown
        ({"stop": ("b",)}, (1, 1, "b")),
        ({"stop": ("e",)}, (2, 2, 7)),  # later
    ],
)
def test_stop_token_ids(wanted: dict[str, Any], expected: Any) -> None:
    found = ending(["ab", "cd", "ef", "gh"], [5, 7, 6, 7], stop_token_ids=frozenset([7, 99]), **wanted)
    assert found == expected


def as_read(pieces: list[str], ids: list[int], wanted: Ask) -> tuple[int, str, str | int | None]:
    """Tokens, shown text and reason, by appending one token at a time and looking at every character."""
    text = ""
    for number, (piece, token_id) in enumerate(zip(pieces, ids, strict=True), start=1):
        stopped = token_id in wanted.stop_token_ids and number > wanted.min_tokens
        before = text
        if not stopped or wanted.include_stop:
            text += piece
        if number > wanted.min_tokens:
            for end in range(len(before) + 1, len(text) + 1):
                for stop in wanted.stop:
                    if text[:end].endswith(stop):
                        return number, text[: end if wanted.include_stop else end - len(stop)], stop
        if stopped:
            return number, text, token_id
    return len(pieces), text, None


def revealed_in(reply: Reply, cuts: list[int]) -> list[str]:
    """The reply's text in chunks that end after these steps."""
    bounds = [0, *sorted({cut for cut in cuts if cut < reply.total}), reply.total]
    return ["".join(reply.texts(start, stop)) for start, stop in pairwise(bounds)]


# A small alphabet, so that stops occur, overlap and straddle tokens; "é" is two bytes, "\"" two in JSON.
LETTERS = 'abé"'
PIECES = st.lists(st.text(LETTERS, max_size=4), min_size=1, max_size=12)
STOPS = st.lists(st.text(LETTERS, min_size=1, max_size=4), max_size=3).map(tuple)


@given(
    pieces=PIECES,
    stop=STOPS,
    stop_ids=st.frozensets(st.integers(0, 20), max_size=3),
    min_tokens=st.integers(0, 13),
    include=st.booleans(),
    cuts=st.lists(st.integers(1, 12), max_size=5),
)
def test_replies_stop_as_if_read_token_by_token(
    pieces: list[str],
    stop: tuple[str, ...],
    stop_ids: frozenset[int],
    min_tokens: int,
    include: bool,
    cuts: list[int],
) -> None:
    ids = [index * 7 % 20 for index in range(len(pieces))]
    wanted = ask(stop=stop, stop_token_ids=stop_ids, min_tokens=min_tokens, include_stop=include)
    total, shown, reason = as_read(pieces, ids, wanted)
    reply = TextReply(*stopped(Layout.of(pieces, ids), "length", wanted))

    assert (reply.total, reply.text(), reply.stop_reason) == (total, shown, reason)
    assert reply.finish_reason == ("length" if reason is None else "stop")
    assert reply.ids(0, total) == ids[:total]
    assert reply.token_texts(0, total) == pieces[:total]
    # Every way of cutting a stream reveals the same, one step at a time included.
    assert "".join(revealed_in(reply, cuts)) == shown
    steps = [reply.texts(step, step + 1) for step in range(total)]
    assert [text for [text] in steps] == reply.texts(0, total)
    encoded = [reply.pieces(step, step + 1) for step in range(total)]
    assert [json.loads(b'"%b"' % piece) for [piece] in encoded] == reply.texts(0, total)
    assert "".join(reply.texts(0, total)) == shown
    # And what it has revealed before the end can no longer become part of a stop string.
    withheld = max(map(len, stop)) - 1 if stop and not include else 0
    for step in range(total):
        before = "".join(reply.texts(0, step))
        assert shown.startswith(before)
        assert len(before) == max(0, len("".join(pieces[:step])) - withheld)


@given(data=st.data(), seed=st.integers(0, 1000), include=st.booleans(), min_tokens=st.integers(0, 60))
def test_random_replies_never_show_a_stop(
    data: st.DataObject, seed: int, include: bool, min_tokens: int
) -> None:
    writer = author()
    plain = writer.write(requested(60, ignore_eos=True, seed=seed)).text()
    # Pieces of the text itself, so that there is something to find, and strings that are hardly in it.
    starts = st.integers(0, len(plain) - 1)
    slices = st.tuples(starts, st.integers(1, 12)).map(lambda place: plain[place[0] : sum(place)])
    stop = tuple(data.draw(st.lists(slices | st.text(min_size=1, max_size=3), min_size=1, max_size=4)))
    wanted = requested(60, ignore_eos=True, seed=seed, stop=stop, include_stop=include, min_tokens=min_tokens)
    reply = writer.write(wanted)
    shown = reply.text()
    assert plain.startswith(shown)
    if reply.stop_reason is None:
        assert (shown, reply.finish_reason, reply.total) == (plain, "length", 60)
    else:
        assert reply.finish_reason == "stop"
        assert reply.stop_reason in stop
        assert plain[len(shown) :].startswith(reply.stop_reason) or include
        assert not include or shown.endswith(reply.stop_reason)
    if min_tokens == 0 and not include:
        assert not any(text in shown for text in stop)
    assert "".join(reply.texts(step, step + 1)[0] for step in range(reply.total)) == shown
    assert b"".join(reply.pieces(0, reply.total)).decode() == reply.json_text().decode()


def test_held_back_text_arrives_with_the_last_step() -> None:
    reply = author(mode="echo").write(ask("ab cd ef", stop=("12345",)))
    assert isinstance(reply, TextReply)
    assert reply.texts(0, 3) == ["", "ab", " cd ef"]
    assert reply.token_texts(0, 3) == ["ab ", "cd ", "ef"]


def test_include_stop_holds_nothing_back() -> None:
    reply = author(mode="echo").write(ask("ab cd ef gh", stop=("e",), include_stop=True))
    assert reply.texts(0, 3) == ["ab ", "cd ", "e"]
    assert (reply.total, reply.stop_reason) == (3, "e")
