"""What is said, by mode, length, seed and stops."""

import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdsim.reply.length import readme_bucket
from llmdsim.tokenization import Prompt
from tests.reply.asks import TOKENIZER, ask, author, requested

# ---- random mode


@pytest.mark.parametrize("most", [1, 2, 6, 32, 121, 3000])
def test_ignore_eos_runs_to_the_maximum(most: int) -> None:
    reply = author().write(requested(most, ignore_eos=True))
    assert (reply.total, reply.finish_reason, reply.stop_reason) == (most, "length", None)
    assert TOKENIZER.count(reply.text()) == most


@given(most=st.integers(1, 300), min_tokens=st.integers(0, 400), asked=st.booleans(), peer=st.booleans())
def test_length_and_finish_reason_agree(most: int, min_tokens: int, asked: bool, peer: bool) -> None:
    writer = author(length_histogram="peer" if peer else "readme")
    for _ in range(10):
        wanted = ask(max_tokens=most, requested_max=most if asked else None, min_tokens=min_tokens)
        reply = writer.write(wanted)
        assert min(max(1, min_tokens), most) <= reply.total <= most
        assert reply.finish_reason == ("length" if reply.total == most else "stop")
        assert reply.stop_reason is None
        assert len(reply.ids(0, most)) == len(reply.pieces(0, most)) == reply.total
        assert TOKENIZER.count(reply.text()) == reply.total


def test_requested_maximum_goes_by_the_histogram_chosen() -> None:
    def at_maximum(histogram: str) -> float:
        writer = author(length_histogram=histogram)
        return sum(writer.write(requested(200)).total == 200 for _ in range(4000)) / 4000

    assert at_maximum("peer") == pytest.approx(0.15, abs=0.03)
    assert at_maximum("readme") == pytest.approx(0.15 / 20, abs=0.01)


def test_without_a_requested_maximum_lengths_are_gaussian() -> None:
    writer = author()
    lengths = [writer.write(ask(max_tokens=1000)).total for _ in range(4000)]
    assert sum(lengths) / 4000 == pytest.approx(41.3, abs=2)
    assert max(lengths) < 140
    # With one, a twentieth falls into the wide fourth bucket and a quarter above it.
    low, _ = readme_bucket(1000, 4)
    above = sum(writer.write(requested(1000)).total >= low for _ in range(4000)) / 4000
    assert above == pytest.approx(0.25, abs=0.03)


def test_replies_vary() -> None:
    writer = author(seed=None)
    assert len({writer.write(requested(50, ignore_eos=True)).text() for _ in range(20)}) > 15


def test_stop_strings_end_random_replies() -> None:
    reply = author().write(requested(500, ignore_eos=True, stop=(". ",)))
    assert (reply.finish_reason, reply.stop_reason) == ("stop", ". ")
    assert "." not in reply.text()
    assert reply.total < 100


def test_stop_token_ids_end_random_replies() -> None:
    (full_stop,) = TOKENIZER.encode(". ")
    reply = author().write(requested(500, ignore_eos=True, stop_token_ids=frozenset([full_stop])))
    assert (reply.finish_reason, reply.stop_reason) == ("stop", full_stop)
    assert reply.ids(0, 500)[-1] == full_stop
    assert reply.token_texts(0, 500)[-1] == ". "
    assert reply.texts(0, 500)[-1] == ""
    assert not reply.text().endswith(". ")


# ---- seeds


def test_a_request_seed_gives_the_same_reply_whatever_came_before() -> None:
    wanted = requested(200, seed=7)
    first = author(seed=1).write(wanted)
    other = author(seed=2)
    other.write(requested(10))
    again = other.write(wanted)
    assert (first.total, first.text()) == (again.total, again.text())


def test_seeds_and_prompts_make_a_difference() -> None:
    def text(seed: int, prompt: Prompt) -> str:
        return author().write(requested(60, ignore_eos=True, seed=seed, prompt=prompt)).text()

    seeds = [0, 1, -1, 2, -2, 2**32, 2**63 - 1, -(2**63)]
    prompts = [
        Prompt(TOKENIZER, "a"),
        Prompt(TOKENIZER, "b"),
        Prompt.of_ids(TOKENIZER, [1, 2]),
        Prompt.of_ids(TOKENIZER, [12]),
    ]
    asked = [(seed, prompt) for seed in seeds for prompt in prompts]
    texts = [text(seed, prompt) for seed, prompt in asked]
    assert texts == [text(seed, prompt) for seed, prompt in asked]
    assert len(set(texts)) == len(asked)


def test_a_seeded_ask_leaves_the_others_alone() -> None:
    plain, mixed = author(seed=3), author(seed=3)
    expected = [plain.write(requested(40)).text() for _ in range(3)]
    got = []
    for _ in range(3):
        mixed.write(requested(40, seed=9))
        got.append(mixed.write(requested(40)).text())
    assert got == expected


def test_a_server_seed_repeats_the_same_sequence() -> None:
    def texts(seed: int | None) -> list[str]:
        writer = author(seed=seed)
        return [writer.write(requested(60)).text() for _ in range(5)]

    assert texts(4) == texts(4)
    assert texts(4) != texts(5)
    assert texts(None) != texts(None)


def test_seeds_hold_in_any_process() -> None:
    program = (
        "from tests.reply.asks import author, requested\n"
        "print(author(seed=4).write(requested(60)).text(), author().write(requested(60, seed=4)).text())"
    )

    def run(hash_seed: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    assert run("1") == run("2") != ""


# ---- echo mode

TEXTS = [
    "hello",
    "  leading and trailing  ",
    "line one\nline two\r\n\ttabbed",
    "héllo wörld — x",
    "日本語のテキスト、です。",
    "नमस्ते سلام ภาษาไทย 한국어",
    "👍🏽 👨\u200d👩\u200d👧 🇩🇪",
    '"quoted" \\ back\x00slash `tick|`',
    " ",
]


@pytest.mark.parametrize("text", TEXTS)
def test_echo_is_exact(text: str) -> None:
    reply = author(mode="echo").write(ask(text))
    assert reply.text() == text
    assert "".join(reply.texts(0, reply.total)) == text
    assert reply.total == TOKENIZER.count(text)
    assert reply.ids(0, reply.total) == TOKENIZER.encode(text)
    assert (reply.finish_reason, reply.stop_reason) == ("stop", None)


@given(st.text(st.characters()))
def test_any_text_is_echoed_and_can_be_sent(text: str) -> None:
    reply = author(mode="echo").write(ask("p", max_tokens=10**6, echoed=Prompt(TOKENIZER, text)))
    assert reply.json_text().decode() == b"".join(reply.pieces(0, reply.total)).decode()
    if not any("\ud800" <= character <= "\udfff" for character in text):
        assert reply.text() == text


def test_lone_surrogates_are_replaced() -> None:
    assert author(mode="echo").write(ask("p", echoed=Prompt(TOKENIZER, "a\ud800 b"))).text() == "a\ufffd b"


@pytest.mark.parametrize(
    ("max_tokens", "requested_max", "text", "finish_reason"),
    [
        (3, 3, "one two three ", "length"),
        (5, 5, "one two three four five", "length"),  # just as many as allowed
        (6, 6, "one two three four five", "stop"),
        (100, None, "one two three four five", "stop"),  # nothing requested: only the room bounds it
        (2, None, "one two ", "length"),
        (2, 50, "one two ", "length"),
    ],
)
def test_echo_is_cut(max_tokens: int, requested_max: int | None, text: str, finish_reason: str) -> None:
    wanted = ask("one two three four five", max_tokens, requested_max)
    reply = author(mode="echo").write(wanted)
    assert (reply.text(), reply.finish_reason) == (text, finish_reason)
    assert reply.total == TOKENIZER.count(text)
    whole = author(mode="echo", echo_ignores_max_tokens=True).write(wanted)
    assert (whole.text(), whole.finish_reason) == ("one two three four five", "stop")


@pytest.mark.parametrize("wanted", [{"ignore_eos": True}, {"min_tokens": 50}])
def test_echo_adds_nothing(wanted: dict[str, Any]) -> None:
    reply = author(mode="echo").write(ask("one two", **wanted))
    assert (reply.text(), reply.total, reply.finish_reason) == ("one two", 2, "stop")


def test_an_empty_echo_is_an_empty_reply() -> None:
    reply = author(mode="echo").write(
        ask("prompt", echoed=Prompt(TOKENIZER, ""), stop=("x",), stop_token_ids=frozenset([1]))
    )
    assert (reply.total, reply.finish_reason, reply.stop_reason, reply.text()) == (0, "stop", None, "")


def test_echo_stops_at_a_stop_string() -> None:
    writer = author(mode="echo")
    reply = writer.write(ask("please STOP here", stop=("STOP",)))
    assert (reply.text(), reply.total, reply.finish_reason, reply.stop_reason) == (
        "please ",
        2,
        "stop",
        "STOP",
    )
    kept = writer.write(ask("please STOP here", stop=("STOP",), include_stop=True))
    assert (kept.text(), kept.stop_reason) == ("please STOP", "STOP")


def test_a_stop_beats_the_maximum_in_the_same_token() -> None:
    reply = author(mode="echo").write(ask("please STOP here", 2, 2, stop=("STOP",)))
    assert (reply.total, reply.finish_reason, reply.stop_reason) == (2, "stop", "STOP")
    before = author(mode="echo").write(ask("please STOP here", 1, 1, stop=("STOP",)))
    assert (before.text(), before.finish_reason, before.stop_reason) == ("please ", "length", None)


def test_prompts_of_ids_are_echoed_as_their_pieces() -> None:
    ids = [*TOKENIZER.encode("known words "), 11, 12]
    reply = author(mode="echo").write(ask(prompt=Prompt.of_ids(TOKENIZER, ids)))
    assert reply.text() == "known words 11,12"
    assert reply.ids(0, 9) == ids
    assert (reply.total, reply.finish_reason) == (4, "stop")


@given(ids=st.lists(st.sampled_from([*TOKENIZER.encode("known words "), 11, 12]), min_size=1, max_size=9))
def test_echoed_ids_read_the_same_whether_laid_out_or_not(ids: list[int]) -> None:
    most = len(ids) // 2 + 1
    lazy = author(mode="echo").write(ask(prompt=Prompt.of_ids(TOKENIZER, ids), max_tokens=most))
    # No id of the vocabulary: a stop that is never met.
    laid_out = author(mode="echo").write(
        ask(prompt=Prompt.of_ids(TOKENIZER, ids), max_tokens=most, stop_token_ids=frozenset([-1]))
    )
    assert type(lazy) is not type(laid_out)
    assert lazy.total == laid_out.total
    assert lazy.finish_reason == laid_out.finish_reason
    for start, stop in [(0, 1), (0, most), (1, most + 3), (most - 1, most)]:
        for read in ("ids", "texts", "pieces", "token_texts", "packed", "deltas"):
            assert getattr(lazy, read)(start, stop) == getattr(laid_out, read)(start, stop)
    assert lazy.text() == laid_out.text()
    assert lazy.json_text() == laid_out.json_text()
