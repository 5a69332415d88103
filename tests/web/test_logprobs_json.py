"""Log probabilities as JSON, shape by shape."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdsim.reply.logprobs import candidates
from llmdsim.tokenization import BuiltinTokenizer, Prompt
from llmdsim.web.logprobs import (
    MOST_ALTERNATIVES,
    ChatLogprobs,
    TextLogprobs,
    prompt_logprobs,
    token_text,
)

IDS = [11, 12, 13, 14]
TEXTS = ["Hi", " é", "😀", "."]


def near(value: float) -> Any:
    return pytest.approx(value, abs=1e-9)


# --- chat


def test_a_chats_entries_are_the_tokens_with_their_bytes() -> None:
    content = json.loads(ChatLogprobs(0, False, 2**32).render(IDS, TEXTS, 0))["content"]
    assert [entry["token"] for entry in content] == TEXTS
    assert [bytes(entry["bytes"]).decode() for entry in content] == TEXTS
    assert [entry["logprob"] for entry in content] == [near(-1.0), near(-1.1), near(-1.2), near(-1.0)]
    assert [entry["top_logprobs"] for entry in content] == [[]] * 4


@pytest.mark.parametrize("asked", [1, 2, 5])
def test_a_chats_alternatives_begin_with_the_token(asked: int) -> None:
    for entry in json.loads(ChatLogprobs(asked, False, 2**32).render(IDS, TEXTS, 0))["content"]:
        top = entry["top_logprobs"]
        assert len(top) == asked
        assert top[0] == {key: entry[key] for key in ("token", "logprob", "bytes")}
        for rank, alternative in enumerate(top):
            assert alternative["logprob"] == near(entry["logprob"] - 0.5 * rank)
            assert bytes(alternative["bytes"]).decode() == alternative["token"]
        assert len({alternative["token"] for alternative in top}) == asked


def test_a_chats_tokens_as_ids_keep_the_bytes_of_their_text() -> None:
    content = json.loads(ChatLogprobs(2, True, 2**32).render(IDS, TEXTS, 0))["content"]
    assert [entry["token"] for entry in content] == [f"token_id:{i}" for i in IDS]
    assert [bytes(entry["bytes"]).decode() for entry in content] == TEXTS
    for entry, token_id, text in zip(content, IDS, TEXTS, strict=True):
        first, second = entry["top_logprobs"]
        assert first["token"] == f"token_id:{token_id}"
        assert second["token"] == f"token_id:{candidates(token_id, text, 0, 1)[1].id}"
        # Of alternatives, what is shown has the bytes.
        assert bytes(second["bytes"]).decode() == second["token"]


@pytest.mark.parametrize("shape", [ChatLogprobs, TextLogprobs])
def test_no_tokens_are_an_empty_object(shape: type[Any]) -> None:
    found = json.loads(shape(2, False, 2**32).render([], [], 0))
    assert all(value == [] for value in found.values())


@given(st.lists(st.text(max_size=5), max_size=12), st.data())
def test_pieces_of_any_size_say_what_the_whole_says(texts: list[str], data: st.DataObject) -> None:
    ids = list(range(len(texts)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(texts)), max_size=4)))
    for make, keys in (
        (lambda: ChatLogprobs(2, False, 2**32), ["content"]),
        (
            lambda: TextLogprobs(2, False, 2**32),
            ["text_offset", "token_logprobs", "tokens", "top_logprobs"],
        ),
    ):
        whole = json.loads(make().render(ids, texts, 0))
        shape, joined, start = make(), {key: [] for key in keys}, 0  # type: ignore[var-annotated]
        for stop in [*cuts, len(texts)]:
            piece = json.loads(shape.render(ids[start:stop], texts[start:stop], start))
            for key in keys:
                joined[key] += piece[key]
            start = stop
        assert joined == whole


# --- text


def test_a_texts_lists_are_parallel_and_offsets_run_on_in_characters() -> None:
    shape = TextLogprobs(1, False, 2**32)
    first = json.loads(shape.render(IDS[:2], TEXTS[:2], 0))
    second = json.loads(shape.render(IDS[2:], TEXTS[2:], 2))
    assert list(first) == ["text_offset", "token_logprobs", "tokens", "top_logprobs"]
    assert first["text_offset"] + second["text_offset"] == [0, 2, 4, 5]
    assert first["tokens"] + second["tokens"] == TEXTS
    assert [near(-1.0), near(-1.1), near(-1.2), near(-1.0)] == (
        first["token_logprobs"] + second["token_logprobs"]
    )


@pytest.mark.parametrize(("asked", "shown"), [(0, 1), (1, 1), (2, 2), (5, 5)])
def test_a_texts_alternatives_have_the_token_said(asked: int, shown: int) -> None:
    found = json.loads(TextLogprobs(asked, False, 2**32).render(IDS, TEXTS, 0))
    for token, value, top in zip(
        found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True
    ):
        assert len(top) == shown
        assert top[token] == value == max(top.values())


def test_a_texts_tokens_as_ids_are_counted_as_shown() -> None:
    found = json.loads(TextLogprobs(2, True, 2**32).render([7, 88], ["a", "b"], 0))
    assert found["tokens"] == ["token_id:7", "token_id:88"]
    # As in vLLM: the offsets are those of the texts in `tokens`.
    assert found["text_offset"] == [0, len("token_id:7")]
    assert all(key.startswith("token_id:") for top in found["top_logprobs"] for key in top)


def test_an_echo_covers_the_prompt_once_and_its_first_token_has_none() -> None:
    shape = TextLogprobs(1, False, 2**32)
    shape.echo(Prompt(BuiltinTokenizer(), "x yy z"))
    first = json.loads(shape.render(IDS[:1], TEXTS[:1], 0))
    assert first["tokens"] == ["x ", "yy ", "z", "Hi"]
    assert first["text_offset"] == [0, 2, 5, 6]
    assert (first["token_logprobs"][0], first["top_logprobs"][0]) == (None, None)
    # Each by its own position: in the prompt, then among what is generated.
    assert first["token_logprobs"][1:] == [near(-1.1), near(-1.2), near(-1.0)]
    second = json.loads(shape.render(IDS[1:], TEXTS[1:], 1))
    assert second["tokens"] == TEXTS[1:]
    assert second["text_offset"] == [8, 10, 11]
    assert None not in second["token_logprobs"]


def test_an_echo_of_the_prompt_alone() -> None:
    shape = TextLogprobs(1, False, 2**32)
    shape.echo(Prompt(BuiltinTokenizer(), "x y"))
    found = json.loads(shape.render([], [], 0))
    assert found["tokens"] == ["x ", "y"]
    assert found["token_logprobs"] == [None, near(-1.1)]


# --- prompts


@pytest.mark.parametrize(("asked", "shown"), [(0, 1), (1, 1), (3, 3)])
def test_a_prompts_tokens_are_told_by_id_with_their_ranks(asked: int, shown: int) -> None:
    first, *rest = json.loads(prompt_logprobs(IDS, TEXTS, asked, 2**32))
    assert first is None
    for position, entries in enumerate(rest, start=1):
        assert len(entries) == shown
        assert next(iter(entries)) == str(IDS[position])
        assert entries[str(IDS[position])] == {
            "logprob": near(-1.0 - 0.1 * (position % 3)),
            "rank": 1,
            "decoded_token": TEXTS[position],
        }
        assert [entry["rank"] for entry in entries.values()] == list(range(1, shown + 1))
        values = [entry["logprob"] for entry in entries.values()]
        assert values == sorted(values, reverse=True)


@pytest.mark.parametrize(("ids", "texts"), [([], []), ([5], ["x"])])
def test_a_prompt_without_probabilities(ids: list[int], texts: list[str]) -> None:
    assert json.loads(prompt_logprobs(ids, texts, 3, 2**32)) == [None] * len(ids)


@pytest.mark.parametrize("asked", [MOST_ALTERNATIVES, MOST_ALTERNATIVES + 1, 2**32])
def test_the_whole_vocabulary_is_cut_to_a_bearable_part(asked: int) -> None:
    (chat,) = json.loads(ChatLogprobs(asked, False, 2**32).render([1], ["x"], 0))["content"]
    assert len(chat["top_logprobs"]) == MOST_ALTERNATIVES
    assert len(json.loads(TextLogprobs(asked, False, 2**32).render([1], ["x"], 0))["top_logprobs"][0]) == (
        MOST_ALTERNATIVES
    )
    assert len(json.loads(prompt_logprobs([1, 2], ["x", "y"], asked, 2**32))[1]) == MOST_ALTERNATIVES


def test_a_token_as_shown() -> None:
    assert (token_text(5, "x", False), token_text(5, "x", True)) == ("x", "token_id:5")
