"""The Messages routes of a rank in memory: what is answered, when, and what ends it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.web.anthropic.answers import assembled, events, merged, message, refused
from tests.web.anthropic.asking import PACED, ask, response, streamed, whole
from tests.web.anthropic.replies import THINKS, reply_of, say
from tests.web.anthropic.requests import COUNT, MESSAGES, USER, WEATHER, said_by
from tests.web.clients import reply_of as response_of
from tests.web.rig import PassRig, RankRig


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


def test_cached_tokens_are_no_input() -> None:
    rig = RankRig("--mode", "echo", *PACED)
    asked = [{"role": "user", "content": "one two three"}]
    clients = [ask(rig, stream=stream, messages=asked) for stream in (False, True)]
    rig.clock.advance(1.0)
    for sequence in rig.rank.engine._running:
        sequence.cached_tokens, sequence.created_tokens = 3, 2
    rig.clock.pump([1.0] * 3)
    made, told = (response_of(client).body for client in clients)
    for found in (message(json.loads(made)), assembled(events(told))):
        counts = found["usage"]
        assert counts["cache_read_input_tokens"] == 3
        assert counts["cache_creation_input_tokens"] == 2
        assert (
            counts["input_tokens"] + 5
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


def test_an_encoder_tells_where_its_encodings_are() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    rig = RankRig("--mm-encoder-only", "--max-model-len", "4096")
    made = json.loads(response(rig, messages=[said_by("user", image)]).body)
    assert list(made)[-2:] == ["usage", "ec_transfer_params"]
    assert next(iter(made["ec_transfer_params"])).startswith("sim_img_0_")
    assert "ec_transfer_params" not in whole(rig)


@pytest.mark.parametrize("answer", [whole, streamed])
def test_b19_a_prompt_that_is_cached_too_little_has_an_answer_of_nothing(answer: Any) -> None:
    rig = RankRig("--enable-kvcache")
    made = answer(rig, cache_hit_threshold=0.9)
    assert made["stop_reason"] == "max_tokens"
    assert merged(made["content"]) == ("", "", [])
    assert made["usage"]["output_tokens"] == 0
    assert rig.rank.stats.generation_tokens == 0


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
