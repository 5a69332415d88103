"""Random clients against a whole rank: nothing is held for ever, none is answered twice, all are counted."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from llmdsim.engine.sequence import Sequence
from llmdsim.web.whole import WholeReply
from llmdsim.wire.http1 import HTTP1
from llmdsim.wire.request import Request
from tests.web.clients import CHAT, TEXT, choices_of, events, fields, finishes, request
from tests.web.rig import RankRig
from tests.wire.channel import Client, Reply, pieces, post_chunks, read_replies

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
#: How a request is put: its body in one piece or in chunks, announced or not.
REQUESTS = st.tuples(BODIES, st.sampled_from(["length", "chunks", "expect", "chunks, expect"]))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("connect"), st.none()),
        st.tuples(st.just("whole"), st.lists(REQUESTS, min_size=1, max_size=3)),
        st.tuples(st.just("whole"), st.lists(REQUESTS, min_size=1, max_size=1)),
        st.tuples(st.just("part"), st.tuples(REQUESTS, st.floats(0, 1))),
        st.tuples(st.just("rest"), st.none()),
        st.tuples(st.just("nonsense"), st.sampled_from([b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"])),
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
        self.talks_nonsense = False

    def make(self, wanted: tuple[dict[str, Any], str]) -> bytes:
        body, framing = wanted
        name = f"{self.number}-{len(self.asked)}"
        self.asked.append(body)
        path = body["path"]
        if path == "/version":
            return f"GET {path} HTTP/1.1\r\nHost: sim\r\nX-Request-Id: {name}\r\n\r\n".encode()
        more = {key: value for key, value in body.items() if key != "path"}
        headers = [f"X-Request-Id: {name}", *(["Expect: 100-continue"] if "expect" in framing else [])]
        raw = request(path, fields(path, **more), *headers)
        if "chunks" not in framing:
            return raw
        data = raw.partition(b"\r\n\r\n")[2]
        return post_chunks(pieces(data, 20), *[h.encode() for h in headers], path=path.encode())

    def act(self, kind: str, value: Any) -> None:
        transport = self.client.transport
        if transport.end and kind != "read":
            return
        speaks = not self.unsent and not self.talks_nonsense
        if kind == "whole" and speaks:
            transport.arrive(b"".join(map(self.make, value)))
        elif kind == "part" and speaks:
            wanted, share = value
            raw = self.make(wanted)
            cut = max(1, min(len(raw) - 1, round(len(raw) * share)))
            transport.arrive(raw[:cut])
            self.unsent = raw[cut:]
        elif kind == "rest" and self.unsent:
            transport.arrive(self.unsent)
            self.unsent = b""
        elif kind == "nonsense" and speaks:
            transport.arrive(value)
            self.talks_nonsense = True
        elif kind == "fin":
            self.client.fin()
        elif kind == "rst":
            self.client.rst()
        elif kind == "unread":
            transport.stop_reading(value)
        elif kind == "read":
            transport.client_reads = True
            if not transport.end:
                transport.drain()

    def check(self) -> list[Reply]:
        """What it was sent is a prefix of what it asked for, in order, and each whole reply is a good one."""
        methods = [b"GET" if body["path"] == "/version" else b"POST" for body in self.asked]
        replies = read_replies(self.client.received, methods, self.client.fate != "open")
        replies = [reply for reply in replies if reply.status != 100]
        assert all(r.headers[b"x-request-id"] for r in replies)
        if replies and replies[-1].status == 408:
            replies.pop()
            assert self.unsent
        answered = replies[: len(self.asked)]
        # Nonsense is answered behind all that was asked for.
        assert [r.status for r in replies[len(answered) :]] == [400] * (len(replies) > len(answered))
        assert len(answered) == len(replies) or self.talks_nonsense
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


class CountingRig(RankRig):
    """A rank that counts what it took on, and notes each request that was handed on and each that ended."""

    def __init__(self, *flags: str) -> None:
        super().__init__(*flags)
        self.submitted = 0
        self.begun: list[Request] = []
        self.ended: list[Request] = []
        submit, handle = self.rank.driver.submit, self.site.handle

        def counted(sequences: Collection[Sequence]) -> None:
            submit(sequences)
            self.submitted += len(sequences)

        def noted(request: Request) -> None:
            self.begun.append(request)
            handle(request)

        self.rank.driver.submit = counted  # type: ignore[method-assign]
        self.site.handle = noted
        self.site.on_ended.append(self.ended.append)


def request_of(sequence: Sequence) -> Request:
    sink: Any = sequence.sink
    request: Request = sink.request if isinstance(sink, WholeReply) else sink._stream.request
    return request


def consistent(rig: CountingRig) -> None:
    engine, stats = rig.rank.engine, rig.rank.stats
    for sequence in (*engine._running, *engine._waiting):
        assert not request_of(sequence).finished, "it runs for nobody"
    assert sum(stats.finished.values()) + stats.running + stats.waiting == rig.submitted
    assert len({id(request) for request in rig.ended}) == len(rig.ended), "an end was told twice"
    handed_on = {id(request) for request in rig.begun}
    assert all(id(r) in handed_on or r.status in (400, 408) for r in rig.ended)
    unended = len(rig.begun) - sum(id(r) in handed_on for r in rig.ended)
    assert unended == sum(isinstance(c, HTTP1) and c._current is not None for c in rig.site.connections)
    assert stats.running == len(engine._running) <= 3
    assert stats.waiting == len(engine._waiting) <= 4
    assert not (stats.waiting and stats.running < 3), "a slot stays empty"
    assert engine.faults == []


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_whatever_clients_do_everything_is_free_in_the_end(steps: list[tuple[str, Any, int]]) -> None:
    rig = CountingRig(*FLAGS)
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
    assert all(request.finished for request in rig.begun)
    # What ended otherwise than by its own nature ended because its client left.
    aborted = stats.finished["abort"]
    assert sum(stats.finished.values()) == rig.submitted
    assert not aborted or any(request.lost for request in rig.ended)
    # All that read on and stayed were answered, and those that linger are shown out.
    rig.clock.pump([1.0] * 60)
    for visitor in visitors:
        visitor.check()
    assert rig.site.connections == set()
    rig.rank.stopService()
    assert rig.clock.getDelayedCalls() == []
