"""Messages of several parts, made by hand: their blocks, their order, and why they end."""

from __future__ import annotations

import json

import pytest

from llmdsim.reply.parts import PartedReply
from tests.web.anthropic.answers import assembled, events, merged, refused
from tests.web.anthropic.asking import PACED, ask, response, streamed, whole
from tests.web.anthropic.replies import SAYS, THINKS, calls, reply_of, say
from tests.web.clients import reply_of as response_of
from tests.web.rig import RankRig

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
