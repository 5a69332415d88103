"""What faults make of responses over HTTP/2: one stream goes wrong, and others of its connection go on."""

from __future__ import annotations

import json

import pytest
from h2.errors import ErrorCodes

from llmdsim.wire.request import Request
from tests.web.clients import CHAT, TEXT, events, fields
from tests.web.rig import RankRig
from tests.web.test_faulty_channel import PACED, carries_token, plain, same
from tests.wire.http2.client import Answer, H2Client

BOTH = pytest.mark.parametrize("path", [CHAT, TEXT])
KINDS = pytest.mark.parametrize("stream", [True, False])


class FaultyStream:
    """A connection with a stream whose request asks for `fault`, beside one that asks for nothing."""

    def __init__(self, fault: str, path: str = CHAT, stream: bool = True) -> None:
        self.rig = RankRig(*PACED, "--max-num-seqs", "2")
        self.ended: list[Request] = []
        self.rig.site.on_ended.append(self.ended.append)
        self.client = H2Client(self.rig, self.rig.connect())  # type: ignore[arg-type]
        self.path = path.encode()
        self.body = json.dumps(fields(path, stream=stream, seed=3)).encode()
        self.answer = self.post({b"x-fault": fault.encode()})
        self.other = self.post({})
        self.right = plain(path, stream)

    def post(self, headers: dict[bytes, bytes]) -> Answer:
        return self.client.answers[self.client.post(self.body, self.path, headers)]

    def wait(self, seconds: float) -> Answer:
        for _ in range(round(seconds * 4)):
            self.rig.clock.advance(0.25)
            self.client.flush()
        return self.answer

    @property
    def shown(self) -> dict[str, int]:
        return {kind: number for kind, number in self.rig.rank.stats.faults.items() if number}

    def others_are_well(self) -> bool:
        """Whether the other stream has all that it should, and the connection serves on."""
        self.wait(10)
        assert (self.other.ended, same(self.other.body)) == (True, self.right)
        assert self.rig.rank.engine.idle
        assert self.client.goaways == []
        return self.client.get(b"/version").status == 200


def tokens(body: bytes) -> int:
    return sum(map(carries_token, body.split(b"\n\n")))


@BOTH
@KINDS
def test_a_reset_at_once(path: str, stream: bool) -> None:
    faulty = FaultyStream("reset", path, stream)
    answer = faulty.wait(0.25)
    assert (answer.headers, answer.reset) == ({}, ErrorCodes.INTERNAL_ERROR)
    assert [(ended.status, ended.lost) for ended in faulty.ended] == [(0, True)]
    assert faulty.shown == {"reset": 1}
    assert faulty.others_are_well()


@BOTH
def test_a_reset_after_some_tokens(path: str) -> None:
    faulty = FaultyStream("reset; after=2", path)
    answer = faulty.wait(3)
    assert (answer.status, answer.ended, answer.reset) == (200, False, ErrorCodes.INTERNAL_ERROR)
    assert tokens(answer.body) == 2
    assert faulty.right.startswith(same(answer.body))
    assert faulty.rig.rank.stats.running == 1, "the rest is aborted"
    assert faulty.others_are_well()


@BOTH
def test_an_event_that_is_cut_in_the_middle(path: str) -> None:
    faulty = FaultyStream("truncate; after=2", path)
    answer = faulty.wait(3)
    assert (answer.ended, answer.reset) == (False, ErrorCodes.INTERNAL_ERROR)
    assert tokens(answer.body[: answer.body.rindex(b"\n\n")]) == 2
    assert not answer.body.endswith(b"\n\n")
    assert [(ended.status, ended.lost) for ended in faulty.ended] == [(200, True)]
    assert faulty.others_are_well()


@pytest.mark.parametrize("fault", ["truncate", "reset; after=0"])
def test_a_whole_body_that_is_shorter_than_announced(fault: str) -> None:
    faulty = FaultyStream(fault, stream=False)
    answer = faulty.wait(5)
    assert (answer.ended, answer.reset) == (False, ErrorCodes.INTERNAL_ERROR)
    assert len(answer.body) == int(answer.headers[b"content-length"]) // 2
    assert faulty.others_are_well()


@BOTH
@KINDS
def test_json_that_is_malformed(path: str, stream: bool) -> None:
    faulty = FaultyStream("garble; after=0", path, stream)
    answer = faulty.wait(5)
    assert answer.ended
    right, wrong = faulty.right.split(b"\n\n"), same(answer.body).split(b"\n\n")
    (place,) = [place for place, event in enumerate(wrong) if event != right[place]]
    with pytest.raises(json.JSONDecodeError):
        json.loads(wrong[place].removeprefix(b"data: "))
    assert faulty.others_are_well()


@BOTH
def test_a_stream_without_its_last_event(path: str) -> None:
    faulty = FaultyStream("no-done", path)
    answer = faulty.wait(5)
    assert answer.ended
    assert same(answer.body) + b"data: [DONE]\n\n" == faulty.right
    assert faulty.others_are_well()


@pytest.mark.parametrize("status", [429, 503])
def test_an_error_in_the_middle_of_a_stream(status: int) -> None:
    faulty = FaultyStream(f"error; after=2; code={status}")
    answer = faulty.wait(4)
    assert answer.ended
    *before, error, done = events(answer.body)
    assert (error["error"]["code"], done) == (status, "[DONE]")
    assert len(before) == 3
    assert faulty.others_are_well()


def test_an_error_in_place_of_a_whole_reply() -> None:
    faulty = FaultyStream("error; after=0; code=429; retry-after=9", stream=False)
    answer = faulty.wait(5.25)
    assert (answer.status, answer.headers[b"retry-after"], answer.ended) == (429, b"9", True)
    assert faulty.others_are_well()


@KINDS
@pytest.mark.parametrize("fault", ["error; code=503", "status; code=503"])
def test_a_503_ends_its_connection_when_the_other_streams_are_over(fault: str, stream: bool) -> None:
    """Sooner, many clients would take it for the end of these."""
    faulty = FaultyStream("stall; for=1s", stream=stream)
    refused = faulty.post({b"x-fault": fault.encode()})
    assert (refused.status, refused.ended) == (503, True)
    faulty.wait(4.5)
    assert faulty.client.goaways == []
    assert faulty.client.get(b"/version").status == 200
    answer = faulty.wait(5)
    assert (answer.ended, same(answer.body)) == (True, faulty.right)
    assert [code for _, code in faulty.client.goaways] == [0, 0]
    assert faulty.client.client.fate != "open"


def test_requests_on_their_way_at_a_503_are_answered() -> None:
    faulty = FaultyStream("reset")
    faulty.wait(10)
    client = faulty.client
    refused = client.begin(CHAT.encode(), b"POST", {b"x-fault": b"status"}, end=False)
    client.send(refused, faulty.body)
    client.client.send(client.h2.data_to_send())
    # Sent before the client has read the GOAWAY.
    other = client.begin(b"/version")
    client.client.send(client.h2.data_to_send())
    faulty.wait(3)
    assert (client.answers[refused].status, client.answers[other].status) == (503, 200)
    assert client.client.fate != "open"


@KINDS
@pytest.mark.parametrize("fault", ["stall", "stall; after=1", "slow-headers", "slow-body; after=1"])
def test_a_wait_that_outlasts_the_reply(fault: str, stream: bool) -> None:
    faulty = FaultyStream(f"{fault}; for=20s", stream=stream)
    faulty.wait(15)
    assert not faulty.answer.ended
    assert len(faulty.ended) == 1
    assert faulty.rig.rank.engine.idle
    answer = faulty.wait(11)
    assert (answer.status, answer.ended, same(answer.body)) == (200, True, faulty.right)
    assert faulty.others_are_well()


def test_a_head_comes_whole_and_late() -> None:
    faulty = FaultyStream("slow-headers; for=4s")
    faulty.wait(3.75)
    assert faulty.answer.headers == {}
    answer = faulty.wait(0.25)
    assert (answer.status, tokens(answer.body)) == (200, 4)


def test_an_event_that_comes_piece_by_piece() -> None:
    faulty = FaultyStream("slow-body; after=1; for=2.5s")
    body = faulty.wait(3.25).body
    assert tokens(body[: body.rindex(b"\n\n")]) == 1
    assert not body.endswith(b"\n\n")
    assert same(faulty.wait(4).body) == faulty.right
    assert faulty.others_are_well()


@KINDS
def test_no_answer_until_the_client_leaves_or_the_time_is_up(stream: bool) -> None:
    faulty = FaultyStream("hang; for=30s", stream=stream)
    faulty.wait(29.75)
    assert (faulty.answer.headers, faulty.answer.reset) == ({}, None)
    faulty.wait(0.25)
    assert faulty.wait(0.25).reset == ErrorCodes.INTERNAL_ERROR
    assert faulty.others_are_well()


@pytest.mark.parametrize("fault", ["hang", "stall", "stall; after=1", "slow-headers", "slow-body; after=1"])
@pytest.mark.parametrize("moment", [0.5, 2.5, 9.0])
def test_a_client_that_takes_its_request_back_during_a_wait(fault: str, moment: float) -> None:
    faulty = FaultyStream(f"{fault}; for=1h")
    faulty.wait(moment)
    faulty.client.h2.reset_stream(1)
    faulty.client.flush()
    assert [ended.lost for ended in faulty.ended if ended.headers.get(b"x-fault")] == [True]
    assert faulty.others_are_well()
    faulty.rig.site.stop()
    faulty.rig.clock.advance(3)
    assert faulty.rig.clock.getDelayedCalls() == [], "nothing is left that would go on"
