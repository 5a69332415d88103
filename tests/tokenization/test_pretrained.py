"""Tokenizers of the library: the same promises as of the built-in one, whatever their kind."""

from __future__ import annotations

import functools
import random
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, pre_tokenizers

from llmdsim.tokenization import Prompt, pretrained, recent, well_formed
from llmdsim.tokenization.loading import load
from llmdsim.tokenization.pretrained import PretrainedTokenizer
from llmdsim.tokenization.steps import Step, at_once
from tests.tokenization.test_builtin import ANY_TEXT, MIXED_TEXT
from tests.tokenization.trained import KINDS, byte_level, trained

PIECES = st.sampled_from(
    [
        "The ferry",
        " ",
        "  ",
        "\n\n",
        "世",
        "界",
        "😀",
        "👩\u200d🚀",
        "e\u0301",
        "é",
        "<s>",
        "</s>",
        "[SEP]",
        "\ufffd",
        "İ",
    ]
)
TEXTS = st.one_of(ANY_TEXT, MIXED_TEXT, st.lists(PIECES, max_size=20).map("".join))
EXACT = ["byte level", "byte fallback"]


@functools.cache
def qwen(folder: Path) -> PretrainedTokenizer:
    tokenizer = load(str(folder)).tokenizer
    assert isinstance(tokenizer, PretrainedTokenizer)
    return tokenizer


def check(tokenizer: PretrainedTokenizer, text: str) -> None:
    ids, pieces = tokenizer.split(text)
    assert tokenizer.encode(text) == ids
    assert tokenizer.count(text) == len(ids) == len(pieces)
    if ids:
        assert "".join(pieces) == well_formed(text)
    assert all(0 <= token_id < tokenizer.vocab_size for token_id in ids)


@given(kind=st.sampled_from([*KINDS]), text=TEXTS)
def test_pieces_join_to_the_text(kind: str, text: str) -> None:
    check(trained(kind), text)


@given(kind=st.sampled_from([*EXACT]), text=TEXTS)
def test_nothing_of_a_text_is_without_a_token(kind: str, text: str) -> None:
    assert "".join(trained(kind).split(text)[1]) == well_formed(text)


@given(kind=st.sampled_from([*KINDS]), text=TEXTS)
def test_ids_decode_as_the_library_decodes_them_at_once(kind: str, text: str) -> None:
    tokenizer = trained(kind)
    ids = tokenizer.encode(text)
    texts = tokenizer.decode(ids)
    assert len(texts) == len(ids)
    whole = tokenizer._tokenizer.decode(ids, skip_special_tokens=False)
    # Where a text has this mark itself, it looks like bytes that make up no character.
    if "\ufffd" not in whole:
        assert "".join(texts) == whole


@given(kind=st.sampled_from([*EXACT]), text=st.text(st.sampled_from("Thefry .世界😀👍é"), max_size=30))
def test_ids_round_trip(kind: str, text: str) -> None:
    tokenizer = trained(kind)
    decoded = "".join(tokenizer.decode(tokenizer.encode(text)))
    # A blank at the beginning is what this kind decodes its own mark to.
    assert decoded == (text.removeprefix(" ") if kind == "byte fallback" else text)


@given(kind=st.sampled_from([*EXACT]), text=TEXTS)
def test_no_piece_has_part_of_a_character(kind: str, text: str) -> None:
    tokenizer = trained(kind)
    text = well_formed(text)
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in tokenizer.split(text)[1])
        assert not any("\ufffd" in piece for piece in tokenizer.decode(tokenizer.encode(text)))


@given(kind=st.sampled_from([*KINDS]), ids=st.lists(st.integers(0, 10**6), max_size=40))
def test_any_ids_have_a_text_each(kind: str, ids: list[int]) -> None:
    texts = trained(kind).decode(ids)
    assert len(texts) == len(ids)
    "".join(texts).encode()


def steps_of(work: Callable[[], object]) -> list[Step]:
    found: list[Step] = []

    def run(steps: object) -> None:
        for step in steps:  # type: ignore[attr-defined]
            found.append(step)
            if step is not None:
                step()

    run(work())
    return found


@given(kind=st.sampled_from([*KINDS]), text=TEXTS, special=st.booleans())
def test_a_prompt_made_in_steps_is_the_one_made_at_once(kind: str, text: str, special: bool) -> None:
    tokenizer = trained(kind)
    whole = Prompt(tokenizer, text, special=special)
    with patch.object(pretrained, "_PART", 3), patch.object(PretrainedTokenizer, "part", 3):
        stepwise = Prompt(tokenizer, text, special=special)
        at_once(stepwise.count())
        assert len(stepwise) == len(whole)
        at_once(stepwise.tokenize())
        assert stepwise.tokens.tolist() == whole.ids
        at_once(stepwise.lay_out())
    assert stepwise.layout == whole.layout
    assert stepwise.texts == whole.texts
    assert "".join(whole.texts) == whole.layout.text
    assert len(whole.texts) == len(whole)
    assert Prompt(tokenizer, text, special=special).packed == whole.tokens.tobytes()


def test_long_texts_are_tokenized_in_a_thread() -> None:
    text = "The ferry leaves. " * 400
    for name in ("count", "tokenize", "lay_out"):
        prompt = Prompt(PretrainedTokenizer(byte_level()), text)
        assert prompt.long
        steps = steps_of(getattr(prompt, name))
        assert len(steps) == 1
        assert callable(steps[0])
        assert steps_of(getattr(prompt, name)) == []


def test_who_has_counted_a_long_text_has_its_ids() -> None:
    prompt = Prompt(PretrainedTokenizer(byte_level()), "The ferry leaves. " * 400)
    assert len(steps_of(prompt.count)) == 1
    assert steps_of(prompt.tokenize) == []
    assert len(prompt.tokens) == len(prompt)


def test_short_ones_are_at_once() -> None:
    prompt = Prompt(trained("byte level"), "The ferry leaves.")
    assert not prompt.long
    assert steps_of(prompt.count) == []
    assert steps_of(prompt.tokenize) == []


def test_several_threads_get_what_one_gets() -> None:
    tokenizer = trained("byte level")
    texts = [f"The {number} ferries leave at {number * 7}. " * 300 for number in range(6)]
    found: dict[str, list[int]] = {}

    def run(text: str) -> None:
        found[text] = at_once(tokenizer.encode_in_steps(text)).tolist()

    threads = [threading.Thread(target=run, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {text: tokenizer._tokenizer.encode(text, add_special_tokens=False).ids for text in texts}


def test_a_text_that_cannot_fit_is_not_tokenized_to_its_end() -> None:
    tokenizer = trained("byte level")
    text = "x" * 2_000_000
    with patch.object(tokenizer, "_tokenizer", wraps=tokenizer._tokenizer) as library:
        assert at_once(tokenizer.count_in_steps(text, most=1000)) > 1000
        seen = [len(call.args[0][0]) for call in library.encode_batch_fast.call_args_list]
    assert sum(seen) < 100_000
    assert at_once(tokenizer.count_in_steps("x" * 70_000, most=100_000)) == tokenizer.count("x" * 70_000)


def test_a_text_of_long_tokens_is_counted_to_its_end_all_the_same() -> None:
    library = byte_level()
    library.add_tokens(["=" * 100])
    tokenizer = PretrainedTokenizer(library)
    assert at_once(tokenizer.count_in_steps("=" * 100_000, most=1000)) == 1000


def test_special_tokens_around_a_text_have_no_text() -> None:
    tokenizer = trained("word piece")
    assert tokenizer.around == ((1,), (2,))
    bare = Prompt(tokenizer, "the ferry")
    prompt = Prompt(tokenizer, "the ferry", special=True)
    assert prompt.ids == [1, *bare.ids, 2]
    assert prompt.tokens.tolist() == prompt.ids
    assert len(prompt) == len(bare) + 2
    assert prompt.texts == ["", *bare.texts, ""]
    assert prompt.text == prompt.layout.text == "the ferry"
    assert prompt.bare.ids == bare.ids
    assert bare.bare is bare
    assert trained("byte level").around == ((0,), ())
    assert trained("byte fallback").around is None


def test_a_long_prompt_has_its_special_tokens_too() -> None:
    tokenizer = trained("word piece")
    text = "the ferry leaves. " * 300
    prompt = Prompt(tokenizer, text, special=True)
    assert prompt.long
    assert len(prompt) == tokenizer.count(text) + 2
    assert (prompt.ids[0], prompt.ids[-1]) == (1, 2)


def test_recent_texts_are_remembered_and_forgotten() -> None:
    tokenizer = PretrainedTokenizer(byte_level())
    with (
        patch.object(recent, "_REMEMBERED", 4000),
        patch.object(tokenizer, "_recent", recent.Recent()),
        patch.object(tokenizer, "_tokenizer", wraps=tokenizer._tokenizer) as library,
    ):
        calls = library.encode_batch_fast
        assert tokenizer.encode("The ferry") == tokenizer.encode("The ferry")
        assert calls.call_count == 1
        for number in range(30):
            tokenizer.count(f"{number} ferries")
            tokenizer.count("The ferry")
        assert calls.call_count == 31
        for number in range(100, 140):
            tokenizer.count(f"{number} ferries")
        tokenizer.count("The ferry")
        assert calls.call_count == 72
        remembered = [*tokenizer._recent._young, *tokenizer._recent._old]
    assert len(remembered) < 45


def test_a_text_that_is_too_much_for_the_library_is_taken_in_halves() -> None:
    whole = trained("byte level")
    library = byte_level()
    # A run of one letter takes it longer than it lets a regular expression take.
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex("(a+)+$"), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer = PretrainedTokenizer(library)
    for text in ("a" * 40 + "b", "The " + "a" * 60 + "b 世界"):
        ids = tokenizer.encode(text)
        assert "".join(tokenizer.decode(ids)) == text
        assert tokenizer.count(text) == len(ids)
        assert at_once(tokenizer.encode_in_steps(text)).tolist() == ids
        found, pieces = tokenizer.split(text)
        assert found == ids
        assert "".join(pieces) == text
    assert tokenizer.encode("The fox") == whole.encode("The fox")


def test_what_the_file_says_of_training_is_left_aside() -> None:
    library = byte_level()
    library.enable_truncation(4)
    library.enable_padding(length=50)
    tokenizer = PretrainedTokenizer(library)
    assert tokenizer.count("The ferry leaves at seven.") == len(
        trained("byte level").encode("The ferry leaves at seven.")
    )


def test_the_vocabulary_is_that_of_the_model_where_that_has_more() -> None:
    library = byte_level()
    size = library.get_vocab_size()
    assert PretrainedTokenizer(library).vocab_size == size
    assert PretrainedTokenizer(library, 1024).vocab_size == 1024
    assert PretrainedTokenizer(library, 10).vocab_size == size
    library.add_tokens(["=" * 77])
    assert PretrainedTokenizer(library).longest_piece == 77


def test_entries_are_those_of_the_vocabulary() -> None:
    tokenizer = trained("byte level")
    ids = tokenizer.encode(" the é")
    entries = tokenizer.entries(ids)
    assert entries is not None
    assert [tokenizer._tokenizer.token_to_id(entry) for entry in entries] == ids
    assert entries[0] == "Ġthe"
    assert tokenizer.entries([10**6]) == [""]


def test_ends_are_in_order_and_at_the_last_character() -> None:
    tokenizer = trained("byte level")
    for text in ("", "😀", "a😀b", "e\u0301 x"):
        ends = at_once(tokenizer.split_in_steps(text)).ends
        assert all(start <= end for start, end in pairwise(ends))
        assert ends[-1] == len(text)


@settings(max_examples=200)
@given(text=TEXTS)
def test_qwen3_keeps_all_of_it(qwen3: Path, text: str) -> None:
    tokenizer = qwen(qwen3)
    check(tokenizer, text)
    assert "".join(tokenizer.split(text)[1]) == well_formed(text)


def test_qwen3s_ids(qwen3: Path) -> None:
    tokenizer = qwen(qwen3)
    assert tokenizer.encode("Hello world!") == [9707, 1879, 0]
    assert tokenizer.split("Hello 世𠀀!") == (
        [9707, 220, 99244, 172, 63219, 222, 0],
        ["Hello", " ", "世", "", "", "𠀀", "!"],
    )
    assert tokenizer.around is None
    assert tokenizer.vocab_size == 151669
    assert tokenizer.longest_piece == 128
    assert tokenizer.added[151645] == "<|im_end|>"
    assert tokenizer.encode("<|im_end|>") == [151645]
    assert 151645 in tokenizer.special


def test_qwen3s_random_ids_have_texts(qwen3: Path) -> None:
    tokenizer = qwen(qwen3)
    library: Tokenizer = tokenizer._tokenizer
    source = random.Random(7)
    for _ in range(200):
        ids = [source.randrange(tokenizer.vocab_size if source.random() < 0.5 else 256) for _ in range(30)]
        decoded = "".join(tokenizer.decode(ids))
        # Where bytes make up no characters, how many marks stand for them is nobody's business.
        assert decoded.replace("\ufffd", "") == library.decode(ids, skip_special_tokens=False).replace(
            "\ufffd", ""
        )
