"""Streams whose clients do not read: nothing is rendered meanwhile, and everything comes whole afterwards."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.logger import capturedLogs

from llmdsim.engine.pacing import BURST
from llmdsim.reply.reply import LongSentenceReply, ShortSentenceReply
from llmdsim.web.frames import ChunkFrames
from llmdsim.web.stream import StreamedChoice
from tests.web.clients import CHAT, TEXT, choices_of, events, finishes, post, reply_of, said
from tests.web.rig import RankRig
from tests.wire.channel import SEND_BUFFER, Client

PACED = ("--time-to-first-token", "1s", "--inter-token-latency", "1s")
LOTS = 3000
BOTH = pytest.mark.parametrize("path", [CHAT, TEXT])
USAGE = {"stream_options": {"include_usage": True}}


def read_on(client: Client) -> None:
    """The client reads all there is, until there is no more."""
    client.transport.client_reads = True
    client.transport.drain()
    client.settle()


def comparable(client: Client) -> list[Any]:
    """The frames of a finished stream, by choice, without what differs from one reply to the next."""
    reply = reply_of(client)
    assert reply.complete
    frames = events(reply.body)
    assert [frame == "[DONE]" for frame in frames] == [False] * (len(frames) - 1) + [True]
    indexes = sorted({choice["index"] for choice in choices_of(frames)})
    by_choice = [[c for c in choices_of(frames) if c["index"] == index] for index in indexes]
    return [*by_choice, [frame.get("usage") for frame in frames[:-1]][-1]]


@BOTH
@pytest.mark.parametrize(
    "more", [{}, {"n": 3}, {"return_token_ids": True}, {"logprobs": 1}, {"n": 2, "max_tokens": 2}]
)
@pytest.mark.parametrize("pauses", [[(0, 2)], [(1, 3)], [(2, 30)], [(1, 2), (3, 5)], [(3, 4), (4, 30)]])
def test_a_paused_stream_says_what_an_unpaused_one_says(
    path: str, more: dict[str, Any], pauses: list[tuple[int, int]]
) -> None:
    if path == CHAT and "logprobs" in more:
        more = {"logprobs": True, "top_logprobs": 1}
    clients = []
    for when in ([], pauses):
        rig = RankRig("--max-num-seqs", "2", *PACED)
        client = post(rig, path, stream=True, seed=5, **{"max_tokens": 9, **USAGE, **more})
        for second in range(40):
            for begin, end in when:
                if second == begin:
                    client.transport.stop_reading()
                elif second == end:
                    read_on(client)
            rig.clock.advance(1)
        clients.append(client)
    steady, paused = clients
    assert comparable(paused) == comparable(steady)


@BOTH
@pytest.mark.parametrize("n", [1, 3])
def test_nothing_is_rendered_while_the_client_does_not_read(
    monkeypatch: pytest.MonkeyPatch, path: str, n: int
) -> None:
    rig = RankRig("--max-model-len", "8000", *PACED)
    client = post(rig, path, stream=True, n=n, max_tokens=LOTS)
    rig.clock.advance(1)
    client.transport.stop_reading()
    rendered: list[tuple[int, int]] = []
    for form in (ShortSentenceReply, LongSentenceReply):
        pieces = form.pieces

        def noted(reply: Any, start: int, stop: int, pieces: Any = pieces) -> list[bytes]:
            rendered.append((start, stop))
            return pieces(reply, start, stop)  # type: ignore[no-any-return]

        monkeypatch.setattr(form, "pieces", noted)
    rig.clock.pump([50.0] * 20)
    assert rendered == []
    assert client.transport.unsent == b""
    assert rig.rank.stats.generation_tokens == 1001 * n, "time goes on for it all the same"
    read_on(client)
    # In bearable pieces, each token once.
    assert all(stop - start <= BURST for start, stop in rendered)
    assert sorted(step for start, stop in rendered for step in range(start, stop)) == sorted(
        [*range(1, 1001)] * n
    )
    tokens = len(choices_of(events(reply_of(client).body)))
    assert tokens == n * (1001 + (path == CHAT))


@BOTH
@pytest.mark.parametrize("n", [1, 4])
def test_what_waits_for_a_client_that_does_not_read_is_bounded(path: str, n: int) -> None:
    rig = RankRig("--inter-token-latency", "1ms", "--max-model-len", "8000")
    client = post(rig, path, stream=True, n=n, max_tokens=LOTS)
    client.transport.stop_reading(full=False)
    most = 0
    for _ in range(LOTS // 10 + 10):
        rig.clock.advance(0.01)
        most = max(most, len(client.transport.unsent))
    assert rig.rank.engine.idle, "it holds its slots no longer than one that reads"
    assert SEND_BUFFER < most < SEND_BUFFER + 10 * 500
    assert not reply_of(client).complete
    read_on(client)
    read_on(client)
    frames = events(reply_of(client).body)
    assert len(choices_of(frames)) == n * (LOTS + (path == CHAT))
    assert finishes(frames) == [(index, "length") for index in range(n)]
    assert reply_of(client).complete


def test_the_tokens_of_each_choice_come_in_order_when_read_late() -> None:
    rig = RankRig("--mode", "echo", *PACED)
    texts = [" ".join(f"{letter}{number}" for number in range(30)) for letter in "abc"]
    client = post(rig, TEXT, stream=True, prompt=texts, max_tokens=500)
    rig.clock.advance(3)
    client.transport.stop_reading()
    rig.clock.pump([1.0] * 10)
    read_on(client)
    client.transport.stop_reading()
    rig.clock.pump([1.0] * 200)
    assert rig.rank.engine.idle
    read_on(client)
    frames = events(reply_of(client).body)
    assert [said(frames, index) for index in range(3)] == texts
    assert reply_of(client).complete


@BOTH
def test_one_that_ended_while_nobody_read_is_ended_when_somebody_does(path: str) -> None:
    rig = RankRig(*PACED)
    client = post(rig, path, stream=True, **USAGE)
    client.transport.stop_reading()
    rig.clock.pump([1.0] * 10)
    assert rig.rank.engine.idle
    assert rig.rank.stats.finished["length"] == 1
    assert client.transport.unsent == b""
    read_on(client)
    frames = events(reply_of(client).body)
    assert (len(choices_of(frames)), finishes(frames)) == (5 + (path == CHAT), [(0, "length")])
    assert frames[-2]["usage"]["completion_tokens"] == 5
    assert reply_of(client).complete
    # And the connection serves on.
    client.send(b"GET /version HTTP/1.1\r\nHost: sim\r\n\r\n")
    assert [reply.status for reply in client.replies(b"POST", b"GET")] == [200, 200]


@BOTH
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("ended", [False, True])
def test_a_client_that_is_lost_while_it_does_not_read(path: str, n: int, ended: bool) -> None:
    rig = RankRig("--max-num-seqs", "2", *PACED)
    client = post(rig, path, stream=True, n=n)
    rig.clock.advance(1)
    client.transport.stop_reading()
    rig.clock.pump([1.0] * (20 if ended else 2))
    assert rig.rank.engine.idle is ended
    before = client.received
    client.rst()
    assert rig.rank.engine.idle
    assert (rig.rank.stats.running, rig.rank.stats.waiting) == (0, 0)
    assert rig.rank.stats.finished["length" if ended else "abort"] == n
    assert client.received == before
    assert rig.clock.getDelayedCalls() == []


@BOTH
@pytest.mark.parametrize("n", [1, 3])
def test_one_that_is_given_up_while_nobody_reads_says_so_when_somebody_does(path: str, n: int) -> None:
    rig = RankRig(*PACED)
    client = post(rig, path, stream=True, n=n)
    rig.clock.advance(1)
    client.transport.stop_reading()
    rig.clock.advance(2)
    rig.rank.driver.give_up()
    assert (rig.rank.engine.idle, rig.rank.stats.finished["abort"]) == (True, n)
    read_on(client)
    reply = reply_of(client)
    error, done = events(reply.body)[-2:]
    assert (error["error"]["code"], done, reply.complete) == (503, "[DONE]", True)


@BOTH
@pytest.mark.parametrize("n", [1, 3])
def test_one_that_is_cut_short_while_nobody_reads_is_whole_up_to_there(path: str, n: int) -> None:
    rig = RankRig(*PACED)
    client = post(rig, path, stream=True, n=n, stream_options={"include_usage": True})
    rig.clock.advance(1)
    client.transport.stop_reading()
    rig.clock.pump([1.0, 1.0])
    rig.rank.driver.cut_short(rig.rank.engine.sequences)
    read_on(client)
    reply = reply_of(client)
    frames = events(reply.body)
    assert (reply.complete, frames[-1]) == (True, "[DONE]")
    assert sorted(finishes(frames)) == [(index, "abort") for index in range(n)]
    assert frames[-2]["usage"]["completion_tokens"] == 3 * n


def test_reading_on_for_a_moment_only() -> None:
    """What was missed may fill the buffer again, and need not wait there to be read."""
    rig = RankRig("--inter-token-latency", "1ms", "--max-model-len", "8000")
    client = post(rig, TEXT, stream=True, n=3, max_tokens=LOTS)
    client.transport.stop_reading(full=False)
    rig.clock.pump([0.01] * (LOTS // 10 + 10))
    assert rig.rank.engine.idle
    rounds = 0
    while not reply_of(client).complete:
        # Drained, but what comes from that stays unread.
        data, client.transport.unsent = client.transport.unsent, b""
        client.transport.io.write(data)
        client.transport._producer_paused = False
        client.protocol.resumeProducing()
        rig.settle()
        rounds += 1
        assert rounds < 50
        assert len(client.transport.unsent) < SEND_BUFFER + BURST * 300
    frames = events(reply_of(client).body)
    assert [len([c for c in choices_of(frames) if c["index"] == i]) for i in range(3)] == [LOTS] * 3
    assert finishes(frames) == [(0, "length"), (1, "length"), (2, "length")]
    assert rounds > 2


@BOTH
def test_a_whole_reply_is_not_held_back_by_the_reader_of_another(path: str) -> None:
    rig = RankRig("--max-num-seqs", "1", *PACED)
    slow = post(rig, CHAT, stream=True, max_tokens=3)
    slow.transport.stop_reading()
    other = post(rig, path, max_tokens=3)
    rig.clock.pump([1.0] * 6)
    assert reply_of(other).status == 200


@BOTH
@pytest.mark.parametrize("seconds", [2, 20])
def test_a_rendering_that_fails_as_the_client_reads_on_is_our_fault(
    monkeypatch: pytest.MonkeyPatch, path: str, seconds: int
) -> None:
    rig = RankRig(*PACED)
    client = post(rig, path, stream=True, max_tokens=9)
    rig.clock.advance(1)
    client.transport.stop_reading()
    rig.clock.pump([1.0] * seconds)
    with monkeypatch.context() as patch, capturedLogs() as logged:
        patch.setattr(StreamedChoice, "_plain", None)
        patch.setattr(ChunkFrames, "render", None)
        read_on(client)
    assert len(logged) == 1
    error, done = events(reply_of(client).body)[-2:]
    assert (error["error"]["code"], done) == (500, "[DONE]")
    assert rig.rank.engine.idle
