"""What faults make of responses: every byte that leaves, when, and how the connection ends."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

import pytest
from twisted.logger import capturedLogs

from llmdsim.config.fault import KINDS as KINDS_OF_FAULTS
from llmdsim.web.faulty_channel import PIECES
from llmdsim.web.response_form import HTTP_FORM
from llmdsim.wire.request import Request
from tests.logs.rig import LoggedRank, of
from tests.web.clients import CHAT, TEXT, events, fields, post, reply_of, request, watched
from tests.web.rig import PassRig, RankRig
from tests.wire.channel import Client, Reply

PACED = ("--time-to-first-token", "1s", "--inter-token-latency", "1s", "--seed", "1")
carries_token = HTTP_FORM.carries_token

BOTH = pytest.mark.parametrize("path", [CHAT, TEXT])
PACES = pytest.mark.parametrize("flags", [PACED, ("--seed", "1")], ids=["paced", "at once"])
KINDS = pytest.mark.parametrize("stream", [False, True])


class Faulty:
    """A rank that has been sent one request that asks for `fault`, and the client that sent it."""

    def __init__(self, fault: str, path: str = CHAT, flags: tuple[str, ...] = PACED, **body: Any) -> None:
        self.rig = RankRig(*flags)
        self.ended: list[Request] = []
        self.rig.site.on_ended.append(self.ended.append)
        handle = self.rig.site.handle

        def note(request: Request) -> None:
            self.request = request
            handle(request)

        self.rig.site.handle = note
        self.client = post(self.rig, path, f"X-Fault: {fault}", **{"stream": True, "seed": 3, **body})

    def wait(self, seconds: float) -> Faulty:
        self.rig.clock.pump([0.25] * round(seconds * 4))
        return self

    @property
    def reply(self) -> Reply:
        return reply_of(self.client)

    @property
    def frames(self) -> list[Any]:
        """Of whole events."""
        return events(self.reply.body)

    def all_is_free(self) -> bool:
        stats = self.rig.rank.stats
        return self.rig.rank.engine.idle and stats.running == stats.waiting == 0

    def shown(self) -> dict[str, int]:
        return {kind: number for kind, number in self.rig.rank.stats.faults.items() if number}

    def serves_on(self) -> bool:
        """Whether the connection does."""
        start = len(self.client.received)
        self.client.send(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
        return self.client.received[start:].startswith(b"HTTP/1.1 200 OK")


def plain(path: str, stream: bool = True, flags: tuple[str, ...] = PACED, **body: Any) -> bytes:
    """The body that the same request is answered with when nothing goes wrong, ids and times left out."""
    rig = RankRig(*flags)
    client = post(rig, path, stream=stream, seed=3, **body)
    rig.clock.pump([0.25] * 40)
    return same(reply_of(client).body)


def same(body: bytes) -> bytes:
    """A body with what differs from request to request made equal."""
    body = re.sub(rb'"id":"(chatcmpl|cmpl)-[0-9a-f]{16}"', b'"id":"x"', body)
    body = re.sub(rb'"system_fingerprint":"[^"]+"', b'"system_fingerprint":"x"', body)
    return re.sub(rb'"created":\d+', b'"created":0', body)


def tokens(body: bytes) -> int:
    return sum(map(carries_token, body.split(b"\n\n")))


# --- resets


@BOTH
@KINDS
def test_r86_a_reset_at_once(path: str, stream: bool) -> None:
    faulty = Faulty("reset", path, stream=stream)
    assert faulty.client.received == b""
    faulty.rig.settle()
    assert faulty.client.fate == "reset"
    assert faulty.all_is_free()
    assert not any(faulty.rig.rank.stats.finished.values()), "the engine was never asked"
    (ended,) = faulty.ended
    assert (ended.status, ended.lost) == (0, True)
    assert faulty.shown() == {"reset": 1}


@BOTH
@PACES
@pytest.mark.parametrize("after", [0, 1, 3])
def test_r86_a_reset_after_some_tokens(path: str, flags: tuple[str, ...], after: int) -> None:
    faulty = Faulty(f"reset; after={after}", path, flags).wait(after + 1)
    assert not faulty.reply.complete
    assert tokens(faulty.reply.body) == after
    assert plain(path).startswith(same(faulty.reply.body))
    assert faulty.client.fate == "reset"
    assert faulty.all_is_free()
    assert faulty.rig.rank.stats.finished["abort"] == (flags is PACED)
    (ended,) = faulty.ended
    assert (ended.status, ended.lost) == (200, True)


def test_the_tokens_of_all_choices_count() -> None:
    faulty = Faulty("reset; after=4", n=3).wait(4)
    assert tokens(faulty.reply.body) == 4
    assert len([frame for frame in faulty.frames if "role" in frame["choices"][0]["delta"]]) == 3
    assert faulty.all_is_free()
    assert faulty.rig.rank.stats.finished["abort"] == 3


# --- broken off


@BOTH
@PACES
def test_r86_a_frame_that_is_cut_in_the_middle(path: str, flags: tuple[str, ...]) -> None:
    faulty = Faulty("truncate; after=2", path, flags).wait(3)
    body = faulty.reply.body
    assert not faulty.reply.complete
    assert tokens(body[: body.rindex(b"\n\n")]) == 2
    assert not body.endswith(b"\n\n")
    assert plain(path).startswith(same(body))
    assert faulty.client.fate == "closed"
    assert faulty.all_is_free()
    (ended,) = faulty.ended
    assert (ended.status, ended.lost) == (200, True)


@pytest.mark.parametrize(("fault", "fate"), [("truncate", "closed"), ("reset; after=0", "reset")])
@BOTH
def test_r86_a_whole_body_that_is_shorter_than_announced(path: str, fault: str, fate: str) -> None:
    faulty = Faulty(fault, path, stream=False)
    faulty.wait(5)
    reply = faulty.reply
    assert reply.status == 200
    assert not reply.complete
    assert len(reply.body) == int(reply.headers[b"content-length"]) // 2
    assert plain(path, stream=False)[:30] == same(reply.body)[:30]
    assert faulty.client.fate == fate
    assert faulty.all_is_free()
    assert len(faulty.ended) == 1


def test_pipelined_requests_are_not_answered_after_a_cut() -> None:
    rig = RankRig()
    client = watched(rig)
    first = request(CHAT, fields(CHAT, stream=True), "X-Fault: truncate; after=2")
    client.send(first + request(CHAT, fields(CHAT)))
    rig.clock.pump([0.5] * 10)
    (reply,) = client.replies(b"POST", b"POST")
    assert not reply.complete
    assert client.fate == "closed"


# --- malformed


@BOTH
@PACES
def test_a_frame_whose_json_is_malformed(path: str, flags: tuple[str, ...]) -> None:
    faulty = Faulty("garble; after=2", path, flags).wait(6)
    right, wrong = plain(path).split(b"\n\n"), same(faulty.reply.body).split(b"\n\n")
    assert faulty.reply.complete
    (place,) = [place for place, event in enumerate(wrong) if event != right[place]]
    assert tokens(b"\n\n".join(wrong[:place])) == 2
    with pytest.raises(json.JSONDecodeError):
        json.loads(wrong[place].removeprefix(b"data: "))
    assert len(right) == len(wrong)
    assert faulty.serves_on()


@BOTH
def test_a_whole_body_whose_json_is_malformed(path: str) -> None:
    faulty = Faulty("garble", path, stream=False).wait(5)
    assert faulty.reply.complete
    with pytest.raises(json.JSONDecodeError):
        json.loads(faulty.reply.body)
    assert faulty.serves_on()


@BOTH
@PACES
def test_a_stream_without_its_last_event(path: str, flags: tuple[str, ...]) -> None:
    faulty = Faulty("no-done", path, flags).wait(6)
    assert faulty.reply.complete
    assert same(faulty.reply.body) + b"data: [DONE]\n\n" == plain(path)
    assert faulty.shown() == {"no-done": 1}
    assert faulty.serves_on()


def test_a_whole_reply_has_no_last_event_to_miss() -> None:
    faulty = Faulty("no-done", stream=False).wait(5)
    assert same(faulty.reply.body) == plain(CHAT, stream=False)
    assert faulty.shown() == {}


# --- errors


@BOTH
@PACES
@pytest.mark.parametrize("after", [0, 2, 4])
def test_r50_an_error_in_the_middle_of_a_stream(path: str, flags: tuple[str, ...], after: int) -> None:
    faulty = Faulty(f"error; after={after}; code=503", path, flags).wait(after + 1.25)
    *before, error, done = faulty.frames
    assert faulty.reply.status == 200
    assert faulty.reply.complete
    assert error["error"]["code"] == 503
    assert error["error"]["type"] == "ServiceUnavailableError"
    assert done == "[DONE]"
    assert len([frame for frame in before if "role" not in frame["choices"][0].get("delta", {})]) == after
    assert faulty.all_is_free()
    assert faulty.rig.rank.stats.finished["abort"] == (flags is PACED and after < 4)
    (ended,) = faulty.ended
    assert (ended.status, ended.lost) == (200, False)
    assert faulty.serves_on()


def test_an_error_in_place_of_a_whole_reply() -> None:
    faulty = Faulty("error; after=0; code=429; retry-after=9", stream=False)
    assert faulty.client.received == b""
    faulty.wait(5.25)
    reply = faulty.reply
    assert (reply.status, reply.headers[b"retry-after"]) == (429, b"9")
    assert reply.error["error"]["type"] == "RateLimitError"
    assert faulty.rig.rank.stats.finished["length"] == 1
    assert [ended.status for ended in faulty.ended] == [429]
    assert faulty.serves_on()


# --- waits


@BOTH
def test_a_stall_holds_everything_back_and_sends_it_in_order(path: str) -> None:
    faulty = Faulty("stall; after=1; for=2.5s", path)
    faulty.wait(4.25)
    assert tokens(faulty.reply.body) == 1
    assert faulty.rig.rank.stats.generation_tokens == 4, "the engine goes on meanwhile"
    assert faulty.request.channel.write_paused, "and what is due is kept as a number"
    faulty.wait(0.25)
    assert tokens(faulty.reply.body) == 4
    faulty.wait(0.5)
    assert faulty.reply.complete
    assert same(faulty.reply.body) == plain(path)
    assert faulty.shown() == {"stall": 1}
    assert faulty.serves_on()


@BOTH
@PACES
@pytest.mark.parametrize("fault", ["stall; after=1", "stall", "slow-headers", "slow-body; after=1"])
def test_a_wait_that_outlasts_the_reply(path: str, flags: tuple[str, ...], fault: str) -> None:
    faulty = Faulty(f"{fault}; for=20s", path, flags).wait(15)
    assert not faulty.ended
    assert faulty.all_is_free(), "what the model says is said"
    faulty.client.send(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
    faulty.wait(8)
    reply, version = faulty.client.replies(b"POST", b"GET")
    assert reply.complete
    assert same(reply.body) == plain(path)
    assert version.status == 200
    assert [ended.lost for ended in faulty.ended] == [False, False]


def test_a_stall_before_the_first_byte() -> None:
    for stream in (True, False):
        faulty = Faulty("stall; for=9s", stream=stream).wait(8.5)
        assert faulty.client.received == b""
        faulty.wait(6)
        assert same(faulty.reply.body) == plain(CHAT, stream=stream)


def test_a_stall_in_the_middle_of_a_whole_body() -> None:
    faulty = Faulty("stall; after=0; for=2s", stream=False).wait(6.75)
    assert len(faulty.reply.body) == int(faulty.reply.headers[b"content-length"]) // 2
    faulty.wait(0.25)
    assert same(faulty.reply.body) == plain(CHAT, stream=False)
    assert faulty.serves_on()


@KINDS
def test_headers_that_come_piece_by_piece(stream: bool) -> None:
    faulty = Faulty("slow-headers; for=5s", flags=(), stream=stream)
    head, _, _ = faulty.wait(5).client.received.partition(b"\r\n\r\n")
    writes = faulty.client.transport.writes  # type: ignore[attr-defined]
    assert b"".join(writes[:PIECES]) == head + b"\r\n\r\n"
    assert faulty.reply.complete
    faulty = Faulty("slow-headers; for=5s", flags=(), stream=stream).wait(2.5)
    assert len(faulty.client.received) == pytest.approx(len(head) / 2, abs=PIECES)


@BOTH
def test_a_frame_that_comes_piece_by_piece(path: str) -> None:
    faulty = Faulty("slow-body; after=1; for=2.5s", path).wait(3.25)
    body = faulty.reply.body
    assert tokens(body[: body.rindex(b"\n\n")]) == 1
    assert not body.endswith(b"\n\n")
    faulty.wait(3.5)
    assert same(faulty.reply.body) == plain(path)


def test_a_whole_body_that_comes_piece_by_piece() -> None:
    faulty = Faulty("slow-body; for=10s", stream=False).wait(10)
    reply = faulty.reply
    assert 0.4 < len(reply.body) / int(reply.headers[b"content-length"]) < 0.6
    faulty.wait(5)
    assert same(faulty.reply.body) == plain(CHAT, stream=False)


@KINDS
def test_no_answer_until_the_client_leaves_or_the_time_is_up(stream: bool) -> None:
    faulty = Faulty("hang", stream=stream).wait(500)
    assert faulty.client.received == b""
    assert faulty.client.fate == "open"
    assert faulty.all_is_free()
    faulty.client.rst()
    (ended,) = faulty.ended
    assert (ended.status, ended.lost) == (0, True)
    faulty = Faulty("hang; for=3s", stream=stream).wait(3.25)
    assert faulty.client.received == b""
    assert faulty.client.fate == "reset"
    assert [(ended.status, ended.lost) for ended in faulty.ended] == [(0, True)]


@KINDS
@pytest.mark.parametrize(
    "fault", ["stall; for=1h", "stall; after=1; for=1h", "slow-headers; for=1h", "slow-body; after=1; for=1h"]
)
@pytest.mark.parametrize("moment", [1.5, 3.5, 9.0])
def test_a_client_that_leaves_during_a_wait(stream: bool, fault: str, moment: float) -> None:
    faulty = Faulty(fault, stream=stream).wait(moment)
    faulty.client.rst()
    assert faulty.all_is_free()
    (ended,) = faulty.ended
    assert ended.lost
    assert ended.status == (200 if faulty.client.received else 0)
    faulty.rig.site.stop()
    assert faulty.rig.clock.getDelayedCalls() == [], "nothing is left that would go on"


def test_a_client_that_closes_its_side_during_a_wait() -> None:
    faulty = Faulty("stall; after=1; for=1h").wait(3)
    faulty.client.fin()
    faulty.wait(0.25)
    assert faulty.client.fate == "closed"
    assert faulty.all_is_free()


def test_a_client_that_does_not_read_stalls_longer() -> None:
    faulty = Faulty("stall; after=1; for=2s").wait(2.5)
    faulty.client.transport.stop_reading()
    faulty.wait(5)
    assert not faulty.reply.complete
    faulty.client.transport.client_reads = True
    faulty.client.transport.drain()
    faulty.wait(1)
    assert same(faulty.reply.body) == plain(CHAT)
    assert faulty.serves_on()


def test_the_end_of_the_server_ends_waits() -> None:
    faulty = Faulty("hang").wait(1)
    faulty.rig.site.stop()
    faulty.wait(0.25)
    assert faulty.client.fate == "closed"
    assert len(faulty.ended) == 1
    assert faulty.rig.clock.getDelayedCalls() == []


def test_the_engine_giving_up_during_a_wait_is_told_after_it() -> None:
    faulty = Faulty("stall; after=1; for=2s").wait(2.5)
    faulty.rig.rank.driver.give_up()
    faulty.wait(2)
    assert faulty.frames[-1] == "[DONE]"
    assert faulty.frames[-2]["error"]["code"] == 503
    assert faulty.serves_on()


# --- other requests


def test_a_fault_beyond_the_end_does_not_show() -> None:
    for fault in ("reset", "stall", "truncate", "garble", "error", "slow-body"):
        faulty = Faulty(f"{fault}; after=5", max_tokens=5).wait(6)
        assert same(faulty.reply.body) == plain(CHAT)
        assert faulty.shown() == {}
        assert faulty.serves_on()


def test_an_error_of_the_route_is_not_taken_for_a_reply() -> None:
    for fault in ("error; after=0; code=418", "no-done"):
        faulty = Faulty(fault, model="unknown")
        assert faulty.reply.status == 404
        assert faulty.shown() == {}
    faulty = Faulty("truncate", model="unknown")
    assert faulty.reply.status == 404
    assert not faulty.reply.complete


@pytest.mark.parametrize(
    "fault", ["truncate; after=2", "no-done", "error; after=2", "stall; after=2; for=1s"]
)
def test_http_1_0_has_no_chunks(fault: str) -> None:
    rig = RankRig()
    data = request(CHAT, fields(CHAT, stream=True), f"X-Fault: {fault}").replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    client = watched(rig).send(data)
    rig.clock.pump([0.5] * 5)
    head, _, body = client.received.partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert client.fate == "closed"
    assert tokens(body) in (2, 3, 5)
    assert body.startswith(b"data: {")
    assert b"\r\n" not in body
    assert body.endswith(b"\n\n") == (not fault.startswith("truncate"))
    assert body.endswith(b"data: [DONE]\n\n") == fault.startswith(("error", "stall"))


def test_usage_and_roles_are_no_tokens() -> None:
    faulty = Faulty("reset; after=5", stream_options={"include_usage": True}).wait(6)
    assert faulty.frames[-1] == "[DONE]"
    faulty = Faulty("reset; after=4", stream_options={"include_usage": True}).wait(6)
    assert faulty.client.fate == "reset"


def test_events_with_names() -> None:
    for name in (
        "response.output_text.delta",
        "response.function_call_arguments.delta",
        "content_block_delta",
    ):
        assert carries_token(b"event: %b\ndata: {}\n\n" % name.encode())
    for name in ("response.created", "message_delta", "message_start", "error", "response.completed"):
        assert not carries_token(b'event: %b\ndata: {"delta":1}\n\n' % name.encode())
    assert not carries_token(b'data: {"error":{}}\n\n')
    assert not carries_token(b"data: [DONE]\n\n")


def test_the_log_tells_what_became_of_faulty_requests() -> None:
    with LoggedRank("--access-log", "--log-http", *PACED) as rig:
        for fault in ("reset", "truncate; after=2", "no-done"):
            post(rig, CHAT, f"X-Fault: {fault}", stream=True)
        rig.clock.pump([0.25] * 30)
        assert [shown(line) for line in of("access", rig.log.lines)] == [
            ("499", True),
            ("200", True),
            ("200", False),
        ]
        responses = [line for line in of("http_dump", rig.log.lines) if line.startswith("response: ")]
        assert [line.rpartition(" ")[0].endswith(" cut when the client") for line in responses] == [
            False,
            True,
            False,
        ]


def shown(line: str) -> tuple[str, bool]:
    """The status in an access line, and whether the response was cut short."""
    return line.split('" ')[1][:3], line.endswith(" aborted")


@pytest.mark.parametrize("fault", ["hang", "reset", "stall; for=1h", "status"])
def test_a_long_prompt_that_meets_a_fault(fault: str) -> None:
    rig = PassRig()
    client = post(rig, TEXT, f"X-Fault: {fault}", prompt="word " * 60_000)
    for _ in range(2000):
        rig.clock.advance(0.001)
        if not rig.rank.context.turns.busy:
            break
    rig.turns(2)
    assert (client.fate, client.received[:12]) == {
        "hang": ("open", b""),
        "reset": ("reset", b""),
        "stall; for=1h": ("open", b""),
        "status": ("closed", b"HTTP/1.1 503"),
    }[fault]
    client.rst()
    rig.site.stop()
    assert rig.rank.engine.idle
    assert rig.clock.getDelayedCalls() == []


@pytest.mark.parametrize("seed", range(150))
def test_whatever_happens_nothing_is_left(seed: int) -> None:
    random = Random(seed)
    kind = random.choice(KINDS_OF_FAULTS)
    fault = "; ".join(
        part
        for part, names in (
            (kind, KINDS_OF_FAULTS),
            (f"after={random.randrange(7)}", ("reset", "stall", "truncate", "garble", "error", "slow-body")),
            (f"for={random.choice((0, 0.3, 2, 30))}", ("stall", "slow-headers", "slow-body", "hang")),
        )
        if kind in names and (part == kind or random.random() < 0.8)
    )
    rig = RankRig("--max-num-seqs", "2", *(PACED if random.random() < 0.7 else ()))
    ended: list[Request] = []
    rig.site.on_ended.append(ended.append)
    client = watched(rig)
    with capturedLogs() as logged:
        for _ in range(2):
            body = fields(random.choice((CHAT, TEXT)), stream=random.random() < 0.7, n=random.randint(1, 2))
            path = CHAT if "messages" in body else TEXT
            client.send(request(path, body, f"X-Fault: {fault}"))
        for _ in range(random.randrange(40)):
            rig.clock.advance(0.25)
            what = random.randrange(25)
            if what == 0:
                client.transport.stop_reading()
            elif what == 1:
                client.transport.client_reads = True
                client.transport.drain()
            elif what == 2:
                client.fin()
            elif what == 3:
                rig.rank.driver.give_up()
        client.rst()
        rig.clock.pump([0.25] * 8)
    assert logged == []
    assert rig.rank.engine.idle
    assert rig.rank.stats.running == rig.rank.stats.waiting == 0
    assert len(ended) == len({id(request) for request in ended}) <= 2
    assert all(request.finished for request in ended)
    rig.site.stop()
    assert rig.clock.getDelayedCalls() == []


@pytest.mark.parametrize("fault", ["reset; after=2", "truncate; after=2", "error; after=2", "stall; after=2"])
def test_nothing_is_complained_of(fault: str) -> None:
    with capturedLogs() as logged:
        faulty = Faulty(fault, flags=("--seed", "1"), n=2, stream=True).wait(12)
    assert logged == []
    assert faulty.all_is_free()


def test_other_requests_are_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of this is met without a fault."""
    monkeypatch.delattr("llmdsim.web.failures.FaultyChannel")
    client: Client = post(RankRig(), CHAT, stream=True)
    assert reply_of(client).complete
