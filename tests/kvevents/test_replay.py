"""Requests for batches that were sent before, in memory."""

from __future__ import annotations

import pytest
from twisted.logger import capturedLogs

from llmdsim.kvevents.counts import EventCounts
from llmdsim.kvevents.replay import (
    END,
    MOST_CLIENTS,
    MOST_WAITING,
    PATIENCE,
    RETRY,
    SLICE,
    Replay,
)
from llmdsim.kvevents.window import Window
from tests.kvevents.transport import MemoryAnswering, numbers
from tests.web.rig import PassClock

TOPIC = b"kv@10.0.0.1:8000@m"
MARKER = (b"", b"", END, b"")


class Rig:
    def __init__(self, batches: int = 5, first: int = 0, size: int = 100_000) -> None:
        self.clock = PassClock()
        self.counts = EventCounts()
        self.window = Window(size)
        for number in range(first, first + batches):
            self.window.add(number, b"payload %d" % number)
        self.replay = Replay(self.window, TOPIC, self.counts, self.clock)
        self.replay.socket = self.socket = MemoryAnswering()

    def ask(self, client: bytes, start: int | bytes, *, run: bool = True) -> None:
        frame = start if isinstance(start, bytes) else start.to_bytes(8, "big")
        self.replay.received([client, b"", frame])
        if run:
            self.run()

    def run(self, turns: int = 10_000) -> None:
        for _ in range(turns):
            if not any(call.getTime() <= self.clock.seconds() for call in self.clock.getDelayedCalls()):
                return
            self.clock.advance(0)
        raise AssertionError("no end")

    def numbers(self, client: bytes) -> list[int]:
        """Of one whole answer."""
        *batches, end = self.socket.answers.pop(client)
        assert end == MARKER
        return numbers(batches)


def test_r65_each_batch_has_topic_number_and_payload_and_minus_1_ends_them() -> None:
    rig = Rig(2)
    rig.ask(b"c", 0)
    assert rig.socket.answers[b"c"] == [
        (b"", TOPIC, bytes(8), b"payload 0"),
        (b"", TOPIC, b"\0\0\0\0\0\0\0\1", b"payload 1"),
        (b"", b"", b"\xff" * 8, b""),
    ]
    assert (rig.counts.replays, rig.counts.refused_replays) == (1, 0)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (0, [3, 4, 5]),
        (4, [4, 5]),
        (6, []),
        (2**64 - 1, []),
        (b"\0\0\0\0\0\0\0\5 and more", [5]),
    ],
)
def test_the_answer_begins_where_it_is_to_or_with_the_oldest(start: int | bytes, expected: list[int]) -> None:
    rig = Rig(3, first=3)
    rig.ask(b"c", start)
    assert rig.numbers(b"c") == expected


def test_the_delimiter_may_be_anything() -> None:
    rig = Rig(1)
    rig.replay.received([b"c", b"what", bytes(8)])
    rig.run()
    assert rig.numbers(b"c") == [0]


@pytest.mark.parametrize(
    "frames",
    [[b"c"], [b"c", bytes(8)], [b"c", b"", bytes(7)], [b"c", b"", b""], [b"c", b"", bytes(8), b""], []],
)
def test_what_is_no_request_is_ignored(frames: list[bytes]) -> None:
    rig = Rig(1)
    rig.replay.received(frames)
    assert not rig.clock.getDelayedCalls()
    assert (rig.counts.replays, rig.counts.refused_replays) == (0, 0)


def test_many_batches_are_sent_a_few_in_each_turn() -> None:
    rig = Rig(10_000)
    rig.ask(b"c", 0, run=False)
    assert not rig.socket.answers
    rig.clock.advance(0)
    assert len(rig.socket.answers[b"c"]) == SLICE
    rig.run()
    assert rig.numbers(b"c") == list(range(10_000))


def test_clients_are_answered_in_turn() -> None:
    rig = Rig(1000)
    rig.ask(b"long", 0, run=False)
    rig.clock.advance(0)
    rig.ask(b"short", 999, run=False)
    rig.clock.advance(0)
    rig.clock.advance(0)
    assert rig.numbers(b"short") == [999]
    assert len(rig.socket.answers[b"long"]) < 1000


def test_an_answer_has_what_there_was_when_it_was_asked_for() -> None:
    rig = Rig(100, size=100)
    rig.ask(b"c", 0, run=False)
    rig.clock.advance(0)
    for number in range(100, 200):
        rig.window.add(number, b"new")
    rig.run()
    assert rig.numbers(b"c") == list(range(100))


def test_a_client_may_ask_again_before_it_is_answered() -> None:
    rig = Rig(50)
    rig.ask(b"c", 0, run=False)
    rig.ask(b"c", 48, run=False)
    rig.run()
    expected = [*range(50), 2**64 - 1, 48, 49, 2**64 - 1]
    assert numbers(rig.socket.answers[b"c"]) == expected
    assert rig.counts.replays == 2


def test_r65_one_that_does_not_read_holds_up_nobody_and_goes_on_when_it_reads() -> None:
    rig = Rig(100)
    rig.socket.room[b"slow"] = 10
    rig.ask(b"slow", 0)
    rig.ask(b"fast", 0)
    assert rig.numbers(b"fast") == list(range(100))
    assert len(rig.socket.answers[b"slow"]) == 10
    rig.clock.advance(PATIENCE - 1)
    rig.run()
    rig.socket.room[b"slow"] = 1000
    rig.clock.advance(RETRY)
    rig.run()
    assert rig.numbers(b"slow") == list(range(100))
    assert not rig.clock.getDelayedCalls()
    assert (rig.counts.replays, rig.counts.refused_replays) == (2, 0)


def test_one_that_does_not_read_is_given_up_in_the_end() -> None:
    rig = Rig(100)
    rig.socket.room[b"slow"] = 10
    rig.ask(b"slow", 0)
    with capturedLogs() as logs:
        for _ in range(int(PATIENCE / RETRY) + 2):
            rig.clock.advance(RETRY)
            rig.run()
    (told,) = logs
    assert (told["sent"], told["all"]) == (10, 100)
    assert rig.counts.refused_replays == 1
    assert not rig.clock.getDelayedCalls()
    # It may ask anew.
    rig.socket.room[b"slow"] = 1000
    rig.socket.answers.clear()
    rig.ask(b"slow", 0)
    assert len(rig.numbers(b"slow")) == 100


def test_one_that_left_is_forgotten() -> None:
    rig = Rig(100)
    rig.ask(b"c", 0, run=False)
    rig.clock.advance(0)
    rig.socket.gone.add(b"c")
    rig.run()
    assert not rig.clock.getDelayedCalls()
    assert rig.counts.refused_replays == 1


def test_requests_are_bounded() -> None:
    rig = Rig(100)
    for client in range(MOST_CLIENTS):
        rig.socket.room[b"%d" % client] = 0
        rig.ask(b"%d" % client, 0)
    rig.ask(b"one more", 0)
    assert b"one more" not in rig.socket.answers
    for _ in range(MOST_WAITING + 3):
        rig.ask(b"0", 0)
    assert rig.counts.refused_replays == 1 + 3


def test_at_the_end_nothing_is_left() -> None:
    rig = Rig(100)
    rig.socket.room[b"slow"] = 0
    rig.ask(b"slow", 0)
    rig.ask(b"c", 0, run=False)
    rig.replay.stop()
    assert not rig.clock.getDelayedCalls()
