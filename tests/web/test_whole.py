"""Whole replies: the JSON of both kinds, what usage counts, and when the one answer comes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, maybeDeferred

from llmdsim.engine.sequence import Sequence
from llmdsim.reply.ask import Ask
from llmdsim.reply.reply import TextReply
from llmdsim.tokenization import BuiltinTokenizer, Layout, Prompt
from llmdsim.web.context import Served
from llmdsim.web.reply_head import ReplyHead
from llmdsim.web.usage import prompt_details, usage
from llmdsim.web.wants import ChoiceWants, ReplyWants
from llmdsim.web.whole import chat_body, plain_chat_body
from tests.conformance import shapes
from tests.web.clients import CHAT, TEXT, fields, post, reply_of, request
from tests.web.rig import RankRig
from tests.wire.channel import read_replies

PACED = ("--time-to-first-token", "1s", "--inter-token-latency", "1s")
BOTH = pytest.mark.parametrize("path", [CHAT, TEXT])


class Nowhere:
    """A sink that is never told anything."""

    def reveal(self, sequence: Sequence) -> None: ...

    def fail(self, sequence: Sequence) -> None: ...


def body_of(rig: RankRig, path: str, **more: Any) -> Any:
    reply = reply_of(post(rig, path, **more))
    assert reply.status == 200, reply.body
    return json.loads(reply.body)


def texts(path: str, body: Any) -> list[str]:
    return [c["message"]["content"] if path == CHAT else c["text"] for c in body["choices"]]


@BOTH
def test_every_key_is_there_in_vllms_order(path: str) -> None:
    body = body_of(RankRig(), path)
    assert tuple(body) == (shapes.CHAT_BODY if path == CHAT else shapes.TEXT_BODY)
    (choice,) = body["choices"]
    assert tuple(choice) == (shapes.CHAT_CHOICE if path == CHAT else shapes.TEXT_CHOICE)
    assert tuple(body["usage"]) == shapes.USAGE
    assert body["object"] == ("chat.completion" if path == CHAT else "text_completion")
    assert body["model"] == "m"
    if path == CHAT:
        assert tuple(choice["message"]) == shapes.MESSAGE
        assert choice["message"]["role"] == "assistant"


@BOTH
@pytest.mark.parametrize(
    "text", ['quo"te \\ back\nslash\ttab', "é 中文 😀 \u2028", "</script>\x00\x1f", "  "]
)
def test_any_text_is_good_json(path: str, text: str) -> None:
    more = {"messages": [{"role": "user", "content": text}]} if path == CHAT else {"prompt": text}
    assert texts(path, body_of(RankRig("--mode", "echo"), path, max_tokens=500, **more)) == [text]


@BOTH
@pytest.mark.parametrize("name", ["org/model", 'a "b" \\', "é中😀", "%b %d"])
def test_any_model_name_is_good_json(path: str, name: str) -> None:
    assert body_of(RankRig("--served-model-name", name), path)["model"] == name


def test_usage_counts_each_prompt_once_and_every_choice() -> None:
    rig = RankRig("--mode", "echo", "--max-num-seqs", "6")
    body = body_of(rig, TEXT, prompt=["a b", "c d e"], n=3, max_tokens=9)
    assert body["usage"] == {
        "prompt_tokens": 5,
        "total_tokens": 5 + 3 * 5,
        "completion_tokens": 3 * 5,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": None,
    }
    assert [choice["index"] for choice in body["choices"]] == list(range(6))
    assert texts(TEXT, body) == ["a b"] * 3 + ["c d e"] * 3


def test_usage_as_json() -> None:
    assert json.loads(usage(3, 4)) == {"prompt_tokens": 3, "total_tokens": 7, "completion_tokens": 4}
    assert prompt_details(None) == b',"prompt_tokens_details":null'
    assert json.loads(usage(0, 0, prompt_details(5)))["prompt_tokens_details"] == {"cached_tokens": 5}
    told = json.loads(usage(0, 0, prompt_details(5, 0)))["prompt_tokens_details"]
    assert told == {"cached_tokens": 5, "created_cache_tokens": 0}


TEXTS = st.text(max_size=9)
TOKENS = st.integers(0, 2**40)
PROMPT = Prompt(BuiltinTokenizer(), "one two")


@given(
    head=st.builds(
        lambda id, created, name: ReplyHead(
            id, created, Served(name, json.dumps(name).encode()), b'"vllm-%b"'
        ),
        *(TEXTS, TOKENS, TEXTS),
    ),
    role=TEXTS,
    text=TEXTS,
    reasons=st.tuples(*[st.sampled_from(["stop", "length", "abort", "cache_threshold"])] * 2),
    matched=st.none() | TEXTS | st.integers(0, 2**32),
    tokens=st.tuples(TOKENS, TOKENS, TOKENS, TOKENS),
    cached=st.booleans(),
)
def test_a_plain_chat_is_written_as_every_other(
    head: ReplyHead,
    role: str,
    text: str,
    reasons: tuple[str, str],
    matched: str | int | None,
    tokens: tuple[int, int, int, int],
    cached: bool,
) -> None:
    of_prompt, completion, found, created = tokens
    sequence = Sequence(Ask(prompt=PROMPT, echoed=PROMPT, max_tokens=1, requested_max=None), Nowhere())
    sequence.reply = TextReply(Layout.of([text], [1]), reasons[0], matched)
    sequence.finish_reason = reasons[1]
    sequence.created_tokens = created
    wants = ReplyWants(choices=[ChoiceWants(PROMPT)], prompt_tokens=of_prompt, cached=cached)
    written = plain_chat_body(head, role, wants)([sequence], completion, found)
    assert written == chat_body(head, role, wants)([sequence], completion, found)
    told = json.loads(written)
    assert (told["id"], told["model"], told["choices"][0]["message"]["role"]) == (
        head.id,
        head.served.name,
        role,
    )
    assert told["choices"][0]["message"]["content"] == text


@BOTH
def test_details_may_be_left_out(path: str) -> None:
    rig = RankRig("--no-enable-prompt-tokens-details")
    assert body_of(rig, path)["usage"]["prompt_tokens_details"] is None


@BOTH
def test_what_is_asked_for_is_told_of_every_choice(path: str) -> None:
    rig = RankRig()
    logprobs = {"logprobs": True, "top_logprobs": 2} if path == CHAT else {"logprobs": 2}
    body = body_of(rig, path, n=2, return_token_ids=True, prompt_logprobs=1, **logprobs)
    prompts = body["prompt_token_ids"] if path == CHAT else body["choices"][0]["prompt_token_ids"]
    logs = body["prompt_logprobs"] if path == CHAT else body["choices"][0]["prompt_logprobs"]
    assert len(prompts) == len(logs) == body["usage"]["prompt_tokens"]
    assert logs[0] is None
    for choice, text in zip(body["choices"], texts(path, body), strict=True):
        assert len(choice["token_ids"]) == 5
        found = choice["logprobs"]
        tokens = [entry["token"] for entry in found["content"]] if path == CHAT else found["tokens"]
        assert "".join(tokens) == text
    plain = body_of(rig, path, n=2)
    for choice in plain["choices"]:
        assert (choice["token_ids"], choice["logprobs"]) == (None, None)


def test_a_prompt_echoed_alone_tells_its_own_logprobs() -> None:
    body = body_of(RankRig(), TEXT, echo=True, max_tokens=0, logprobs=1)
    (choice,) = body["choices"]
    assert choice["text"] == "one two"
    assert "".join(choice["logprobs"]["tokens"]) == "one two"
    assert choice["finish_reason"] == "length"


@BOTH
@pytest.mark.parametrize("stream", [False, True])
def test_r49_an_answer_of_no_tokens_is_refused_unless_the_prompt_is_echoed(path: str, stream: bool) -> None:
    rig = RankRig()
    refused = reply_of(post(rig, path, max_tokens=0, stream=stream))
    assert (refused.status, json.loads(refused.body)["error"]["param"]) == (400, "max_tokens")
    scored = body_of(rig, TEXT, echo=True, max_tokens=0)
    assert scored["choices"][0]["text"] == "one two"


def test_an_echo_goes_before_every_choice() -> None:
    body = body_of(RankRig(), TEXT, echo=True, n=2, prompt=["a b", "c d"], logprobs=1)
    shown = texts(TEXT, body)
    assert [text.startswith("a b") for text in shown] == [True, True, False, False]
    assert all(text.startswith("c d") for text in shown[2:])
    for choice, text in zip(body["choices"], shown, strict=True):
        assert "".join(choice["logprobs"]["tokens"]) == text
        assert len(choice["logprobs"]["tokens"]) == 2 + 5


@BOTH
@pytest.mark.parametrize("n", [1, 3])
def test_the_answer_comes_with_the_last_token_of_the_last_choice(path: str, n: int) -> None:
    rig = RankRig("--max-num-seqs", "1", *PACED)
    client = post(rig, path, n=n)
    rig.clock.pump([1.0] * (5 * n - 1))
    assert client.received == b""
    rig.clock.advance(1)
    assert len(client.transport.writes) == 1  # type: ignore[attr-defined]
    body = json.loads(reply_of(client).body)
    assert [c["index"] for c in body["choices"]] == list(range(n))
    assert body["usage"]["completion_tokens"] == 5 * n


def test_choices_are_in_order_whichever_ends_first() -> None:
    rig = RankRig("--mode", "echo", *PACED)
    client = post(rig, TEXT, prompt=["a b c d", "e", "f g"], max_tokens=50)
    rig.clock.pump([1.0] * 4)
    body = json.loads(reply_of(client).body)
    assert texts(TEXT, body) == ["a b c d", "e", "f g"]
    assert [c["finish_reason"] for c in body["choices"]] == ["stop"] * 3


@BOTH
def test_without_latency_the_answer_is_one_write_and_leaves_nothing_behind(path: str) -> None:
    rig = RankRig()
    client = post(rig, path, n=3)
    assert len(client.transport.writes) == 1  # type: ignore[attr-defined]
    assert rig.rank.engine.idle
    assert rig.clock.getDelayedCalls() == []


def test_pipelined_replies_come_one_by_one_in_order() -> None:
    rig = RankRig("--mode", "echo", *PACED)
    client = rig.connect()
    prompts = ["a b c", "d", "e f"]
    client.send(b"".join(request(TEXT, fields(TEXT, prompt=prompt)) for prompt in prompts))
    assert rig.rank.stats.running == 1
    rig.clock.pump([1.0] * 8)
    replies = read_replies(client.received, [b"POST"] * 3, ended=False)
    assert [texts(TEXT, json.loads(reply.body)) for reply in replies] == [[prompt] for prompt in prompts]


@BOTH
def test_different_servers_have_different_fingerprints(path: str) -> None:
    def fingerprint(*flags: str) -> str:
        return str(body_of(RankRig(*flags), path)["system_fingerprint"])

    assert fingerprint() == fingerprint() != fingerprint("--max-num-seqs", "7")


@pytest.mark.parametrize(("tokens", "threads"), [(65_536, 0), (65_537, 1)])
def test_a_body_of_many_ids_is_made_in_a_thread(
    tokens: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []

    def in_thread(body: Callable[..., bytes], *given: Any) -> Deferred[bytes]:
        made.append(body)
        return maybeDeferred(body, *given)

    monkeypatch.setattr("llmdsim.web.whole.deferToThread", in_thread)
    rig = RankRig("--max-model-len", "100000")
    client = post(rig, CHAT, max_tokens=tokens, ignore_eos=True, return_token_ids=True)
    rig.clock.pump([0.001] * 300)
    (choice,) = json.loads(reply_of(client).body)["choices"]
    assert (len(choice["token_ids"]), len(made)) == (tokens, threads)
