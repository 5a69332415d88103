"""Thousands of bodies to `/v1/responses`: each is answered properly, and nothing is left."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from twisted.internet.defer import maybeDeferred

from tests.web.answers import refused, strict
from tests.web.responses.events import judge, parse, text_of
from tests.web.responses.fuzz import response_case
from tests.web.responses.rig import PATH
from tests.web.test_fuzz import MODES, UNSTREAMED, Rank, quietly
from tests.wire.channel import Reply, post

#: Fields with which even an echo has something random to it, and those that make the next answer differ.
UNREPEATABLE = {"tools", "text", "structured_outputs", "background", "previous_response_id"}
SEEDS = 1000
FEW = 100


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no reactor to wait for a thread."""
    for module in ("llmdsim.web.whole", "llmdsim.web.responses.background"):
        monkeypatch.setattr(f"{module}.deferToThread", maybeDeferred)


def answered(reply: Reply) -> Any:
    """The response object in a proper answer; None for a refusal."""
    kind = reply.headers[b"content-type"]
    if reply.status != 200:
        assert 400 <= reply.status < 500, reply.body[:500]
        refused(reply.status, reply.body)
        return None
    if kind == b"application/json":
        made = strict(reply.body)
    else:
        assert kind == b"text/event-stream; charset=utf-8"
        made = judge(parse(reply.body))
    assert made["object"] == "response"
    return made


def twin(body: bytes) -> bytes | None:
    """The same request, streamed if it was whole and whole if it was streamed; None where answers differ."""
    try:
        document = json.loads(body)
    except ValueError:
        return None
    if not UNREPEATABLE.isdisjoint(document):
        return None
    document["stream"] = document.get("stream") in UNSTREAMED
    return json.dumps(document).encode()


def said(made: Any) -> Any:
    return made["status"], "".join(map(text_of, made["output"])), made["usage"]


@pytest.mark.parametrize("start", range(0, SEEDS, FEW))
@pytest.mark.parametrize("mode", [*MODES, "thinking"])
def test_whatever_is_sent_is_answered_properly_and_leaves_nothing(mode: str, start: int) -> None:
    thinking = mode == "thinking"
    rank = Rank(*MODES["random"], "--reasoning-parser", "x") if thinking else Rank(*MODES[mode])
    stats = rank.rig.rank.stats
    statuses: Counter[int] = Counter()
    for number in range(start, start + FEW):
        seed = f"{mode} {number}"
        case = response_case(seed)
        try:
            ended, tokens = rank.ended(), stats.generation_tokens
            reply = quietly(rank, *case.packets)
            statuses[reply.status] += 1
            made = answered(reply)
            assert rank.ended() - ended == (made is not None)
            if made is None or made["status"] == "queued":
                continue
            usage = made["usage"]
            assert usage["output_tokens"] == stats.generation_tokens - tokens <= made["max_output_tokens"]
            assert usage["input_tokens"] + usage["output_tokens"] == usage["total_tokens"]
            for item in made["output"]:
                if item["type"] == "function_call" and item["status"] == "completed":
                    assert type(strict(item["arguments"].encode())) is dict
            other = twin(case.body) if mode == "echo" else None
            if other is not None:
                again = answered(quietly(rank, post(other, path=PATH.encode())))
                assert again is None or said(again) == said(made), "streamed and whole differ"
        except BaseException:
            print(f"response_case({seed!r}):\n{case.wire!r}")
            raise
    # A fuzz whose bodies are all refused, or all accepted, finds little.
    assert statuses[200] >= FEW // 8
    assert statuses[400] >= FEW // 8
