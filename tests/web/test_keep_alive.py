"""Comments in silent streams: when they come, and when they do not."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from llmdsim.web.keep_alive import COMMENT
from tests.web.clients import CHAT, TEXT, events, finishes, reply_of, request, said, watched
from tests.web.rig import RankRig
from tests.wire.channel import Client

EVERY = ("--sse-keep-alive-interval", "5")
SLOW = ("--time-to-first-token", "12s", "--inter-token-latency", "6s", "--max-num-seqs", "1")
BOTH = pytest.mark.parametrize("path", [CHAT, TEXT])
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "a"}]},
    TEXT: {"prompt": "a"},
    "/v1/messages": {"model": "m", "messages": [{"role": "user", "content": "a"}]},
    "/v1/responses": {"input": "a"},
    "/inference/v1/generate": {"token_ids": [1]},
}


def ask(rig: RankRig, path: str, *headers: str, **more: Any) -> Client:
    body = {**BODIES[path], "max_tokens": 3, "ignore_eos": True, "stream": True, **more}
    return watched(rig).send(request(path, body, *headers))


def pass_seconds(rig: RankRig, client: Client, seconds: int) -> list[tuple[int, int]]:
    """After which seconds something was written, and how many comments were in that."""
    found = []
    for second in range(1, seconds + 1):
        before = len(client.transport.writes)  # type: ignore[attr-defined]
        rig.clock.advance(1.0)
        written = b"".join(client.transport.writes[before:])  # type: ignore[attr-defined]
        if written:
            found.append((second, written.count(COMMENT)))
    return found


def without_comments(client: Client) -> list[Any]:
    reply = reply_of(client)
    assert (reply.status, reply.complete) == (200, True)
    return events(reply.body.replace(COMMENT, b""))


@BOTH
def test_a_comment_comes_whenever_nothing_has_for_so_long(path: str) -> None:
    rig = RankRig(*SLOW, *EVERY)
    client = ask(rig, path)
    head = client.received
    assert head.endswith(b"\r\n\r\n"), "the head goes out at once"
    # Tokens at 12, 18 and 24.
    assert pass_seconds(rig, client, 60) == [(5, 1), (10, 1), (12, 0), (17, 1), (18, 0), (23, 1), (24, 0)]
    frames = without_comments(client)
    assert finishes(frames) == [(0, "length")]
    assert frames[-1] == "[DONE]"
    assert rig.clock.getDelayedCalls() == []


@BOTH
def test_in_the_queue_too(path: str) -> None:
    rig = RankRig(*SLOW, *EVERY)
    ask(rig, path)
    waiting = ask(rig, path)
    found = pass_seconds(rig, waiting, 70)
    assert found[:7] == [(5, 1), (10, 1), (15, 1), (20, 1), (25, 1), (30, 1), (35, 1)]
    assert finishes(without_comments(waiting)) == [(0, "length")]


def test_nothing_is_sent_without_the_option() -> None:
    rig = RankRig(*SLOW)
    client = ask(rig, CHAT)
    pass_seconds(rig, client, 60)
    assert COMMENT not in client.received


@pytest.mark.parametrize("path", [path for path in BODIES if path not in (CHAT, TEXT)])
def test_other_routes_have_none(path: str) -> None:
    """As in vLLM."""
    rig = RankRig(*SLOW, *EVERY)
    client = ask(rig, path)
    pass_seconds(rig, client, 60)
    assert b"keep-alive" not in client.received


@BOTH
def test_a_stream_that_is_never_silent_has_none(path: str) -> None:
    rig = RankRig("--inter-token-latency", "4s", *EVERY)
    client = ask(rig, path, max_tokens=9)
    pass_seconds(rig, client, 60)
    assert COMMENT not in client.received
    assert rig.clock.getDelayedCalls() == []


@BOTH
def test_tokens_that_are_kept_for_a_later_delta_do_not_break_the_silence(path: str) -> None:
    rig = RankRig("--inter-token-latency", "3s", *EVERY, "--stream-interval", "3")
    client = ask(rig, path, max_tokens=7)
    # Deltas at 0, 9 and 18.
    assert pass_seconds(rig, client, 60) == [(5, 1), (9, 0), (14, 1), (18, 0)]


@BOTH
def test_whole_replies_have_none(path: str) -> None:
    rig = RankRig(*SLOW, *EVERY)
    client = ask(rig, path, stream=False)
    assert pass_seconds(rig, client, 60) == [(24, 0)]


@BOTH
@pytest.mark.parametrize("seconds", [0, 7, 13])
@pytest.mark.parametrize("leave", [Client.rst, Client.fin])
@pytest.mark.parametrize("fault", ["", "X-Fault: slow-headers; for=30s", "X-Fault: stall; after=1; for=30s"])
def test_none_follows_a_client_that_left(
    path: str, seconds: int, leave: Callable[[Client], object], fault: str
) -> None:
    rig = RankRig(*SLOW, *EVERY)
    client = ask(rig, path, *[fault] * bool(fault))
    pass_seconds(rig, client, seconds)
    leave(client)
    rig.clock.pump([0, 0, 0])
    assert rig.clock.getDelayedCalls() == []
    assert rig.rank.engine.idle


@BOTH
@pytest.mark.parametrize("flags", [("--max-num-queued-reqs", "0"), ("--failure-injection-rate", "100")])
def test_none_follows_a_refusal(path: str, flags: tuple[str, ...]) -> None:
    rig = RankRig(*EVERY, *flags)
    client = ask(rig, path)
    assert reply_of(client).status != 200
    assert rig.clock.getDelayedCalls() == []


@BOTH
def test_none_is_kept_for_a_client_that_does_not_read(path: str) -> None:
    rig = RankRig(*SLOW, *EVERY)
    client = ask(rig, path)
    client.transport.stop_reading()
    pass_seconds(rig, client, 1)
    client.transport.producer.pauseProducing()  # type: ignore[union-attr]
    before = len(client.transport.writes)  # type: ignore[attr-defined]
    rig.clock.pump([1.0] * 10)
    assert len(client.transport.writes) == before  # type: ignore[attr-defined]
    client.transport.producer.resumeProducing()  # type: ignore[union-attr]
    client.transport.client_reads = True
    rig.clock.pump([1.0] * 30)
    client.settle()
    assert finishes(without_comments(client)) == [(0, "length")]


@BOTH
@pytest.mark.parametrize(
    ("fault", "comments"),
    [("stall; after=1; for=20s", 3), ("no-done", 4), ("garble; after=2", 4), ("truncate; after=1", 3)],
)
def test_faults_go_on_beneath(path: str, fault: str, comments: int) -> None:
    rig = RankRig(*SLOW, *EVERY)
    client = ask(rig, path, f"X-Fault: {fault}")
    pass_seconds(rig, client, 80)
    assert client.received.count(COMMENT) == comments
    assert rig.clock.getDelayedCalls() == []
    assert rig.rank.engine.idle


@BOTH
def test_a_reset_ends_them(path: str) -> None:
    rig = RankRig(*SLOW, *EVERY)
    client = ask(rig, path, "X-Fault: reset; after=1")
    assert pass_seconds(rig, client, 60)[:2] == [(5, 1), (10, 1)]
    assert client.fate == "reset"
    assert rig.clock.getDelayedCalls() == []


def test_http_1_0_has_them_without_chunks() -> None:
    rig = RankRig(*SLOW, *EVERY)
    data = request(TEXT, {**BODIES[TEXT], "max_tokens": 1, "stream": True}).replace(b"HTTP/1.1", b"HTTP/1.0")
    client = watched(rig).send(data)
    rig.clock.pump([1.0] * 20)
    assert b"\r\n\r\n: keep-alive\n\n: keep-alive\n\ndata: " in client.received


def test_the_connection_goes_on_with_the_next_request() -> None:
    rig = RankRig(*SLOW, *EVERY)
    client = ask(rig, TEXT)
    rig.clock.pump([1.0] * 60)
    client.transport.clear()
    client.send(request(TEXT, {**BODIES[TEXT], "max_tokens": 1, "stream": True}))
    assert pass_seconds(rig, client, 20) == [(5, 1), (10, 1), (12, 0)]
    assert said(without_comments(client))


def test_a_request_is_free_when_it_has_ended() -> None:
    rig = RankRig(*EVERY)
    ended: list[Any] = []
    rig.site.on_ended.append(lambda request: ended.append(weakref.ref(request)))
    gc.collect()
    gc.disable()
    try:
        ask(rig, TEXT)
        (request_ended,) = ended
        assert request_ended() is None
    finally:
        gc.enable()
