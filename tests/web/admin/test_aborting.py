"""Requests ended from outside, by id or all of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.web.admin.operator import PACED, call, told
from tests.web.clients import CHAT, TEXT, events, finishes, post, reply_of
from tests.web.rig import RankRig

DEV, QUIET = "/abort_requests", "/inference/v1/abort_requests"


def reasons(client: Any) -> list[str]:
    document = json.loads(reply_of(client).body)
    return [choice["finish_reason"] for choice in document["choices"]]


@pytest.mark.parametrize("path", [DEV, QUIET])
@pytest.mark.parametrize("listed", [False, True])
def test_a_request_is_ended_by_its_id(path: str, listed: bool) -> None:
    rig = RankRig(*PACED)
    chat, text, other = (
        post(rig, CHAT, "X-Request-Id: a", n=2),
        post(rig, TEXT, "X-Request-Id: a"),
        post(rig, CHAT, "X-Request-Id: b", stream=True),
    )
    rig.clock.advance(1)
    reply = call(rig, "POST", path, {"request_ids": ["chatcmpl-a"] if listed else "chatcmpl-a"})
    assert reply.status == 200
    assert reply.body == (b'{"status":"aborted","aborted":1}' if path == DEV else b"")
    assert reasons(chat) == ["abort", "abort"]
    assert text.received == b""
    assert not reply_of(other).complete
    rig.clock.pump([1.0] * 5)
    assert reasons(text) == ["length"]
    assert finishes(events(reply_of(other).body)) == [(0, "length")]


def test_an_id_of_the_body_and_one_of_our_own_are_known() -> None:
    rig = RankRig(*PACED)
    named, unnamed = post(rig, CHAT, request_id="mine"), post(rig, TEXT, stream=True)
    rig.clock.advance(1)
    frames = reply_of(unnamed).body.removeprefix(b"data: ").partition(b"\n")[0]
    ids = ["chatcmpl-mine", json.loads(frames)["id"]]
    assert told(rig, "POST", DEV, {"request_ids": ids}) == {"status": "aborted", "aborted": 2}
    assert reasons(named) == ["abort"]
    assert finishes(events(reply_of(unnamed).body)) == [(0, "abort")]


@pytest.mark.parametrize("n", [1, 2])
def test_a_prompt_is_ended_by_the_name_the_engine_has_for_it(n: int) -> None:
    rig = RankRig(*PACED, "--max-num-seqs", "9")
    client = post(rig, TEXT, "X-Request-Id: a", prompt=["one", "two", "three"], n=n)
    rig.clock.advance(1)
    call(rig, "POST", QUIET, {"request_ids": ["cmpl-a-1", "cmpl-a-1"]})
    rig.clock.pump([1.0] * 5)
    assert reasons(client) == ["length"] * n + ["abort"] * n + ["length"] * n


def test_what_waits_is_ended_too() -> None:
    rig = RankRig(*PACED, "--max-num-seqs", "1")
    running, waiting = post(rig, CHAT, "X-Request-Id: a"), post(rig, CHAT, "X-Request-Id: b")
    told(rig, "POST", DEV, {"request_ids": ["chatcmpl-b"]})
    assert reasons(waiting) == ["abort"]
    assert (rig.rank.stats.running, rig.rank.stats.waiting) == (1, 0)
    told(rig, "POST", DEV, {"request_ids": ["chatcmpl-a"]})
    assert reasons(running) == ["abort"]
    assert rig.clock.getDelayedCalls() == []


@pytest.mark.parametrize("body", [{}, {"request_ids": []}, {"request_ids": None}, {"other": 1}])
def test_without_ids_everything_is_ended(body: dict[str, Any]) -> None:
    rig = RankRig(*PACED, "--max-num-seqs", "2")
    clients = [post(rig, CHAT, n=2) for _ in range(3)]
    assert told(rig, "POST", DEV, body) == {"status": "aborted", "aborted": 3}
    assert [reasons(client) for client in clients] == [["abort", "abort"]] * 3
    assert rig.rank.engine.idle
    assert told(rig, "POST", DEV, body) == {"status": "aborted", "aborted": 0}


def test_the_freed_slot_serves_the_next() -> None:
    rig = RankRig(*PACED, "--max-num-seqs", "1")
    post(rig, CHAT, "X-Request-Id: a")
    waiting = post(rig, CHAT)
    told(rig, "POST", DEV, {"request_ids": "chatcmpl-a"})
    rig.clock.pump([1.0] * 5)
    assert reasons(waiting) == ["length"]


@pytest.mark.parametrize("path", [DEV, QUIET])
def test_unknown_ids_end_nothing(path: str) -> None:
    rig = RankRig(*PACED)
    post(rig, CHAT, "X-Request-Id: a")
    for ids in (["a", "cmpl-a", "chatcmpl-", "chatcmpl-a-0"], "", ["chatcmpl-A"] * 500):
        if path == QUIET or ids:
            assert call(rig, "POST", path, {"request_ids": ids}).status == 200
    assert rig.rank.stats.running == 1


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (DEV, b"", 400),
        (DEV, b"[]", 400),
        (DEV, b"{", 400),
        (DEV, {"request_ids": 5}, 400),
        (DEV, {"request_ids": ["a", 5]}, 400),
        (QUIET, {}, 400),
        (QUIET, b"", 400),
        (QUIET, ["a"], 400),
        (DEV, {"request_ids": "a" * (1 << 17)}, 413),
    ],
)
def test_what_cannot_be_read_ends_nothing(path: str, body: Any, status: int) -> None:
    rig = RankRig(*PACED)
    post(rig, CHAT)
    reply = call(rig, "POST", path, body)
    assert (reply.status, reply.error["error"]["code"]) == (status, status)
    assert rig.rank.stats.running == 1


def test_an_empty_list_ends_nothing_where_ids_must_be_named() -> None:
    rig = RankRig(*PACED)
    post(rig, CHAT)
    assert call(rig, "POST", QUIET, {"request_ids": []}).status == 200
    assert rig.rank.stats.running == 1
