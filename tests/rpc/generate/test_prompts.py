"""Prompts: ids as they are, text by way of the tokenizer, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmdsim.tokenization.builtin import BuiltinTokenizer
from llmdsim.wire.grpc import Code
from tests.reply.dataset.files import TOKENIZER
from tests.rpc.client import RpcClient
from tests.rpc.generate.asking import IDS, begin, joined, only, refusal, request, stream, whole
from tests.tokenization.trained import trained
from tests.web.generate.asking import answer
from tests.web.rig import PassRig, RankRig
from tests.web.test_stored import SAID, with_dataset

LONG = {"max_tokens": 3, "ignore_eos": True}
ECHO = ("--mode", "echo")


def test_ids_are_the_prompt() -> None:
    found = only(RankRig(*ECHO))
    assert list(found.output_ids) == IDS
    assert (found.prompt_tokens, found.completion_tokens) == (5, 5)


def test_text_is_tokenized() -> None:
    ids = BuiltinTokenizer().encode("some words, and more")
    found = only(RankRig(*ECHO), text="some words, and more")
    assert list(found.output_ids) == ids
    assert found.prompt_tokens == len(ids)


def test_what_a_dataset_says_is_said(tmp_path: Path) -> None:
    rig = with_dataset(RankRig(), tmp_path)
    for fields in ({"text": "question"}, {"tokenized": {"input_ids": TOKENIZER.encode("question")}}):
        assert list(only(rig, **fields).output_ids) == TOKENIZER.encode(SAID)
        assert joined(stream(rig, **fields)) == TOKENIZER.encode(SAID)


def test_special_tokens_around_a_text_are_no_part_of_an_echo() -> None:
    tokenizer = trained("word piece")
    ids = tokenizer.encode("the ferry")
    found = only(RankRig(*ECHO, tokenizer=tokenizer), text="the ferry")
    assert list(found.output_ids) == ids
    assert found.prompt_tokens == len(ids) + 2


def test_a_text_beside_ids_says_nothing() -> None:
    tokenized = {"input_ids": IDS, "original_text": "some words that were longer than these ids"}
    assert only(RankRig(*ECHO), tokenized=tokenized).prompt_tokens == len(IDS)


@pytest.mark.parametrize(
    "fields", [{"tokenized": {}}, {"text": ""}, {"tokenized": {"original_text": "words"}}]
)
def test_an_empty_prompt_is_refused(fields: dict[str, object]) -> None:
    assert refusal(RankRig(), **fields) == "The prompt cannot be empty."


def test_no_prompt_at_all_is_an_empty_one() -> None:
    message = request()
    message.ClearField("tokenized")
    client = RpcClient(RankRig())
    call = client.finish(begin(client, message))
    assert (call.code, call.message) == (Code.INVALID_ARGUMENT, "The prompt cannot be empty.")


def test_ids_are_held_against_the_vocabulary() -> None:
    tokenizer = BuiltinTokenizer()
    tokenizer.vocab_size = 50
    rig = RankRig(tokenizer=tokenizer)
    assert "Token id 55 is out of vocabulary" in refusal(rig)
    assert only(rig, tokenized={"input_ids": [49]}).prompt_tokens == 1


@pytest.mark.parametrize("count", [101, 150_000])
def test_a_prompt_beyond_the_context_is_refused(count: int) -> None:
    rig = RankRig("--max-model-len", "100")
    assert f"has {count} input tokens" in refusal(rig, tokenized={"input_ids": [1] * count})


def test_one_that_fills_the_context_is_too() -> None:
    rig = RankRig("--max-model-len", "100")
    assert "fills the whole context" in refusal(rig, tokenized={"input_ids": [1] * 100})
    assert only(rig, tokenized={"input_ids": [1] * 99}).completion_tokens == 1


def test_a_text_that_cannot_fit_is_refused_unread() -> None:
    rig = RankRig("--max-model-len", "100")
    assert "characters" in refusal(rig, text="x" * 3_000_000)
    assert "input tokens" in refusal(rig, text="x " * 200)


@pytest.mark.parametrize("how", [{"text": "word " * 30_000}, {"tokenized": {"input_ids": [7] * 30_000}}])
def test_a_long_prompt_is_read_in_steps(how: dict[str, object]) -> None:
    rig = PassRig(*ECHO, "--max-model-len", "100000")
    client = RpcClient(rig)
    call = begin(client, request({"max_tokens": 30_000}, **how))
    assert rig.rank.context.turns.busy
    (found,) = client.finish(call, step=0.001).ok()
    assert found.complete.prompt_tokens == len(found.complete.output_ids) == 30_000


def test_one_that_is_cancelled_while_it_is_read_never_starts() -> None:
    rig = PassRig("--max-model-len", "10000000")
    client = RpcClient(rig)
    call = begin(client, request(text="word " * 300_000))
    assert rig.rank.context.turns.busy
    call.cancel()
    rig.turns(3)
    assert not rig.rank.context.turns.busy
    assert rig.rank.engine.idle
    assert rig.rank.stats.prompt_tokens == 0


# --- cutting, of text alone


def test_text_is_cut_from_the_left() -> None:
    ids = BuiltinTokenizer().encode("one two three four")
    rig = RankRig(*ECHO)
    assert list(only(rig, {"truncate_prompt_tokens": 2}, text="one two three four").output_ids) == ids[-2:]
    assert list(only(rig, {"truncate_prompt_tokens": 9}, text="one two three four").output_ids) == ids
    assert list(only(rig, {"truncate_prompt_tokens": -1}, text="one two three four").output_ids) == ids


def test_minus_one_cuts_to_what_leaves_room() -> None:
    rig = RankRig(*ECHO, "--max-model-len", "20")
    assert only(rig, {"truncate_prompt_tokens": -1}, text="word " * 100).prompt_tokens == 19


def test_ids_are_never_cut() -> None:
    for kept in (2, 0, -5, 10**9):
        assert only(RankRig(), {"truncate_prompt_tokens": kept}).prompt_tokens == len(IDS)


def test_what_cannot_be_kept_is_refused() -> None:
    rig = RankRig("--max-model-len", "100")
    assert "truncate_prompt_tokens" in refusal(rig, {"truncate_prompt_tokens": -2}, text="a b")
    assert "truncate_prompt_tokens" in refusal(rig, {"truncate_prompt_tokens": 101}, text="a b")
    assert "empty" in refusal(rig, {"truncate_prompt_tokens": 0}, text="a b")


# --- beside the prompt


def test_names_do_not_matter() -> None:
    rig = RankRig("--served-model-name", "other", "another")
    assert only(rig).prompt_tokens == 5


def test_ids_of_requests_are_the_clients_and_may_be_equal() -> None:
    rig = RankRig("--inter-token-latency", "1s")
    client = RpcClient(rig)
    calls = [begin(client, request(LONG, request_id=name)) for name in ("a", "a", "é")]
    assert [sequence.request_id for sequence in rig.rank.engine.sequences] == ["a", "a", "é"]
    for call in calls:
        client.finish(call, step=1.0).ok()


def test_one_that_is_too_long_is_refused() -> None:
    assert "1024 characters" in refusal(RankRig(), request_id="x" * 1025)
    assert only(RankRig(), request_id="x" * 1024).prompt_tokens == 5


@pytest.mark.parametrize(("flags", "own"), [((), 0), (("--data-parallel-rank", "3"), 3)])
def test_a_pinned_rank_is_the_one_called(flags: tuple[str, ...], own: int) -> None:
    rig = RankRig(*flags)
    assert only(rig, data_parallel_rank=own).prompt_tokens == 5
    for other in (-1, own + 1, 2**31 - 1):
        assert f"rank {own}" in refusal(rig, data_parallel_rank=other)


def test_the_same_over_http_and_grpc() -> None:
    rig = RankRig()
    params = {"seed": 5, "max_tokens": 20, "ignore_eos": True, "n": 2}
    http = answer(rig, token_ids=IDS, sampling_params=params)["choices"]
    assert [list(found.output_ids) for found in whole(rig, params)] == [
        choice["token_ids"] for choice in http
    ]
    messages = stream(rig, params)
    for choice in http:
        assert joined(messages, choice["index"]) == choice["token_ids"]
