"""Thousands of requests, good and bad, to the Messages routes: each is answered, and nothing is left."""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import Any

import pytest

from llmdsim.web.anthropic.request import CountTokensRequest, MessagesRequest
from tests.web import answers
from tests.web.answers import strict
from tests.web.anthropic.answers import assembled, events, merged, message, refused
from tests.web.anthropic.fuzz_values import MAKERS
from tests.web.anthropic.requests import COUNT, MESSAGES
from tests.web.clients import request
from tests.web.fuzz import Case, body_of, case_of
from tests.web.fuzz_values import fuzz_route
from tests.web.test_fuzz import FEW, MODES, Rank, quietly

fuzz_route(MESSAGES, MessagesRequest, "model", "messages", "max_tokens")
fuzz_route(COUNT, CountTokensRequest, "model", "messages")

SEEDS = 1000
UNSTREAMED = (None, False, 0.0, "0", "false", "off", "f", "n", "no", "No")


def case(seed: str) -> Case:
    """The request of a seed: always the same."""
    random = Random(seed)
    path = random.choice((MESSAGES, MESSAGES, COUNT))
    return case_of(path, body_of(path, random, MAKERS), random)


def judged(rank: Rank, path: str, *packets: bytes) -> tuple[int, Any]:
    """The status, and the message or count: a proper one, and counted if it was generated."""
    ended, tokens = rank.ended(), rank.rig.rank.stats.generation_tokens
    reply = quietly(rank, *packets)
    generated = 0
    found = None
    if reply.status != 200:
        assert reply.status in range(400, 500), reply
        # Of what could not be parsed nobody knows the path.
        malformed = b"Malformed HTTP request" in reply.body
        (answers.refused if malformed else refused)(reply.status, reply.body)
        # One that was generated and then refused is a call that was cut short.
        generated = rank.ended() - ended
        assert generated == 0 or b"call" in reply.body
    elif path == COUNT:
        found = strict(reply.body)
        assert found["input_tokens"] > 0
    else:
        streamed = reply.headers[b"content-type"].startswith(b"text/event-stream")
        found = assembled(events(reply.body)) if streamed else message(strict(reply.body))
        generated = 1
        assert found["usage"]["output_tokens"] == rank.rig.rank.stats.generation_tokens - tokens
    assert rank.ended() - ended == generated
    return reply.status, found


def twin(made: Case) -> bytes | None:
    """The same request, streamed if it was whole and whole if it was streamed."""
    try:
        document = json.loads(made.body)
    except ValueError:
        return None
    if document.get("tools") or document.get("output_config"):
        return None  # even an echo has something random to it
    document["stream"] = document.get("stream") in UNSTREAMED
    return request(made.path, document)


@pytest.mark.parametrize("start", range(0, SEEDS, FEW))
@pytest.mark.parametrize("mode", ["echo", "random", "paced"])
def test_whatever_is_sent_is_answered_properly_and_leaves_nothing(mode: str, start: int) -> None:
    rank = Rank(*MODES[mode])
    statuses: Counter[int] = Counter()
    for number in range(start, start + FEW):
        seed = f"messages {mode} {number}"
        made = case(seed)
        try:
            status, found = judged(rank, made.path, *made.packets)
            statuses[status] += 1
            other = twin(made) if mode == "echo" and status == 200 and made.path == MESSAGES else None
            if other is not None:
                status, again = judged(rank, made.path, other)
                if status == 200:
                    assert merged(again["content"]) == merged(found["content"])
                    assert again["usage"] == found["usage"]
        except BaseException:
            print(f"case({seed!r}):\n{made.wire!r}")
            raise
    # A fuzz whose bodies are all refused, or all accepted, finds little.
    assert statuses[200] >= FEW // 8
    assert statuses[400] >= FEW // 8
