"""Pausing: what runs is cut short, finishes or stands still; what comes is refused or waits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.web.admin.operator import PACED, answer, begin, call, told
from tests.web.clients import CHAT, TEXT, events, fields, finishes, post, reply_of
from tests.web.rig import PassRig, RankRig

BOTH = pytest.mark.parametrize("path", [CHAT, TEXT])


def choices(client: Any) -> Any:
    reply = reply_of(client)
    assert (reply.status, reply.complete) == (200, True)
    return json.loads(reply.body)["choices"]


@BOTH
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("tokens", [0, 2])
def test_what_is_cut_short_answers_200_with_what_there_is(path: str, n: int, tokens: int) -> None:
    rig = RankRig(*PACED, "--max-num-seqs", "2", "--mode", "echo")
    prompt = {"messages": [{"role": "user", "content": "a b c d e f g"}], "prompt": "a b c d e f g"}
    body = {key: value for key, value in prompt.items() if key in fields(path)}
    client = post(rig, path, n=n, **body)
    rig.clock.pump([1.0] * tokens)
    told(rig, "POST", "/pause")
    document = json.loads(reply_of(client).body)
    running = min(n, 2)
    texts = [
        choice["text"] if path == TEXT else choice["message"]["content"] for choice in document["choices"]
    ]
    # The third had no slot yet.
    assert [len(text.split()) for text in texts] == ([tokens] * running + [0])[:n]
    assert [choice["finish_reason"] for choice in document["choices"]] == ["abort"] * n
    assert [choice["stop_reason"] for choice in document["choices"]] == [None] * n
    assert document["usage"]["completion_tokens"] == tokens * running
    assert (rig.rank.stats.finished["abort"], rig.rank.engine.idle) == (n, True)
    assert rig.clock.getDelayedCalls() == []


@BOTH
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("tokens", [0, 2])
def test_a_stream_that_is_cut_short_ends_in_order(path: str, n: int, tokens: int) -> None:
    rig = RankRig(*PACED, "--max-num-seqs", "2")
    client = post(rig, path, stream=True, n=n, stream_options={"include_usage": True}, return_token_ids=True)
    rig.clock.pump([1.0] * tokens)
    told(rig, "POST", "/pause")
    reply = reply_of(client)
    frames = events(reply.body)
    assert reply.complete
    assert frames[-1] == "[DONE]"
    assert sorted(finishes(frames)) == [(index, "abort") for index in range(n)]
    assert frames[-2]["usage"]["completion_tokens"] == tokens * min(n, 2)


@BOTH
def test_log_probabilities_end_where_the_reply_was_cut(path: str) -> None:
    rig = RankRig(*PACED)
    asked: dict[str, Any] = {"logprobs": 2} if path == TEXT else {"logprobs": True, "top_logprobs": 2}
    client = post(rig, path, **asked)
    rig.clock.pump([1.0] * 3)
    told(rig, "POST", "/pause")
    (choice,) = choices(client)
    listed = choice["logprobs"]
    assert len(listed["tokens"] if path == TEXT else listed["content"]) == 3


@pytest.mark.parametrize("mode", ["abort", "wait"])
def test_generation_is_refused_until_it_resumes(mode: str) -> None:
    rig = RankRig()
    assert call(rig, "POST", f"/pause?mode={mode}").body == b'{"status":"paused"}'
    assert told(rig, "GET", "/is_paused") == {"is_paused": True}
    assert told(rig, "GET", "/is_sleeping") == {"is_sleeping": True}  # as vLLM tells it
    reply = call(rig, "POST", CHAT, fields(CHAT))
    assert (reply.status, reply.error["error"]["type"]) == (503, "ServiceUnavailableError")
    assert "/resume" in reply.error["error"]["message"]
    assert call(rig, "POST", "/resume").body == b'{"status":"resumed"}'
    assert told(rig, "GET", "/is_paused") == {"is_paused": False}
    assert call(rig, "POST", CHAT, fields(CHAT)).status == 200


def test_with_keep_time_stands_still_for_what_runs_and_what_comes() -> None:
    rig = RankRig(*PACED)
    rig.rank.context.ready = True
    running = post(rig, CHAT, stream=True)
    rig.clock.pump([1.0, 0.5])
    told(rig, "POST", "/pause?mode=keep")
    assert call(rig, "GET", "/ready").status == 200
    waiting = post(rig, CHAT)
    before = running.received
    rig.clock.pump([1.0] * 60)
    assert (running.received, waiting.received) == (before, b"")
    assert (rig.rank.stats.running, rig.rank.stats.waiting) == (1, 1)
    told(rig, "POST", "/resume")
    rig.clock.advance(0.25)
    assert running.received == before
    rig.clock.advance(0.25)
    assert running.received != before
    rig.clock.pump([1.0] * 6)
    assert finishes(events(reply_of(running).body)) == [(0, "length")]
    assert choices(waiting)[0]["finish_reason"] == "length"


def test_a_client_that_leaves_a_standing_engine_frees_its_slot() -> None:
    rig = RankRig(*PACED)
    running, waiting = post(rig, CHAT), post(rig, CHAT, stream=True)
    told(rig, "POST", "/pause?mode=keep")
    running.rst()
    waiting.rst()
    assert rig.rank.engine.idle
    told(rig, "POST", "/resume")
    assert rig.clock.getDelayedCalls() == []


def test_with_wait_what_has_no_slot_waits_on() -> None:
    rig = RankRig(*PACED, "--max-num-seqs", "1")
    running, waiting = post(rig, CHAT), post(rig, CHAT)
    pausing = begin(rig, "POST", "/pause?mode=wait")
    rig.clock.pump([1.0] * 5 + [0.01])
    assert json.loads(answer(pausing).body) == {"status": "paused"}
    assert choices(running)[0]["finish_reason"] == "length"
    rig.clock.pump([1.0] * 9)
    assert waiting.received == b""
    told(rig, "POST", "/resume")
    rig.clock.pump([1.0] * 5)
    assert choices(waiting)[0]["finish_reason"] == "length"


def test_who_waits_for_a_pause_that_is_ended_is_answered() -> None:
    rig = RankRig(*PACED)
    running = post(rig, CHAT)
    pausing = [begin(rig, "POST", "/pause?mode=wait") for _ in range(3)]
    told(rig, "POST", "/resume")
    rig.clock.advance(0.01)
    assert [answer(client).status for client in pausing] == [200] * 3
    rig.clock.pump([1.0] * 5)
    assert choices(running)[0]["finish_reason"] == "length"
    assert rig.clock.getDelayedCalls() == []


def test_who_leaves_before_the_pause_is_complete_does_not_end_it() -> None:
    rig = RankRig(*PACED)
    post(rig, CHAT)
    pausing, another = (begin(rig, "POST", "/pause?mode=wait") for _ in range(2))
    pausing.rst()
    rig.clock.pump([1.0] * 5 + [0.01])
    assert answer(another).status == 200
    assert told(rig, "GET", "/is_paused") == {"is_paused": True}
    assert rig.clock.getDelayedCalls() == []


def test_one_pause_may_follow_another() -> None:
    rig = RankRig(*PACED)
    running = post(rig, CHAT)
    rig.clock.advance(1)
    told(rig, "POST", "/pause?mode=keep")
    rig.clock.advance(100)
    pausing = begin(rig, "POST", "/pause?mode=wait")
    rig.clock.pump([1.0] * 4 + [0.01])
    assert answer(pausing).status == 200
    assert choices(running)[0]["finish_reason"] == "length"
    assert call(rig, "POST", CHAT, fields(CHAT)).status == 503
    told(rig, "POST", "/pause?mode=keep")
    waiting = post(rig, CHAT)
    told(rig, "POST", "/pause?mode=abort")
    assert choices(waiting)[0]["finish_reason"] == "abort"


def test_what_was_being_prepared_is_refused_when_it_comes() -> None:
    rig = PassRig("--max-model-len", "100000")
    client = post(rig, TEXT, prompt="word " * 50_000)
    rig.turns(2)
    assert rig.rank.context.turns.busy
    told(rig, "POST", "/pause")
    rig.finish()
    reply = reply_of(client)
    assert (reply.status, rig.rank.engine.idle) == (503, True)


def test_a_pause_pipelined_behind_a_reply_holds() -> None:
    """It may come to be answered in the middle of a pass of the engine."""
    rig = RankRig(*PACED)
    others = [post(rig, CHAT, max_tokens=9) for _ in range(2)]
    client = post(rig, CHAT).send(b"POST /pause?mode=keep HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
    rig.clock.pump([1.0] * 5)
    assert client.received.endswith(b'{"status":"paused"}')
    tokens = rig.rank.stats.generation_tokens
    rig.clock.pump([1.0] * 50)
    assert rig.rank.stats.generation_tokens == tokens
    told(rig, "POST", "/resume")
    rig.clock.pump([1.0] * 5)
    assert [choices(other)[0]["finish_reason"] for other in others] == ["length"] * 2


@pytest.mark.parametrize(
    ("query", "param"), [("mode=stop", "query.mode"), ("clear_cache=perhaps", "query.clear_cache")]
)
def test_a_bad_query_is_refused_and_nothing_happens(query: str, param: str) -> None:
    rig = RankRig()
    reply = call(rig, "POST", f"/pause?{query}")
    assert (reply.status, reply.error["error"]["param"]) == (400, param)
    assert told(rig, "GET", "/is_paused") == {"is_paused": False}


@pytest.mark.parametrize(
    ("query", "cleared"),
    [
        ("", 1),
        ("?clear_cache=false", 0),
        ("?mode=keep", 1),
        ("?mode=keep&clear_cache=false", 0),
        ("?mode=wait", 1),
        ("?mode=wait&clear_cache=0", 0),
    ],
)
def test_the_prefix_cache_is_cleared_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, query: str, cleared: int
) -> None:
    rig = RankRig(*PACED)
    resets: list[bool] = []
    monkeypatch.setattr(rig.rank.engine, "reset_prefix_cache", lambda now, preempt: resets.append(preempt))
    post(rig, CHAT)
    begin(rig, "POST", f"/pause{query}")
    rig.clock.pump([1.0] * 6)
    assert resets == [True] * cleared
