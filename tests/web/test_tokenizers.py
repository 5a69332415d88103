"""Models' own tokenizers behind the routes, over connections in memory."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from twisted.internet.defer import Deferred, execute

from llmdsim.tokenization.pretrained import PretrainedTokenizer
from tests.tokenization.trained import KINDS, byte_level, trained, word_piece
from tests.web import test_fuzz, test_tokens_fuzz
from tests.web.answers import REFUSALS
from tests.web.clients import CHAT, TEXT, events, request
from tests.web.rig import RankRig
from tests.wire.channel import Reply, get, post, read_replies

TOKENIZER = trained("byte level")
BOS, EOS = 0, 1
TEXTS = ["The ferry 世界 👩\u200d🚀e\u0301!", "</s>a <s></s>", " \n", "𠀀", "Grüße\ud83d\ude00"]


class Rig(RankRig):
    """Functions for a thread are run at once; `work` are those that were."""

    def __init__(self, *flags: str, kind: str = "byte level") -> None:
        super().__init__("--max-model-len", "20000", *flags, tokenizer=trained(kind))
        self.work: list[object] = []
        self.rank.context.turns._in_thread = self._run

    def _run(self, function: Any) -> Deferred[Any]:
        self.work.append(function)
        return execute(function)


def send(rig: RankRig, raw: bytes) -> Reply:
    client = rig.connect().send(raw)
    for _ in range(2000):
        if client.received and rig.rank.engine.idle and not rig.rank.context.turns.busy:
            break
        rig.clock.advance(0.001)
    rig.settle()
    (reply,) = read_replies(client.received, [raw.partition(b" ")[0]], client.fate != "open")
    return reply


def ask(rig: RankRig, path: str, **body: Any) -> Any:
    reply = send(rig, post(json.dumps(body).encode(), path=path.encode()))
    assert reply.status == 200, reply.body
    return json.loads(reply.body)


def refused(rig: RankRig, path: str, **body: Any) -> dict[str, Any]:
    reply = send(rig, post(json.dumps(body).encode(), path=path.encode()))
    assert reply.status == 400, reply.body
    told: dict[str, Any] = json.loads(reply.body)["error"]
    return told


def complete(rig: RankRig, **body: Any) -> Any:
    return ask(rig, TEXT, **body)["choices"][0]


def streamed(rig: RankRig, path: str, **body: Any) -> list[Any]:
    """The first choices of the events of a stream."""
    reply = send(rig, request(path, {**body, "stream": True}))
    return [event["choices"][0] for event in events(reply.body) if event != "[DONE]" and event["choices"]]


# --- tokenize, detokenize


def test_special_tokens_are_added_to_a_text_and_not_to_a_chat() -> None:
    rig = Rig()
    plain = TOKENIZER.encode("The ferry")
    assert ask(rig, "/tokenize", prompt="The ferry")["tokens"] == [BOS, *plain]
    without = ask(rig, "/tokenize", prompt="The ferry", add_special_tokens=False)
    assert (without["tokens"], without["count"]) == (plain, len(plain))
    messages = [{"role": "user", "content": "hi"}]
    chat = ask(rig, "/tokenize", messages=messages)
    assert BOS not in chat["tokens"]
    assert ask(rig, "/tokenize", messages=messages, add_special_tokens=True)["tokens"] == [
        BOS,
        *chat["tokens"],
    ]


def test_texts_of_tokens_are_the_vocabularys() -> None:
    shown = ask(Rig(), "/tokenize", prompt=" the é", return_token_strs=True)
    assert shown["token_strs"][:2] == ["<s>", "Ġthe"]
    assert len(shown["token_strs"]) == shown["count"]


def test_a_long_text_is_tokenized_in_a_thread() -> None:
    rig = Rig()
    text = "The ferry leaves at seven. " * 400
    shown = ask(rig, "/tokenize", prompt=text, return_token_strs=True)
    assert rig.work
    assert shown["tokens"] == [BOS, *TOKENIZER.encode(text)]
    assert len(shown["token_strs"]) == shown["count"] == len(shown["tokens"])
    assert ask(rig, "/detokenize", tokens=shown["tokens"][1:]) == {"prompt": text}


@pytest.mark.parametrize("text", TEXTS)
def test_detokenize_gives_the_text_back(text: str) -> None:
    rig = Rig()
    tokens = ask(rig, "/tokenize", prompt=text, add_special_tokens=False)["tokens"]
    # The normalizer composes what it can.
    given = text.replace("e\u0301", "é").encode("utf-16", "surrogatepass").decode("utf-16")
    assert ask(rig, "/detokenize", tokens=tokens) == {"prompt": given}


def test_detokenize_shows_special_tokens() -> None:
    assert ask(Rig(), "/detokenize", tokens=[BOS, EOS]) == {"prompt": "<s></s>"}


@pytest.mark.parametrize("token", [700, 2**31, 2**32, 2**63 - 1])
def test_ids_out_of_the_vocabulary_are_refused(token: int) -> None:
    rig = Rig()
    assert "out of vocabulary" in refused(rig, "/detokenize", tokens=[1, token])["message"]
    assert "vocab" in refused(rig, TEXT, prompt=[1, token])["message"]
    generate = {"token_ids": [1, token], "sampling_params": {"max_tokens": 1}}
    assert "vocab" in refused(rig, "/inference/v1/generate", **generate)["message"]


@pytest.mark.parametrize(
    "field", [{"stop_token_ids": [700]}, {"logit_bias": {"700": 1}}, {"allowed_token_ids": [700]}]
)
def test_so_are_those_that_are_wanted_or_not(field: dict[str, Any]) -> None:
    assert "vocab" in refused(Rig(), TEXT, prompt="a", **field)["message"].lower()
    complete(Rig(), prompt="a", **json.loads(json.dumps(field).replace("700", "699")))


def test_what_there_is_to_tell_of_a_tokenizer() -> None:
    settings = {
        "tokenizer_class": "Qwen2Tokenizer",
        "bos_token": {"content": "<s>", "lstrip": False},
        "added_tokens_decoder": {"0": {"content": "<s>"}},
        "vocab_file": "x",
        "chat_template": "T",
        "model_max_length": 5,
        "extra": [{"content": "a"}, None],
    }
    tokenizer = PretrainedTokenizer(byte_level(), 0, settings)
    rig = RankRig("--enable-tokenizer-info-endpoint", tokenizer=tokenizer)
    assert json.loads(send(rig, get(b"/tokenizer_info")).body) == {
        "tokenizer_class": "Qwen2Tokenizer",
        "bos_token": "<s>",
        "added_tokens_decoder": {"0": "<s>"},
        "chat_template": "T",
        "model_max_length": 5,
        "extra": ["a", None],
    }


@pytest.mark.parametrize("settings", [{}, {"chat_template": "T"}])
def test_the_operators_template_is_told_of_a_tokenizer(settings: dict[str, Any]) -> None:
    tokenizer = PretrainedTokenizer(byte_level(), 0, settings)
    flags = ("--enable-tokenizer-info-endpoint", "--chat-template", "{{ messages }}")
    told = json.loads(send(RankRig(*flags, tokenizer=tokenizer), get(b"/tokenizer_info")).body)
    assert told["chat_template"] == "{{ messages }}"
    told = json.loads(send(RankRig(flags[0], tokenizer=tokenizer), get(b"/tokenizer_info")).body)
    assert told.get("chat_template") == settings.get("chat_template")


def test_settings_with_half_a_character_can_be_told() -> None:
    tokenizer = PretrainedTokenizer(
        byte_level(), 0, {"bos_token": {"content": "\ud800"}, "\udc00": ["a\ud800"]}
    )
    rig = RankRig("--enable-tokenizer-info-endpoint", tokenizer=tokenizer)
    told = json.loads(send(rig, get(b"/tokenizer_info")).body)
    assert told["bos_token"] == "\ufffd"
    assert told["\ufffd"] == ["a\ufffd"]


# --- completions


def test_special_tokens_count_for_prompts_that_are_texts() -> None:
    rig = Rig()
    count = TOKENIZER.count("The ferry")
    whole = ask(rig, TEXT, prompt="The ferry", max_tokens=1, return_token_ids=True)
    assert whole["usage"]["prompt_tokens"] == count + 1
    assert whole["choices"][0]["prompt_token_ids"] == [BOS, *TOKENIZER.encode("The ferry")]
    bare = ask(rig, TEXT, prompt="The ferry", max_tokens=1, add_special_tokens=False)
    assert bare["usage"]["prompt_tokens"] == count
    ids = ask(rig, TEXT, prompt=TOKENIZER.encode("The ferry"), max_tokens=1)
    assert ids["usage"]["prompt_tokens"] == count


def test_an_echo_is_what_was_sent() -> None:
    choice = complete(Rig(), prompt="e\u0301 Ferry", max_tokens=0, echo=True, logprobs=1)
    assert choice["text"] == "e\u0301 Ferry"
    assert choice["logprobs"]["tokens"][0] == ""
    assert "".join(choice["logprobs"]["tokens"]).startswith("e\u0301 Ferry")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("text", TEXTS)
def test_echo_mode_says_any_text_to_the_letter(path: str, text: str, kind: str) -> None:
    if kind == "word piece" and not text.strip():
        return  # of which it makes no token
    rig = Rig("--mode", "echo", kind=kind)
    body: dict[str, Any] = (
        {"messages": [{"role": "user", "content": text}]} if path == CHAT else {"prompt": text}
    )
    expected = text.encode("utf-16", "surrogatepass").decode("utf-16")
    (choice,) = ask(rig, path, **body, return_token_ids=True)["choices"]
    said = choice["message"]["content"] if path == CHAT else choice["text"]
    assert said == expected
    assert choice["token_ids"] == trained(kind).encode(text)
    parts = streamed(rig, path, **body)
    texts = [part["delta"].get("content", "") if path == CHAT else part["text"] for part in parts]
    assert "".join(texts) == expected
    assert not any("\ufffd" in part for part in texts)
    tokens = len(choice["token_ids"])
    assert tokens <= len(texts) <= tokens + 1


def test_characters_of_several_tokens_come_with_the_last() -> None:
    rig = Rig("--mode", "echo")
    texts = [part["text"] for part in streamed(rig, TEXT, prompt="a𠀀b")]
    assert texts == ["a", "", "", "", "𠀀", "b"]
    cut = complete(rig, prompt="a𠀀b", max_tokens=3)
    assert (cut["text"], cut["finish_reason"]) == ("a", "length")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "The </s>ferry"),
        ({"skip_special_tokens": False}, "The </s>ferry"),
        ({"skip_special_tokens": True}, "The ferry"),
    ],
)
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_special_tokens_of_a_text_are_hidden_where_that_is_asked_for(
    path: str, fields: dict[str, Any], said: str
) -> None:
    text = "The </s>ferry"
    body: dict[str, Any] = (
        {"messages": [{"role": "user", "content": text}]} if path == CHAT else {"prompt": text}
    )
    (choice,) = ask(Rig("--mode", "echo"), path, **body, **fields)["choices"]
    assert (choice["message"]["content"] if path == CHAT else choice["text"]) == said


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "The ferry"),
        ({"skip_special_tokens": False}, "<s>The</s> ferry"),
        ({"skip_special_tokens": True}, "The ferry"),
    ],
)
def test_those_of_ids_are_unless_they_are_wanted(fields: dict[str, Any], said: str) -> None:
    ids = [BOS, *TOKENIZER.encode("The"), EOS, *TOKENIZER.encode(" ferry")]
    rig = Rig("--mode", "echo")
    assert complete(rig, prompt=ids, **fields)["text"] == said
    params = {"max_tokens": 100, **fields}
    generate = ask(rig, "/inference/v1/generate", token_ids=ids, sampling_params=params, output_mode="text")
    assert generate["choices"][0]["text"] == said
    assert generate["choices"][0]["token_ids"] == ids


def test_blanks_between_special_tokens() -> None:
    tokenizer = PretrainedTokenizer(word_piece())
    rig = RankRig("--mode", "echo", tokenizer=tokenizer)
    ids = [1, 2, *tokenizer.encode("the ferry"), 2, 2]
    shown = {"prompt": ids, "skip_special_tokens": False}
    assert complete(rig, **shown)["text"] == "[CLS] [SEP] the ferry [SEP] [SEP]"
    assert (
        complete(rig, **shown, spaces_between_special_tokens=False)["text"]
        == "[CLS][SEP] the ferry [SEP][SEP]"
    )


# --- what is said


@pytest.mark.parametrize("kind", KINDS)
def test_ids_and_texts_of_random_replies_belong_together(kind: str) -> None:
    rig = Rig(kind=kind)
    tokenizer = trained(kind)
    for seed in range(5):
        body = {"prompt": "hi", "max_tokens": 120, "ignore_eos": True, "seed": seed, "return_token_ids": True}
        choice = complete(rig, **body)
        text = choice["text"]
        assert len(choice["token_ids"]) == 120
        # So prompts that take up replies have their tokens.
        assert tokenizer.encode(text) == choice["token_ids"]
        assert text[0] != " "
        assert "  " not in text
        parts = streamed(rig, TEXT, **body)
        assert "".join(part["text"] for part in parts) == text
        assert [token for part in parts for token in part["token_ids"] or ()] == choice["token_ids"]


def test_alternatives_are_ids_of_the_vocabulary() -> None:
    rig = Rig("--max-logprobs", "-1")
    body = {"messages": [{"role": "user", "content": "The ferry"}], "max_tokens": 3, "ignore_eos": True}
    reply = ask(
        rig, CHAT, **body, logprobs=True, top_logprobs=20, prompt_logprobs=30, return_tokens_as_token_ids=True
    )
    (choice,) = reply["choices"]
    for entry in choice["logprobs"]["content"]:
        ids = [int(top["token"].removeprefix("token_id:")) for top in entry["top_logprobs"]]
        assert len(set(ids)) == 20
        assert max(ids) < TOKENIZER.vocab_size
    for found in reply["prompt_logprobs"][1:]:
        assert len(found) == 30
        assert max(map(int, found)) < TOKENIZER.vocab_size


def test_log_probabilities_have_whole_characters() -> None:
    rig = Rig("--mode", "echo")
    body = {"messages": [{"role": "user", "content": "a𠀀"}], "logprobs": True}
    (choice,) = ask(rig, CHAT, **body)["choices"]
    entries = choice["logprobs"]["content"]
    assert [entry["token"] for entry in entries] == ["a", "", "", "", "𠀀"]
    assert [bytes(entry["bytes"]).decode() for entry in entries] == ["a", "", "", "", "𠀀"]


def test_structured_output_is_tokenized_as_text_is() -> None:
    rig = Rig()
    body = {
        "messages": [{"role": "user", "content": "x"}],
        "structured_outputs": {"choice": ["The ferry 世界"]},
    }
    (choice,) = ask(rig, CHAT, **body, max_tokens=100, return_token_ids=True)["choices"]
    assert choice["message"]["content"] == "The ferry 世界"
    assert choice["token_ids"] == TOKENIZER.encode("The ferry 世界")


def test_stop_strings_are_found_across_tokens() -> None:
    rig = Rig("--mode", "echo")
    choice = complete(rig, prompt="The fer𠀀ry leaves", stop=["r𠀀r"])
    assert (choice["text"], choice["stop_reason"]) == ("The fe", "r𠀀r")


# --- long prompts


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_a_long_prompt_is_counted_in_a_thread_and_echoed_whole(path: str) -> None:
    rig = Rig("--mode", "echo")
    text = "The ferry 世界 leaves at seven. " * 300
    body: dict[str, Any] = (
        {"messages": [{"role": "user", "content": text}]} if path == CHAT else {"prompt": text}
    )
    reply = ask(rig, path, **body)
    (choice,) = reply["choices"]
    assert (choice["message"]["content"] if path == CHAT else choice["text"]) == text
    assert rig.work
    assert reply["usage"]["completion_tokens"] == TOKENIZER.count(text)


def test_a_prompt_beyond_the_context_is_refused_before_and_after_it_is_tokenized() -> None:
    rig = Rig("--max-model-len", "100")
    assert refused(rig, TEXT, prompt="x" * (100 * TOKENIZER.longest_piece + 1))["param"] == "input_text"
    assert rig.work == []
    assert refused(rig, TEXT, prompt="The ferry " * 80)["param"] == "input_tokens"


@pytest.mark.parametrize("side", [None, "left", "right"])
def test_a_prompt_is_cut_to_the_tokens_that_are_kept(side: str | None) -> None:
    rig = Rig()
    text = "The ferry leaves at seven. " * 400
    ids = TOKENIZER.encode(text)
    body = {"truncation_side": side} if side else {}
    (choice,) = ask(
        rig, TEXT, prompt=text, truncate_prompt_tokens=50, max_tokens=1, return_token_ids=True, **body
    )["choices"]
    kept = [BOS, *ids][:50] if side == "right" else ids[-50:]
    assert choice["prompt_token_ids"] == kept


def test_offsets_of_tokens_are_those_in_the_text() -> None:
    rig = Rig()
    text = "a𠀀 ferry"
    (shown,) = ask(rig, TEXT + "/render", prompt=text, return_token_offsets=True)
    assert shown["token_ids"] == [BOS, *TOKENIZER.encode(text)]
    assert len(shown["token_offsets"]) == len(shown["token_ids"])
    assert all(first[1] == second[0] for first, second in pairwise(shown["token_offsets"]))
    assert shown["token_offsets"][-1][1] == len(text)


# --- anything


class AnyRank(test_fuzz.Rank):
    """One with a tokenizer of its model's."""

    def __init__(self, mode: str, kind: str) -> None:
        self.rig = Rig(*test_fuzz.MODES[mode], kind=kind)
        self._client = None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", test_fuzz.MODES)
def test_whatever_is_sent_is_answered_properly(mode: str, kind: str) -> None:
    rank = AnyRank(mode, kind)
    for number in range(test_fuzz.FEW):
        seed = f"{mode} {kind} {number}"
        made = test_fuzz.case(seed)
        try:
            found = test_fuzz.answer(rank, made.path, *made.packets)
            assert found.tokens is None or found.tokens <= len(found.texts) * test_fuzz.most_tokens(made)
            other = test_fuzz.twin(made) if mode == "echo" and found.status == 200 else None
            if other is not None:
                again = test_fuzz.answer(rank, made.path, other)
                assert again.status == 400 or again[1:3] == found[1:3], "streamed and whole differ"
        except BaseException:
            print(f"case({seed!r}):\n{made.wire!r}")
            raise


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", ["/tokenize?text", "/tokenize?chat", "/detokenize"])
def test_so_it_is_about_tokens(path: str, kind: str) -> None:
    rank = AnyRank("echo", kind)
    for number in range(200):
        made = test_tokens_fuzz.token_case(path, number)
        reply = test_fuzz.quietly(rank, *made.packets)
        assert reply.status in (200, *REFUSALS), (number, reply)
