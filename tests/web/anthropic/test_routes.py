"""The Messages routes of a rank in memory: what is answered, when, and what ends it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter
from twisted.logger import capturedLogs

from llmdsim.reply.ask import Ask
from llmdsim.reply.parts import PartedReply
from llmdsim.reply.reply import Reply
from tests.web.anthropic.answers import assembled, events, merged, message, refused
from tests.web.anthropic.replies import SAYS, THINKS, calls, reply_of, say
from tests.web.anthropic.requests import COUNT, MESSAGES, USER, WEATHER, fields, said_by
from tests.web.clients import reply_of as response_of
from tests.web.clients import watched
from tests.web.rig import PassRig, RankRig
from tests.wire.channel import Client, get, post
from tests.wire.channel import Reply as Response

EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
PACED = ("--time-to-first-token", "1s", "--inter-token-latency", "1s")


def ask(rig: RankRig, path: str = MESSAGES, *headers: bytes, **more: Any) -> Client:
    return watched(rig).send(post(json.dumps(fields(**more)).encode(), *headers, path=path.encode()))


def response(rig: RankRig, path: str = MESSAGES, **more: Any) -> Response:
    client = ask(rig, path, **more)
    rig.clock.pump([0.001] * 100)
    return response_of(client)


def whole(rig: RankRig, **more: Any) -> Any:
    found = response(rig, **more)
    assert (found.status, found.headers[b"content-type"]) == (200, b"application/json"), found.body
    Message.model_validate_json(found.body)
    return message(json.loads(found.body))


def streamed(rig: RankRig, **more: Any) -> Any:
    found = response(rig, stream=True, **more)
    assert found.status == 200, found.body
    assert found.headers[b"content-type"] == b"text/event-stream; charset=utf-8"
    stream = events(found.body)
    for event in stream:
        EVENT.validate_python(event.data)
    return assembled(stream)


def test_a_message() -> None:
    made = whole(RankRig("--mode", "echo"), messages=[{"role": "user", "content": "one two"}])
    assert made["content"] == [{"type": "text", "text": "one two"}]
    assert made["stop_reason"] == "end_turn"
    assert made["model"] == "m"
    assert (made["usage"]["input_tokens"], made["usage"]["output_tokens"]) == (7, 2)


def test_a_stream_says_the_same() -> None:
    more = {"messages": [{"role": "user", "content": 'one "two"\n\u2028 é 😀'}]}
    rig = RankRig("--mode", "echo")
    once, bit_by_bit = whole(rig, **more), streamed(rig, **more)
    assert merged(once["content"]) == merged(bit_by_bit["content"]) == ("", 'one "two"\n\u2028 é 😀', [])
    assert once["usage"] == bit_by_bit["usage"]


def test_the_events_of_a_stream_in_order() -> None:
    found = response(RankRig("--mode", "echo"), messages=[{"role": "user", "content": "a b"}], stream=True)
    stream = events(found.body)
    assert [name for name, _ in stream] == [
        *("message_start", "content_block_start", "content_block_delta", "content_block_delta"),
        *("content_block_stop", "message_delta", "message_stop"),
    ]
    assert stream[2].data == {
        "type": "content_block_delta",
        "delta": {"type": "text_delta", "text": "a "},
        "index": 0,
    }
    assert [data.get("index") for _, data in stream] == [None, 0, 0, 0, 0, None, None]


def test_events_leave_as_tokens_fall_due() -> None:
    rig = RankRig("--mode", "echo", *PACED)
    client = ask(rig, messages=[{"role": "user", "content": "a b c"}], stream=True)
    assert [write.count(b"event: ") for write in client.transport.writes] == [0]  # type: ignore[attr-defined]
    rig.clock.pump([1.0] * 3)
    assert [write.count(b"event: ") for write in client.transport.writes[1:]] == [3, 1, 4]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("more", "reason", "matched", "text"),
    [
        ({}, "end_turn", None, "one two END three"),
        ({"max_tokens": 2}, "max_tokens", None, "one two "),
        ({"stop_sequences": ["END"]}, "stop_sequence", "END", "one two "),
        ({"stop_sequences": ["zzz", "two"]}, "stop_sequence", "two", "one "),
        ({"stop_sequences": ["END"], "max_tokens": 2}, "max_tokens", None, "one two "),
        ({"stop_sequences": []}, "end_turn", None, "one two END three"),
        ({"stop_sequences": ["one"]}, "stop_sequence", "one", ""),
    ],
)
def test_why_a_message_ends(more: dict[str, Any], reason: str, matched: str | None, text: str) -> None:
    rig = RankRig("--mode", "echo")
    asked = {"messages": [{"role": "user", "content": "one two END three"}], **more}
    once, bit_by_bit = whole(rig, **asked), streamed(rig, **asked)
    assert (once["stop_reason"], once.get("stop_sequence")) == (reason, matched)
    assert (bit_by_bit["stop_reason"], bit_by_bit["stop_sequence"]) == (reason, matched)
    assert merged(once["content"])[1] == merged(bit_by_bit["content"])[1] == text
    if not text:
        assert once["content"] == [{"type": "text", "text": ""}]
        assert bit_by_bit["content"] == []


COMPLETE = '{"city":"Zürich","days":[1,2],"note":null}'
CUT = '{"city":"Zür'


@pytest.mark.parametrize("width", [1, 3, 7, 100])
@pytest.mark.parametrize("calling", ["auto", "required", "named"])
def test_reasoning_text_and_calls(monkeypatch: pytest.MonkeyPatch, calling: str, width: int) -> None:
    rig = RankRig()
    reply = reply_of(
        (THINKS, "hm, é"), (SAYS, "I look."), (calls(), COMPLETE), (calls("g"), "{}"), width=width
    )
    say(rig, monkeypatch, reply, calling)
    made, told = whole(rig), streamed(rig)
    wanted = ("hm, é", "I look.", [("f", json.loads(COMPLETE)), ("g", {})])
    assert merged(made["content"]) == merged(told["content"]) == wanted
    assert [block["type"] for block in made["content"]] == ["thinking", "text", "tool_use", "tool_use"]
    assert [block["type"] for block in told["content"]] == ["thinking", "text", "tool_use", "tool_use"]
    assert made["stop_reason"] == told["stop_reason"] == "tool_use"
    assert len({block["id"] for made in (made, told) for block in made["content"] if "id" in block}) == 4


@pytest.mark.parametrize(
    ("reply", "reason", "matched"),
    [
        (reply_of((calls(), COMPLETE), finish_reason="length"), "max_tokens", None),
        (reply_of((calls(), COMPLETE), stop_reason="END"), "tool_use", None),
        (reply_of((calls(), CUT), stop_reason="END"), "stop_sequence", "END"),
        (reply_of((calls(), COMPLETE), (calls(), CUT), stop_reason="END"), "stop_sequence", "END"),
        (reply_of((calls(), CUT)), "tool_use", None),
        (reply_of((SAYS, "x"), stop_reason="END"), "stop_sequence", "END"),
        (reply_of((THINKS, "x"), finish_reason="length"), "max_tokens", None),
        (reply_of(), "end_turn", None),
    ],
)
def test_why_a_stream_with_calls_ends(
    monkeypatch: pytest.MonkeyPatch, reply: PartedReply, reason: str, matched: str | None
) -> None:
    rig = RankRig()
    say(rig, monkeypatch, reply)
    told = streamed(rig)
    assert (told["stop_reason"], told["stop_sequence"]) == (reason, matched)


@pytest.mark.parametrize("calling", ["required", "named"])
def test_a_forced_call_that_was_cut_short_is_refused_after_all(
    monkeypatch: pytest.MonkeyPatch, calling: str
) -> None:
    rig = RankRig()
    say(rig, monkeypatch, reply_of((calls(), CUT), finish_reason="length"), calling)
    found = response(rig)
    assert found.status == 400
    refused(400, found.body)
    assert rig.rank.stats.finished["length"] == 1
    assert streamed(rig)["content"][0]["arguments"] == CUT


def test_a_free_call_that_was_cut_short_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = RankRig()
    reply = reply_of((SAYS, "a"), (calls(), "{}"), (calls("g"), CUT), finish_reason="length")
    say(rig, monkeypatch, reply)
    made = whole(rig)
    assert merged(made["content"]) == ("", "a" + CUT, [("f", {})])
    assert made["stop_reason"] == "max_tokens"


@pytest.mark.parametrize("arguments", ["[1]", '"x"', "5"])
def test_arguments_that_are_no_object_are_no_input(monkeypatch: pytest.MonkeyPatch, arguments: str) -> None:
    rig = RankRig()
    say(rig, monkeypatch, reply_of((calls(), arguments)), "required")
    assert response(rig).status == 400


def test_a_reply_of_nothing_is_an_empty_text(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = RankRig()
    say(rig, monkeypatch, reply_of())
    assert whole(rig)["content"] == [{"type": "text", "text": ""}]


def test_b19_b20_even_an_empty_stream_begins_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = RankRig()
    say(rig, monkeypatch, reply_of())
    stream = events(response(rig, stream=True).body)
    assert [name for name, _ in stream] == ["message_start", "message_delta", "message_stop"]


def test_thinking_ends_with_one_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = RankRig()
    say(rig, monkeypatch, reply_of((THINKS, "one two three")))
    stream = events(response(rig, stream=True).body)
    kinds = [data["delta"]["type"] for name, data in stream if name == "content_block_delta"]
    assert kinds == ["thinking_delta"] * (len(kinds) - 1) + ["signature_delta"]


def test_cached_tokens_are_no_input() -> None:
    rig = RankRig("--mode", "echo", *PACED)
    asked = [{"role": "user", "content": "one two three"}]
    clients = [ask(rig, stream=stream, messages=asked) for stream in (False, True)]
    rig.clock.advance(1.0)
    for sequence in rig.rank.engine._running:
        sequence.cached_tokens = 3
    rig.clock.pump([1.0] * 3)
    made, told = (response_of(client).body for client in clients)
    for found in (message(json.loads(made)), assembled(events(told))):
        counts = found["usage"]
        assert counts["cache_read_input_tokens"] == 3
        assert counts["cache_creation_input_tokens"] == 0
        assert (
            counts["input_tokens"] + 3
            == json.loads(response(rig, COUNT, messages=asked).body)["input_tokens"]
        )


def test_cached_tokens_may_be_left_untold() -> None:
    rig = RankRig("--no-enable-prompt-tokens-details")
    made = json.loads(response(rig).body)
    assert list(made["usage"]) == ["input_tokens", "output_tokens"]
    told = assembled(events(response(rig, stream=True).body), details=False)
    assert list(told["usage"]) == ["input_tokens", "output_tokens"]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"system": "be kind"},
        {"system": [{"type": "text", "text": "be kind"}], "tools": [WEATHER]},
        {"messages": [USER, said_by("assistant", {"type": "tool_use", "id": "t", "name": "f"}), USER]},
    ],
)
def test_a_count_is_what_a_message_is_charged(more: dict[str, Any]) -> None:
    rig = RankRig()
    found = response(rig, COUNT, max_tokens=..., **more)
    assert found.status == 200, found.body
    count = json.loads(found.body)
    assert list(count) == ["input_tokens", "context_management"]
    assert count["context_management"] == {"original_input_tokens": count["input_tokens"]}
    assert count["input_tokens"] == whole(rig, **more)["usage"]["input_tokens"] > 0


def test_a_count_may_fill_the_context_and_no_more() -> None:
    rig = RankRig("--max-model-len", "100")
    overhead = json.loads(response(rig, COUNT, messages=[{"role": "user", "content": "a"}]).body)[
        "input_tokens"
    ]
    for words, status in ((100 - overhead + 1, 200), (100 - overhead + 2, 400)):
        asked = [{"role": "user", "content": "a" + " a" * (words - 1)}]
        found = response(rig, COUNT, messages=asked)
        assert found.status == status, found.body
        assert response(rig, messages=asked).status == 400


def test_a_long_conversation_is_counted_in_turns() -> None:
    rig = PassRig("--max-model-len", "1000000")
    asked = [{"role": "user", "content": "a b c d e f g h i j " * 20_000}]
    counting, asking = ask(rig, COUNT, messages=asked), ask(rig, messages=asked, max_tokens=1)
    assert counting.received == asking.received == b""
    assert rig.finish() > 5
    count = json.loads(response_of(counting).body)["input_tokens"]
    assert count > 200_000
    assert message(json.loads(response_of(asking).body))["usage"]["input_tokens"] == count


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"model": ""}, 400),
        ({"model": "nobody"}, 404),
        ({"max_tokens": 0}, 400),
        ({"max_tokens": 5000}, 400),
        ({"messages": []}, 400),
        ({"messages": [{"role": "user", "content": "a " * 5000}]}, 400),
        ({"temperature": 3}, 400),
        ({"top_p": 0}, 400),
        ({"top_k": -2}, 400),
        ({"stop_sequences": [""]}, 400),
        ({"tool_choice": {"type": "any"}}, 400),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, 400),
        ({"chat_template_kwargs": {"chat_template": "x"}}, 400),
        ({"chat_template_kwargs": {"tokenize": True}}, 400),
        ({"kv_transfer_params": {"a": 2**70}}, 400),
    ],
)
def test_refusals_have_anthropics_form(more: dict[str, Any], status: int, stream: bool) -> None:
    rig = RankRig()
    found = response(rig, stream=stream, **more)
    assert found.status == status
    refused(status, found.body)
    assert rig.rank.engine.idle


@pytest.mark.parametrize("more", [{"model": "nobody"}, {"messages": []}, {"system": 5}, {"model": ""}])
def test_refusals_of_counts_too(more: dict[str, Any]) -> None:
    found = response(RankRig(), COUNT, **more)
    assert found.status == (404 if more == {"model": "nobody"} else 400)
    refused(found.status, found.body)


@pytest.mark.parametrize(
    ("wire", "status"),
    [
        (post(b"{", path=b"/v1/messages"), 400),
        (post(b"", path=b"/v1/messages"), 400),
        (post(b"x", path=b"/v1/messages/nothing"), 404),
        (get(b"/v1/messages"), 405),
        (get(b"/v1/messages/count_tokens"), 405),
        (post(b"x", b"Expect: the unexpected", path=b"/v1/messages"), 417),
        (b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Length: 999999999999\r\n\r\n", 413),
        (b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 200_000 + b"\r\n\r\n", 431),
    ],
)
def test_errors_of_the_connection_have_anthropics_form(wire: bytes, status: int) -> None:
    rig = RankRig()
    found = response_of(rig.connect().send(wire))
    assert found.status == status
    refused(status, found.body)


def test_a_full_queue_is_a_rate_limit() -> None:
    rig = RankRig("--max-num-seqs", "1", "--max-waiting-queue-length", "0", *PACED)
    ask(rig)
    found = response(rig, stream=True)
    assert (found.status, found.headers[b"retry-after"]) == (429, b"1")
    refused(429, found.body)


@pytest.mark.parametrize("path", [MESSAGES, COUNT])
def test_a_server_that_is_shutting_down_is_overloaded(path: str) -> None:
    rig = RankRig()
    rig.rank.context.draining = True
    found = response(rig, path)
    assert (found.status, found.headers[b"connection"]) == (503, b"close")
    refused(503, found.body)


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("kind", ["text", "parts"])
def test_a_stream_that_is_cut_off_closes_its_block_and_tells_why(
    monkeypatch: pytest.MonkeyPatch, begun: bool, kind: str
) -> None:
    rig = RankRig("--mode", "echo", *PACED)
    if kind == "parts":
        say(rig, monkeypatch, reply_of((THINKS, "thinking about it")))
    client = ask(rig, stream=True, messages=[{"role": "user", "content": "one two three"}])
    if begun:
        rig.clock.pump([1.0] * 2)
    rig.rank.driver.give_up()
    found = response_of(client)
    *before, last = events(found.body)
    assert last == ("error", last.data)
    assert list(last.data) == ["type", "error"]
    assert list(last.data["error"]) == ["type", "message"]
    assert last.data["error"]["type"] == "overloaded_error"
    assert [name for name, _ in before[-1:]] == (["content_block_stop"] if begun else [])
    assert found.complete
    assert rig.rank.engine.idle


@pytest.mark.parametrize("seconds", [0, 2])
def test_a_message_that_is_aborted_ends_as_it_stands_for_no_reason(seconds: int) -> None:
    rig = RankRig("--mode", "echo", *PACED)
    asked = [{"role": "user", "content": "one two three four"}]
    once, told = (ask(rig, messages=asked, stream=stream) for stream in (False, True))
    rig.clock.pump([1.0] * seconds)
    rig.rank.driver.cut_short(list(rig.rank.engine._running))
    made = json.loads(response_of(once).body)
    assert list(made) == ["id", "type", "role", "content", "model", "usage"]
    assert made["content"] == [{"type": "text", "text": "one two " if seconds else ""}]
    stream = assembled(events(response_of(told).body))
    assert (stream["stop_reason"], stream["stop_sequence"]) == (None, None)
    assert merged(stream["content"]) == merged(made["content"])
    assert made["usage"] == stream["usage"]


def test_a_whole_message_that_is_cut_off_is_a_503() -> None:
    rig = RankRig(*PACED)
    client = ask(rig)
    rig.rank.driver.give_up()
    found = response_of(client)
    assert found.status == 503
    refused(503, found.body)


@pytest.mark.parametrize("stream", [False, True])
def test_a_writer_that_fails_is_an_api_error(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = RankRig()

    def fail(_: Ask) -> Reply:
        raise ValueError("on purpose")

    monkeypatch.setattr(rig.rank.engine, "_write", fail)
    with capturedLogs() as logged:
        found = response(rig, stream=stream)
    assert len(logged) == 1
    if stream:
        (event,) = events(found.body)
        assert event.data["error"]["type"] == "api_error"
    else:
        assert found.status == 500
        refused(500, found.body)
    assert rig.rank.engine.idle


def faulty(fault: bytes, **more: Any) -> Response:
    rig = RankRig("--mode", "echo", *PACED)
    asked = [{"role": "user", "content": "one two three four"}]
    client = ask(rig, MESSAGES, b"X-Fault: " + fault, messages=asked, **more)
    rig.clock.pump([1.0] * 6)
    assert rig.rank.engine.idle
    return response_of(client)


def test_failures_on_purpose() -> None:
    found = response_of(ask(RankRig(), MESSAGES, b"X-Return-Error: 529"))
    assert found.status == 529
    refused(529, found.body)
    cut_off = events(faulty(b"error; after=2; code=503", stream=True).body)
    assert [name for name, _ in cut_off] == [
        *("message_start", "content_block_start", "content_block_delta", "content_block_delta"),
        *("content_block_stop", "error"),
    ]
    assert cut_off[-1].data["error"]["type"] == "overloaded_error"
    endless = events(faulty(b"no-done", stream=True).body)
    assert endless[-1].name == "message_delta"
    whole_one = faulty(b"error; after=2; code=503")
    assert whole_one.status == 503
    refused(503, whole_one.body)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("seconds", [0, 2])
def test_a_client_that_leaves_frees_its_slot(stream: bool, seconds: int) -> None:
    rig = RankRig("--mode", "echo", *PACED)
    client = ask(rig, stream=stream, messages=[{"role": "user", "content": "one two three four"}])
    rig.clock.pump([1.0] * seconds)
    assert rig.rank.stats.running == 1
    client.rst()
    rig.settle()
    assert rig.rank.stats.running == 0
    assert rig.rank.stats.finished["abort"] == 1


def test_a_client_that_reads_late_has_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = RankRig(*PACED)
    reply = reply_of((THINKS, "one two three four"), (SAYS, "five six"), (calls(), COMPLETE))
    say(rig, monkeypatch, reply)
    client = ask(rig, stream=True)
    rig.clock.pump([1.0] * 3)
    client.transport.stop_reading()
    rig.clock.pump([1.0] * 40)
    client.transport.client_reads = True
    client.transport.drain()
    rig.clock.pump([0] * 5)
    told = assembled(events(response_of(client).body))
    assert merged(told["content"]) == ("one two three four", "five six", [("f", json.loads(COMPLETE))])


@pytest.mark.parametrize(
    "more", [{"kv_transfer_params": {"do_remote_decode": True}}, {"do_remote_decode": True}]
)
def test_a_prefill_tells_where_its_blocks_are(more: dict[str, Any]) -> None:
    made = whole(RankRig("--pod-ip", "10.1.2.3"), **more, max_tokens=1)
    params = made["kv_transfer_params"]
    assert (params["do_remote_prefill"], params["remote_host"]) == (True, "10.1.2.3")
    assert params["remote_request_id"].startswith(made["id"] + "-")
    assert made["stop_reason"] == "max_tokens"
    assert "kv_transfer_params" not in whole(RankRig(), max_tokens=1)


@pytest.mark.parametrize("stream", [False, True])
def test_the_peers_reason_of_a_prefill_is_an_end_of_turn(stream: bool) -> None:
    more = {"kv_transfer_params": {"do_remote_decode": True}, "max_tokens": 1}
    ask_for = streamed if stream else whole
    assert ask_for(RankRig("--remote-decode-finish-reason"), **more)["stop_reason"] == "end_turn"


@pytest.mark.parametrize("stream", [False, True])
def test_a_decode_tells_what_its_prefill_found_cached(stream: bool) -> None:
    params = {"do_remote_prefill": True, "remote_prefill_cached_tokens": 2}
    found = (streamed if stream else whole)(RankRig(), kv_transfer_params=params)
    plain = whole(RankRig())
    assert found["usage"]["cache_read_input_tokens"] == 2
    assert found["usage"]["input_tokens"] == plain["usage"]["input_tokens"] - 2
    more_than_all = {**params, "remote_prefill_cached_tokens": 10**6}
    assert whole(RankRig(), kv_transfer_params=more_than_all)["usage"]["input_tokens"] == 0


def test_ids_are_those_of_requests() -> None:
    rig = RankRig("--enable-request-id-headers")
    found = response_of(ask(rig, MESSAGES, b"X-Request-Id: mine"))
    assert json.loads(found.body)["id"] == "chatcmpl-mine"
    assert found.headers[b"x-request-id"] == b"mine"
    assert whole(rig)["id"] != whole(rig)["id"]
    too_long = response_of(ask(rig, MESSAGES, b"X-Request-Id: " + b"x" * 1025))
    assert too_long.status == 400
    refused(400, too_long.body)


def test_replies_tell_the_pod() -> None:
    found = response(RankRig("--pod-name", "p", "--pod-namespace", "n"))
    assert found.headers[b"x-inference-pod"] == b"p"
    assert found.headers[b"x-inference-namespace"] == b"n"


def test_aliases_are_answered_by_the_first_name() -> None:
    rig = RankRig("--served-model-name", 'first "one"', "second")
    assert whole(rig, model="second")["model"] == streamed(rig, model="second")["model"] == 'first "one"'


def test_a_message_is_counted() -> None:
    rig = RankRig("--mode", "echo")
    whole(rig, messages=[{"role": "user", "content": "one two"}])
    streamed(rig, messages=[{"role": "user", "content": "one two"}])
    stats = rig.rank.stats
    assert (stats.finished["stop"], stats.generation_tokens) == (2, 4)
    response(rig, COUNT)
    assert sum(stats.finished.values()) == 2
