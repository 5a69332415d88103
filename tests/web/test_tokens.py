"""Text into tokens and back, over connections in memory."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmdsim.tokenization import BuiltinTokenizer, render_chat
from llmdsim.web import conversation, token_requests, tokens
from tests.web.rig import PassRig, RankRig
from tests.wire.channel import Reply, get, post, read_replies

USER = {"role": "user", "content": "one two"}


def send(rig: RankRig, raw: bytes) -> Reply:
    client = rig.connect().send(raw)
    for _ in range(100_000):
        if client.received:
            break
        rig.settle()
    (reply,) = read_replies(client.received, [raw.partition(b" ")[0]], client.fate != "open")
    return reply


def ask(path: str, body: Any, rig: RankRig | None = None) -> Reply:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return send(rig or RankRig(), post(raw, path=path.encode()))


def tokenize(rig: RankRig | None = None, **body: Any) -> Any:
    reply = ask("/tokenize", body, rig)
    assert reply.status == 200, reply
    return json.loads(reply.body)


def refused(path: str, body: Any, rig: RankRig | None = None) -> dict[str, Any]:
    reply = ask(path, body, rig)
    told: dict[str, Any] = reply.error["error"]
    assert reply.status == told["code"]
    return told


# --- tokenize


def test_a_text_is_told_as_ids_and_on_demand_as_texts() -> None:
    rig = RankRig("--max-model-len", "77")
    ids, pieces = BuiltinTokenizer().split("Grüße, 世界! ")
    plain = tokenize(rig, prompt="Grüße, 世界! ")
    assert list(plain.items()) == [
        ("count", len(ids)),
        ("max_model_len", 77),
        ("tokens", ids),
        ("token_strs", None),
    ]
    assert tokenize(rig, prompt="Grüße, 世界! ", return_token_strs=True)["token_strs"] == pieces


def test_a_conversation_is_told_as_it_is_rendered() -> None:
    shown = tokenize(messages=[USER, {"role": "assistant", "content": "three"}], return_token_strs=True)
    text = render_chat([USER, {"role": "assistant", "content": "three"}])
    assert "".join(shown["token_strs"]) == text
    assert shown["count"] == BuiltinTokenizer().count(text)


def test_what_is_tokenized_is_what_is_counted() -> None:
    rig = RankRig()
    count = tokenize(rig, messages=[USER])["count"]
    reply = ask("/v1/chat/completions", {"messages": [USER], "max_tokens": 1}, rig)
    assert json.loads(reply.body)["usage"]["prompt_tokens"] == count


def test_with_both_forms_the_conversation_is_tokenized() -> None:
    assert tokenize(messages=[USER], prompt="other")["tokens"] == tokenize(messages=[USER])["tokens"]
    assert tokenize(messages=None, prompt="other")["tokens"] == tokenize(prompt="other")["tokens"]


def test_an_empty_text_has_no_tokens() -> None:
    shown = tokenize(prompt="", return_token_strs=True)
    assert (shown["count"], shown["tokens"], shown["token_strs"]) == (0, [], [])


@pytest.mark.parametrize(
    "more",
    [
        {"add_special_tokens": False},
        {"add_generation_prompt": False},
        {"add_generation_prompt": False, "continue_final_message": True},
        {"add_generation_prompt": "no", "return_token_strs": None},
        {"tools": []},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"chat_template_kwargs": {"x": 1}, "media_io_kwargs": {}, "mm_processor_kwargs": {}},
        # What only a chat completion takes is not looked at.
        {"n": "x", "stream_options": {}, "response_format": 5, "stop": ["a"] * 9, "tool_choice": "f"},
    ],
    ids=json.dumps,
)
def test_options_of_a_conversation(more: dict[str, Any]) -> None:
    assert tokenize(messages=[USER], **more) == tokenize(messages=[USER])


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "body.prompt"),
        ({"messages": None}, "body.prompt"),
        ({"prompt": ["a", "b"]}, "body.prompt"),
        ({"prompt": [1, 2]}, "body.prompt"),
        ({"prompt": None}, "body.prompt"),
        ({"prompt": "a", "model": 5}, "body.model"),
        ({"prompt": "a", "return_token_strs": "x"}, "body.return_token_strs"),
        ({"messages": "x"}, "body.messages"),
        ({"messages": [USER], "add_generation_prompt": None}, "body.add_generation_prompt"),
        ({"messages": [USER], "tools": [{}]}, "body.tools.0.function"),
        (
            {"messages": [{"content": "no role"}]},
            "body.messages.0.ChatCompletionDeveloperMessageParam.role",
        ),
        ({"messages": []}, None),
        ({"messages": [{"role": "user", "content": [{"type": "nothing"}]}]}, None),
        ({"messages": [USER], "continue_final_message": True}, None),
        ({"messages": [USER], "continue_final_message": True, "add_generation_prompt": True}, None),
        ({"messages": [USER], "chat_template": "{{ x }}"}, None),
        ({"messages": [USER], "chat_template_kwargs": {"tokenize": 1}}, None),
        ({"messages": [USER], "mm_processor_kwargs": {"a": 1}}, "mm_processor_kwargs"),
        ([], "body"),
    ],
    ids=json.dumps,
)
def test_what_cannot_be_tokenized_is_refused(body: Any, param: str | None) -> None:
    told = refused("/tokenize", body)
    assert (told["code"], told["param"]) == (400, param)


NO_JSON = (
    *(b"", b"{", b"\xff", b'{"prompt":"\xff"}', b'{"prompt":"\\ud800"}', b"[" * 9999),
    # In a key that nobody reads.
    b'{"prompt":"a","tokens":[1],"x":"\xff"}',
)


@pytest.mark.parametrize("body", NO_JSON)
@pytest.mark.parametrize("path", ["/tokenize", "/detokenize"])
def test_a_body_that_is_no_json_is_refused(path: str, body: bytes) -> None:
    assert refused(path, body)["code"] == 400


def test_deep_nesting_is_refused() -> None:
    nested = b'{"messages":[{"role":"user","content":"a","x":%b%b}]}' % (b"[" * 300, b"]" * 300)
    assert refused("/tokenize", nested)["code"] == 400


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize"])
def test_the_model_is_looked_up(path: str) -> None:
    rig = RankRig("--served-model-name", "one", "two", "--lora-modules", "l1=/l1")
    body = {"prompt": "a", "tokens": [1]}
    for name in ("one", "two", "l1", "", None):
        assert ask(path, {**body, "model": name}, rig).status == 200
    told = refused(path, {**body, "model": "other"}, rig)
    assert (told["code"], told["param"]) == (404, "model")


def test_no_context_bounds_a_text() -> None:
    rig = RankRig("--max-model-len", "8")
    assert tokenize(rig, prompt="a " * 5000)["count"] == 5000
    assert tokenize(rig, prompt="a" * 5000)["count"] == 1


@pytest.mark.parametrize("text", ["word, " * 30_000, "wörter, " * 30_000, "x" * 300_000], ids=["a", "b", "c"])
def test_a_long_text_is_tokenized_in_turns(text: str) -> None:
    rig = PassRig()
    client = rig.connect().send(
        post(json.dumps({"prompt": text, "return_token_strs": True}).encode(), path=b"/tokenize")
    )
    assert not client.received
    assert rig.finish() > 10
    (reply,) = read_replies(client.received, [b"POST"], False)
    ids, pieces = BuiltinTokenizer().split(text)
    shown = json.loads(reply.body)
    assert (shown["count"], shown["tokens"], shown["token_strs"]) == (len(ids), ids, pieces)


def test_the_tokens_of_one_request_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MOST_TOKENS", 10)
    assert tokenize(prompt="a " * 10)["count"] == 10
    assert refused("/tokenize", {"prompt": "a " * 11})["code"] == 400


def test_media_count_and_are_bounded_before_they_are_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    video = {"type": "video_url", "video_url": {"url": "x"}}
    assert tokenize(messages=[{"role": "user", "content": [video]}])["count"] > 512
    monkeypatch.setattr(conversation, "render_chat", None)
    assert refused("/tokenize", {"messages": [{"role": "user", "content": [video] * 8193}]})["code"] == 400


def test_a_client_that_leaves_ends_the_work() -> None:
    rig = PassRig()
    client = rig.connect().send(post(json.dumps({"prompt": "a " * 500_000}).encode(), path=b"/tokenize"))
    rig.turns(3)
    assert rig.rank.context.turns.busy
    client.fin()
    rig.turns(3)
    assert not rig.rank.context.turns.busy


# --- detokenize


@settings(max_examples=60)
@given(st.text(max_size=80))
def test_a_text_comes_back_from_its_tokens(text: str) -> None:
    rig = RankRig()
    ids = tokenize(rig, prompt=text)["tokens"]
    reply = ask("/detokenize", {"tokens": ids}, rig)
    assert (reply.status, json.loads(reply.body)) == (200, {"prompt": text})


@pytest.mark.parametrize(
    ("given_", "shown"),
    [([], ""), ([1, 2], "1,2"), (["7", 8.0, True], "7,8,1"), ([2**32 - 1], "4294967295")],
)
def test_ids_that_nobody_met_read_as_digits(given_: list[Any], shown: str) -> None:
    assert json.loads(ask("/detokenize", {"tokens": given_}).body) == {"prompt": shown}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "body.tokens"),
        ({"tokens": None}, "body.tokens"),
        ({"tokens": "1"}, "body.tokens"),
        ({"tokens": [1, -1]}, "body.tokens.1"),
        ({"tokens": [0] * 600 + ["x", 1.5]}, "body.tokens.600"),
        ({"tokens": [[1]]}, "body.tokens.0"),
        ({"tokens": [1], "model": []}, "body.model"),
        ({"tokens": [2**32]}, None),
        ({"tokens": [2**63 - 1]}, None),
        ({"tokens": [10**300]}, None),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_no_list_of_ids_is_refused(body: Any, param: str | None) -> None:
    told = refused("/detokenize", body)
    assert (told["code"], told["param"]) == (400, param)


def test_many_bad_ids_are_not_all_told() -> None:
    reply = ask("/detokenize", {"tokens": ["x" * 100] * 20_000})
    assert reply.status == 400
    assert len(reply.body) < 5000


def test_many_ids_are_detokenized_in_turns() -> None:
    rig = PassRig()
    text = "wörter, " * 30_000
    ids = BuiltinTokenizer.encode(rig.rank.context.tokenizer, text)  # type: ignore[arg-type]
    client = rig.connect().send(post(json.dumps({"tokens": ids}).encode(), path=b"/detokenize"))
    assert not client.received
    assert rig.finish() > 10
    (reply,) = read_replies(client.received, [b"POST"], False)
    assert json.loads(reply.body) == {"prompt": text}


def test_ids_and_the_text_made_of_them_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_requests, "MOST_TOKENS", 10)
    assert ask("/detokenize", {"tokens": [1] * 10}).status == 200
    assert refused("/detokenize", {"tokens": [1] * 11})["param"] == "tokens"
    monkeypatch.setattr(tokens, "MOST_REPEATED", 5)
    assert ask("/detokenize", {"tokens": [1] * 3}).status == 200
    assert refused("/detokenize", {"tokens": [1] * 4})["param"] == "tokens"


# --- the tokenizer


def test_the_tokenizer_is_told_of_only_where_asked_for() -> None:
    assert send(RankRig(), get(b"/tokenizer_info")).status == 404
    reply = send(RankRig("--enable-tokenizer-info-endpoint"), get(b"/tokenizer_info"))
    assert json.loads(reply.body) == {"tokenizer_class": "BuiltinTokenizer"}


def test_tokens_are_served_while_draining_and_fail_on_no_purpose() -> None:
    rig = RankRig("--failure-injection-rate", "100")
    rig.rank.context.draining = True
    assert tokenize(rig, prompt="a")["count"] == 1
