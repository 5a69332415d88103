"""Code of ours that fails in the middle of a reply: its client is told, and nobody else notices."""

from __future__ import annotations

import pytest
from twisted.logger import capturedLogs

from llmdsim.reply.ask import Ask
from llmdsim.reply.reply import Reply, ShortSentenceReply
from tests.web.rig import RankRig

CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "ignore_eos": True}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 3])
def test_a_writer_that_fails_is_a_500_and_frees_everything(stream: bool, n: int) -> None:
    rig = RankRig("--time-to-first-token", "1s")
    write = rig.rank.engine._write

    def fail_once(ask: Ask) -> Reply:
        rig.rank.engine._write = write
        raise ValueError("on purpose")

    rig.rank.engine._write = fail_once
    with capturedLogs() as events:
        client = rig.post("/v1/chat/completions", {**CHAT, "n": n, "stream": stream})
    assert len(events) == 1
    (reply,) = client.replies(b"POST")
    if stream:
        assert b'"code":500' in reply.body
        assert reply.body.endswith(b"data: [DONE]\n\n")
    else:
        assert (reply.status, reply.error["error"]["code"]) == (500, 500)
    assert rig.rank.engine.idle
    rig.clock.pump([0.5] * 10)
    assert rig.post("/v1/chat/completions", CHAT).replies(b"POST") == []
    rig.clock.pump([0.5] * 3)
    assert rig.rank.engine.idle


def test_a_sink_that_fails_ends_its_own_reply_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = RankRig("--time-to-first-token", "1s", "--inter-token-latency", "1s")
    bad = rig.post("/v1/chat/completions", CHAT)
    good = rig.post("/v1/chat/completions", {**CHAT, "stream": True})

    def broken(_: Reply) -> bytes:
        raise ValueError("on purpose")

    # Only a whole reply asks for all of its text.
    monkeypatch.setattr(ShortSentenceReply, "json_text", broken)
    with capturedLogs() as events:
        rig.clock.pump([1.0] * 6)
    assert len(events) == 1
    (reply,) = bad.replies(b"POST")
    assert (reply.status, reply.error["error"]["type"]) == (500, "InternalServerError")
    (reply,) = good.replies(b"POST")
    assert reply.body.endswith(b"data: [DONE]\n\n")
    assert rig.rank.engine.idle
