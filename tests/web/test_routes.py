"""A rank's routes over connections in memory: ids on every answer, refusals, and cut prompts."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.logger import capturedLogs

from llmdsim.tokenization.builtin import BuiltinTokenizer
from tests.web.clients import CHAT, TEXT, events, fields, post, reply_of, request, said
from tests.web.rig import RankRig
from tests.wire.channel import Client, Reply, get, read_replies

SLOW = ("--time-to-first-token", "10s")
BOTH = pytest.mark.parametrize("path", [CHAT, TEXT])
KINDS = pytest.mark.parametrize("stream", [False, True])


def ask(rig: RankRig, raw: bytes) -> Reply:
    method = raw.partition(b" ")[0]
    client = rig.connect().send(raw)
    rig.clock.advance(0)
    (reply,) = read_replies(client.received, [method], client.fate != "open")
    assert reply.complete
    return reply


# --- request ids

ANSWERS = {
    "table": (200, get(b"/version", b"X-Request-Id: me")),
    "no body": (200, get(b"/health", b"X-Request-Id: me")),
    "head": (200, get(b"/version", b"X-Request-Id: me", method=b"HEAD")),
    "variable": (200, get(b"/v1/models/m", b"X-Request-Id: me")),
    "variable, refused": (404, get(b"/v1/models/other", b"X-Request-Id: me")),
    "unknown": (404, get(b"/nowhere", b"X-Request-Id: me")),
    "wrong method": (405, get(b"/version", b"X-Request-Id: me", method=b"PUT")),
    "wrong method, variable": (405, get(b"/v1/models/m", b"X-Request-Id: me", method=b"PUT")),
    "options": (204, get(b"/version", b"X-Request-Id: me", method=b"OPTIONS")),
    "options, variable": (204, get(b"/v1/models/m", b"X-Request-Id: me", method=b"OPTIONS")),
    "slash": (307, get(b"/version/", b"X-Request-Id: me")),
    "no UTF-8": (400, get(b"/%ff", b"X-Request-Id: me")),
    "whole": (200, request(CHAT, fields(CHAT), "X-Request-Id: me")),
    "stream": (200, request(CHAT, fields(CHAT, stream=True), "X-Request-Id: me")),
    "bad field": (400, request(CHAT, fields(CHAT, n="x"), "X-Request-Id: me")),
    "bad model": (404, request(TEXT, fields(TEXT, model="x"), "X-Request-Id: me")),
    # What never comes to a route.
    "two hosts": (400, get(b"/version", b"X-Request-Id: me", b"Host: other")),
    "malformed": (400, get(b"/version", b"X-Request-Id: me", b"X-More: a", b"nonsense")),
    "too large": (413, get(CHAT.encode(), b"X-Request-Id: me", b"Content-Length: 99999999", method=b"POST")),
    "expectation": (417, get(b"/version", b"X-Request-Id: me", b"Expect: tea")),
    "head too large": (431, get(b"/version", b"X-Request-Id: me", b"X-More: " + b"a" * 70_000)),
    "encoding": (501, get(CHAT.encode(), b"X-Request-Id: me", b"Transfer-Encoding: gzip", method=b"POST")),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_with_the_flag_every_answer_carries_the_callers_id(name: str) -> None:
    status, raw = ANSWERS[name]
    reply = ask(RankRig("--enable-request-id-headers"), raw)
    assert (reply.status, reply.headers.get(b"x-request-id")) == (status, b"me")


@pytest.mark.parametrize("name", ANSWERS)
def test_without_the_flag_no_answer_does(name: str) -> None:
    status, raw = ANSWERS[name]
    reply = ask(RankRig(), raw)
    assert reply.status == status
    assert b"x-request-id" not in reply.headers


@pytest.mark.parametrize("name", ANSWERS)
def test_a_caller_without_an_id_is_given_one(name: str) -> None:
    _, raw = ANSWERS[name]
    rig = RankRig("--enable-request-id-headers")
    ids = {ask(rig, raw.replace(b"X-Request-Id: me\r\n", b"")).headers[b"x-request-id"] for _ in range(3)}
    assert len(ids) == 3
    assert all(len(one) == 32 and int(one, 16) >= 0 for one in ids)


@pytest.mark.parametrize("stream", [False, True])
def test_refusals_and_crashes_carry_the_id_too(stream: bool) -> None:
    flags = ("--enable-request-id-headers", "--max-num-seqs", "1", "--max-waiting-queue-length", "0", *SLOW)
    rig = RankRig(*flags)
    post(rig, CHAT)
    refused = ask(rig, request(CHAT, fields(CHAT, stream=stream), "X-Request-Id: a"))
    assert (refused.status, refused.headers[b"x-request-id"]) == (429, b"a")
    rig.rank.context.draining = True
    refused = ask(rig, request(CHAT, fields(CHAT, stream=stream), "X-Request-Id: b"))
    assert (refused.status, refused.headers[b"x-request-id"]) == (503, b"b")

    def crash(*_: object) -> None:
        raise ZeroDivisionError

    rig.rank.context.draining = False
    rig.rank.driver.submit = crash  # type: ignore[method-assign]
    with capturedLogs() as logged:
        failed = ask(rig, request(CHAT, fields(CHAT, stream=stream), "X-Request-Id: c"))
    assert (failed.status, failed.headers[b"x-request-id"]) == (500, b"c")
    assert len(logged) == 1


@BOTH
def test_an_id_names_the_reply_whichever_way_it_comes(path: str) -> None:
    rig = RankRig()
    prefix = "chatcmpl-" if path == CHAT else "cmpl-"

    def replied(*headers: str, **more: Any) -> str:
        return str(json.loads(reply_of(post(rig, path, *headers, **more)).body)["id"])

    assert replied("X-Request-Id: head", request_id="body") == prefix + "head"
    assert replied('X-Request-Id: a\xe9"b\\', request_id="body").startswith(prefix + "a")
    assert replied(request_id="body") == prefix + "body"
    first, second = replied(), replied()
    assert first != second
    assert len(first) == len(prefix) + 16


# --- models


@pytest.mark.parametrize("name", ["org/model", "/mnt/models", "a b", "é", "a//b", "x/", "50%", "a?b"])
def test_every_served_name_can_be_looked_up(name: str) -> None:
    rig = RankRig("--served-model-name", name)
    for safe in ("/", ""):
        reply = ask(rig, get(f"/v1/models/{quote(name, safe=safe)}".encode()))
        assert (reply.status, json.loads(reply.body).get("id")) == (200, name)


@pytest.mark.parametrize("path", [b"/v1/models/", b"/nowhere/"])
def test_a_path_that_is_not_found_does_not_come_back_whole(path: bytes) -> None:
    reply = ask(RankRig(), get(path + b"a" * 30_000))
    assert reply.status == 404
    assert len(reply.body) < 500
    assert "aaaa..." in reply.error["error"]["message"]


# --- no room, or no time


PODS = ("--pod-name", "pod-1", "--pod-namespace", "ns", "--port", "8123")
POD_HEADERS = {b"x-inference-pod": b"pod-1", b"x-inference-port": b"8123", b"x-inference-namespace": b"ns"}


def shown_pods(reply: Reply) -> dict[bytes, bytes]:
    return {name: value for name, value in reply.headers.items() if name.startswith(b"x-inference-")}


@BOTH
@KINDS
def test_pod_headers_are_on_every_reply_of_generation(path: str, stream: bool) -> None:
    rig = RankRig(*PODS)
    assert shown_pods(reply_of(post(rig, path, stream=stream))) == POD_HEADERS
    assert shown_pods(ask(rig, get(b"/version"))) == {}


@pytest.mark.parametrize(
    ("flags", "shown"),
    [
        (["--pod-name", "p"], {b"x-inference-pod": b"p", b"x-inference-port": b"8000"}),
        (["--pod-namespace", "n"], {b"x-inference-namespace": b"n"}),
        (
            ["--pod-name", "a\r\nx-bad: 1", "--pod-namespace", "é中"],
            {
                b"x-inference-pod": b"a  x-bad: 1",
                b"x-inference-port": b"8000",
                b"x-inference-namespace": b"\xe9?",
            },
        ),
        ([], {}),
    ],
)
def test_pod_headers_are_those_that_are_known(flags: list[str], shown: dict[bytes, bytes]) -> None:
    assert shown_pods(reply_of(post(RankRig(*flags), TEXT))) == shown


@BOTH
@KINDS
@pytest.mark.parametrize(("n", "prompts"), [(4, 1), (2, 2), (1, 4)])
def test_a_full_queue_takes_all_choices_or_none(path: str, stream: bool, n: int, prompts: int) -> None:
    if path == CHAT and prompts > 1:
        return
    more = {"prompt": ["a b"] * prompts} if prompts > 1 else {}
    rig = RankRig("--max-num-seqs", "2", "--max-waiting-queue-length", "2", *SLOW, *PODS)
    stats = rig.rank.stats
    post(rig, path)
    client = post(rig, path, n=n, stream=stream, **more)
    reply = reply_of(client)
    assert (reply.status, reply.headers[b"retry-after"]) == (429, b"1")
    assert reply.error["error"]["type"] == "RateLimitError"
    assert shown_pods(reply) == POD_HEADERS
    assert (stats.running, stats.waiting, sum(stats.finished.values())) == (1, 0, 0)
    # The connection is good for more, and one choice less finds room.
    client.send(request(path, fields(path, n=3)))
    assert (stats.running, stats.waiting) == (2, 2)
    client.rst()
    assert (stats.running, stats.waiting) == (1, 0)
    assert stats.finished["abort"] == 3


@BOTH
@KINDS
def test_a_client_that_was_refused_may_leave(path: str, stream: bool) -> None:
    rig = RankRig("--max-num-seqs", "1", "--max-waiting-queue-length", "0", *SLOW)
    post(rig, path)
    post(rig, path, stream=stream).rst()
    assert (rig.rank.stats.running, rig.rank.stats.finished["abort"]) == (1, 0)


@BOTH
@KINDS
def test_generation_is_refused_while_draining(path: str, stream: bool) -> None:
    rig = RankRig()
    rig.rank.context.draining = True
    reply = reply_of(post(rig, path, stream=stream))
    assert (reply.status, reply.error["error"]["type"]) == (503, "ServiceUnavailableError")
    assert rig.rank.engine.idle


def test_readiness_is_told_by_status() -> None:
    rig = RankRig()
    context = rig.rank.context
    for ready, draining, status in ((False, False, 503), (True, False, 200), (True, True, 503)):
        context.ready, context.draining = ready, draining
        for path in (b"/ready", b"/health/ready"):
            assert ask(rig, get(path)).status == status
        assert ask(rig, get(b"/health")).status == 200


def test_load_counts_what_runs_and_waits() -> None:
    rig = RankRig("--max-num-seqs", "2", *SLOW)

    def load() -> object:
        return json.loads(ask(rig, get(b"/load")).body)

    clients = [post(rig, CHAT) for _ in range(5)]
    assert load() == {"server_load": 5}
    clients[0].rst()
    clients[4].rst()
    assert load() == {"server_load": 3}


# --- too much


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("asked", [{"max_tokens": 20_000}, {"ignore_eos": True}])
def test_more_log_probabilities_than_memory_holds_are_refused(stream: bool, asked: dict[str, Any]) -> None:
    """A chat that names no length may use the whole context."""
    rig = RankRig("--max-model-len", "30000", *SLOW)
    messages = [{"role": "user", "content": "hi"}]
    body = {"messages": messages, "n": 100, "logprobs": True, "top_logprobs": 20, "stream": stream, **asked}
    client = rig.connect().send(request(CHAT, body))
    assert rig.rank.engine.idle
    assert reply_of(client).status == 400


@KINDS
def test_more_echoed_than_memory_holds_is_refused(stream: bool) -> None:
    rig = RankRig("--max-model-len", "100000", *SLOW)
    more = {"prompt": "ab" * 400_000, "n": 100, "echo": True}
    reply = reply_of(post(rig, TEXT, stream=stream, **more))
    assert (reply.status, rig.rank.engine.idle) == (400, True)
    assert post(rig, TEXT, stream=stream, **{**more, "n": 1}).fate == "open"
    assert rig.rank.stats.running == 1


# --- prompts cut to a length


def echo_of(client: Client, stream: bool) -> str:
    reply = reply_of(client)
    assert reply.status == 200, reply.body
    return said(events(reply.body)) if stream else str(json.loads(reply.body)["choices"][0]["text"])


@KINDS
@pytest.mark.parametrize(
    ("kept", "side", "echoed"),
    [
        (2, None, "four five"),
        (2, "left", "four five"),
        (2, "right", "one two "),
        (1, "left", "five"),
        (1, "right", "one "),
        (4, "left", "two three four five"),
        (5, "left", "one two three four five"),
        (99, "right", "one two three four five"),
        (-1, "left", "one two three four five"),
        (None, "left", "one two three four five"),
    ],
)
@pytest.mark.parametrize("as_ids", [False, True])
def test_a_prompt_is_cut_on_the_side_asked_for(
    stream: bool, kept: int | None, side: str | None, echoed: str, as_ids: bool
) -> None:
    rig = RankRig("--mode", "echo")
    text = "one two three four five"
    tokenizer = rig.rank.context.tokenizer
    prompt: Any = tokenizer.encode(text) if as_ids else text
    more: dict[str, Any] = {"prompt": prompt, "max_tokens": 50, "stream": stream}
    if kept is not None:
        more["truncate_prompt_tokens"] = kept
    if side is not None:
        more["truncation_side"] = side
    assert echo_of(post(rig, TEXT, **more), stream) == echoed


@pytest.mark.parametrize("side", ["left", "right"])
def test_minus_one_leaves_room_for_one_token(side: str) -> None:
    rig = RankRig("--mode", "echo", "--max-model-len", "4")
    client = post(
        rig, TEXT, prompt="a b c d e f", truncate_prompt_tokens=-1, truncation_side=side, max_tokens=1
    )
    reply = json.loads(reply_of(client).body)
    assert reply["choices"][0]["text"] == ("d " if side == "left" else "a ")
    assert (reply["usage"]["prompt_tokens"], reply["usage"]["completion_tokens"]) == (3, 1)


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_prompt_of_a_chat_is_cut_and_counted_cut(side: str) -> None:
    rig = RankRig()
    whole = json.loads(reply_of(post(rig, CHAT, return_token_ids=True)).body)
    client = post(rig, CHAT, return_token_ids=True, truncate_prompt_tokens=2, truncation_side=side)
    cut = json.loads(reply_of(client).body)
    ids = whole["prompt_token_ids"]
    assert len(ids) > 2
    assert cut["prompt_token_ids"] == (ids[-2:] if side == "left" else ids[:2])
    assert cut["usage"]["prompt_tokens"] == 2


WORDS = ["one ", "two", ", ", "a_b ", "\n\n", "é中文", "👩‍👩‍👧", "🇩🇪", " ", "x" * 40, "...", "한국 "]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=200), st.integers(1, 3), st.booleans())
def test_long_prompts_are_cut_where_the_whole_text_would_be(words: list[str], kept: int, right: bool) -> None:
    """Though not all of the text is split for it."""
    text = "".join(words)
    ids, texts = BuiltinTokenizer().split(text)
    side = "right" if right else "left"
    rig = RankRig("--mode", "echo")
    more = {"truncate_prompt_tokens": kept, "truncation_side": side, "return_token_ids": True}
    body = json.loads(reply_of(post(rig, TEXT, prompt=text, **more)).body)
    part = slice(0, kept) if right else slice(-kept, None)
    assert body["choices"][0]["prompt_token_ids"] == ids[part]
    assert body["choices"][0]["text"] == "".join(texts[part])


def test_the_pieces_of_a_cut_prompt_are_the_prompts_own() -> None:
    """Not those of the text that is left, which might split in another way."""
    text = "the end."
    ids, texts = BuiltinTokenizer().split(text)
    rig = RankRig("--mode", "echo")
    client = post(rig, TEXT, prompt=text, truncate_prompt_tokens=1, return_token_ids=True)
    choice = json.loads(reply_of(client).body)["choices"][0]
    assert (choice["prompt_token_ids"], choice["text"]) == (ids[-1:], texts[-1])


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(("words", "kept", "counted"), [(1, 1, 1), (2, 2, 2), (2, 3, 2), (2, 1, 1)])
def test_long_pieces_are_cut_by_tokens_and_not_by_characters(
    side: str, words: int, kept: int, counted: int
) -> None:
    rig = RankRig("--mode", "echo")
    prompt = " ".join("x" * 1000 for _ in range(words))
    body = {"prompt": prompt, "truncate_prompt_tokens": kept, "truncation_side": side, "echo": True}
    reply = json.loads(reply_of(rig.post("/v1/completions", body)).body)
    assert reply["usage"]["prompt_tokens"] == counted
    assert reply["choices"][0]["text"].replace(" ", "") == "x" * 1000 * counted * 2
