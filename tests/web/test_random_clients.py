"""Random clients against a whole rank: nothing is held for ever, and nobody is answered twice."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.web.clients import CHAT, TEXT, choices_of, events, fields, finishes, request
from tests.web.rig import RankRig
from tests.wire.channel import Client, Reply, read_replies

FLAGS = (
    *("--max-num-seqs", "3", "--max-waiting-queue-length", "4", "--enable-request-id-headers"),
    *("--time-to-first-token", "1s", "--inter-token-latency", "300ms", "--keep-alive-timeout", "20s"),
)

BODIES = st.one_of(
    st.fixed_dictionaries(
        {
            "path": st.sampled_from([CHAT, TEXT]),
            "stream": st.booleans(),
            "n": st.integers(1, 3),
            "max_tokens": st.integers(1, 6),
        }
    ),
    st.fixed_dictionaries(
        {
            "path": st.just(TEXT),
            "stream": st.booleans(),
            "prompt": st.lists(st.sampled_from(["a", "b c"]), min_size=1, max_size=3),
            "max_tokens": st.integers(1, 6),
        }
    ),
    st.just({"path": CHAT, "n": "wrong"}),
    st.just({"path": "/version"}),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("connect"), st.none()),
        st.tuples(st.just("whole"), st.lists(BODIES, min_size=1, max_size=3)),
        st.tuples(st.just("whole"), st.lists(BODIES, min_size=1, max_size=1)),
        st.tuples(st.just("half"), BODIES),
        st.tuples(st.just("rest"), st.none()),
        st.tuples(st.just("fin"), st.none()),
        st.tuples(st.just("rst"), st.none()),
        st.tuples(st.just("unread"), st.booleans()),
        st.tuples(st.just("read"), st.none()),
        st.tuples(st.just("time"), st.sampled_from([0.0, 0.3, 1.0, 2.0])),
    ).flatmap(lambda step: st.tuples(st.just(step[0]), st.just(step[1]), st.integers(0, 3))),
    min_size=3,
    max_size=40,
)


class Visitor:
    """One client, what it has asked for, and what of a request it has still to send."""

    def __init__(self, number: int, client: Client) -> None:
        self.number = number
        self.client = client
        self.asked: list[dict[str, Any]] = []
        self.unsent = b""

    def make(self, body: dict[str, Any]) -> bytes:
        name = f"{self.number}-{len(self.asked)}"
        self.asked.append(body)
        path = body["path"]
        if path == "/version":
            return f"GET {path} HTTP/1.1\r\nHost: sim\r\nX-Request-Id: {name}\r\n\r\n".encode()
        more = {key: value for key, value in body.items() if key != "path"}
        return request(path, fields(path, **more), f"X-Request-Id: {name}")

    def act(self, kind: str, value: Any) -> None:
        transport = self.client.transport
        if transport.end and kind != "read":
            return
        if kind == "whole" and not self.unsent:
            transport.arrive(b"".join(map(self.make, value)))
        elif kind == "half" and not self.unsent:
            raw = self.make(value)
            transport.arrive(raw[: len(raw) // 2])
            self.unsent = raw[len(raw) // 2 :]
        elif kind == "rest" and self.unsent:
            transport.arrive(self.unsent)
            self.unsent = b""
        elif kind == "fin":
            self.client.fin()
        elif kind == "rst":
            self.client.rst()
        elif kind == "unread":
            transport.client_reads = False
            if value and transport.producer is not None:
                self.client.protocol.pauseProducing()
                transport._producer_paused = True
        elif kind == "read":
            transport.client_reads = True
            if not transport.end:
                transport.drain()

    def check(self) -> list[Reply]:
        """What it was sent is a prefix of what it asked for, in order, and each whole reply is a good one."""
        methods = [b"GET" if body["path"] == "/version" else b"POST" for body in self.asked]
        replies = read_replies(self.client.received, methods, self.client.fate != "open")
        answered = [r for r in replies if r.headers.get(b"x-request-id")]
        # Time-outs of the connection are nobody's answer.
        assert [r.status for r in replies[len(answered) :]] in ([], [408])
        assert len(answered) <= len(self.asked)
        for number, (reply, body) in enumerate(zip(answered, self.asked, strict=False)):
            assert reply.headers[b"x-request-id"] == f"{self.number}-{number}".encode()
            assert reply.complete or number == len(answered) - 1
            if reply.complete:
                judge(reply, body)
        return answered


def judge(reply: Reply, body: dict[str, Any]) -> None:
    if body["path"] == "/version":
        assert reply.status == 200
    elif body.get("n") == "wrong":
        assert (reply.status, reply.error["error"]["code"]) == (400, 400)
    elif reply.status == 429:
        assert reply.headers[b"retry-after"]
        assert reply.error["error"]["code"] == 429
    else:
        assert reply.status == 200, reply
        choices = len(body.get("prompt", [0])) * body.get("n", 1)
        tokens = body["max_tokens"]
        if not body["stream"]:
            found = json.loads(reply.body)
            assert [c["finish_reason"] for c in found["choices"]] == ["length"] * choices
            assert found["usage"]["completion_tokens"] == choices * tokens
            return
        frames = events(reply.body)
        assert frames.index("[DONE]") == len(frames) - 1
        assert sorted(finishes(frames)) == [(index, "length") for index in range(choices)]
        assert len(choices_of(frames)) == choices * (tokens + (body["path"] == CHAT))


def consistent(rig: RankRig) -> None:
    engine, stats = rig.rank.engine, rig.rank.stats
    assert stats.running == len(engine._running) <= 3
    assert stats.waiting == len(engine._waiting) <= 4
    assert not (stats.waiting and stats.running < 3), "a slot stays empty"
    assert engine.faults == []


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_whatever_clients_do_everything_is_free_in_the_end(steps: list[tuple[str, Any, int]]) -> None:
    rig = RankRig(*FLAGS)
    rig.rank.startService()
    visitors = [Visitor(0, rig.connect())]
    for kind, value, who in steps:
        if kind == "connect":
            if len(visitors) < 4:
                visitors.append(Visitor(len(visitors), rig.connect()))
        elif kind == "time":
            rig.clock.advance(value)
        else:
            visitors[who % len(visitors)].act(kind, value)
            # No time passes, and what was left must be free already.
            if kind != "fin":
                consistent(rig)
        rig.settle()
        consistent(rig)
        for visitor in visitors:
            visitor.check()
    for _ in range(3):
        for visitor in visitors:
            visitor.act("rest", None)
            visitor.act("read", None)
        rig.clock.pump([0.3] * 40)
    engine, stats = rig.rank.engine, rig.rank.stats
    assert engine.idle
    assert (stats.running, stats.waiting, engine.pacing.next_deadline()) == (0, 0, None)
    for visitor in visitors:
        answered = visitor.check()
        assert all(reply.complete for reply in answered) or visitor.client.fate != "open"
        if visitor.client.fate == "open":
            assert len(answered) == len(visitor.asked)
    # All that read on and stayed were answered, and those that linger are shown out.
    rig.clock.pump([1.0] * 60)
    for visitor in visitors:
        visitor.check()
    assert rig.site.connections == set()
    rig.rank.stopService()
    assert rig.clock.getDelayedCalls() == []
