"""Numbers, frames, the window of replay, and faults."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs

from llmdsim.config import Config
from llmdsim.engine.kvcache.records import Cleared, Record, Removed
from llmdsim.kvevents.counts import EventCounts
from llmdsim.kvevents.faults import EventFaults
from llmdsim.kvevents.publisher import MOST_HELD, TOLD_EVERY, Publisher
from llmdsim.kvevents.window import Window
from tests.kvevents.transport import MemoryPublishing, numbers

TOPIC = b"kv@10.0.0.1:8000@m"


def encode(records: Sequence[Record]) -> bytes:
    return repr(list(records)).encode()


class Rig:
    def __init__(self, *faults: str, rate: float = 100.0, seed: int | None = 7, window: int = 100) -> None:
        self.clock = Clock()
        self.counts = EventCounts()
        self.socket = MemoryPublishing()
        self.window = Window(window)
        self.config = Config(model="m", kv_event_faults=faults, kv_event_fault_rate=rate, seed=seed)
        self.faults = EventFaults(self.config, self.counts)
        self.publisher = Publisher(
            encode, TOPIC, self.socket, self.window, self.faults, self.counts, self.clock
        )

    def publish(self, number: int = 1) -> None:
        for each in range(number):
            self.publisher.publish([Removed(each), Cleared()])

    @property
    def sent(self) -> list[int]:
        return numbers(self.socket.sent)

    @property
    def kept(self) -> list[int]:
        return [number for number, _ in self.window.since(0)]


def test_r64_there_are_three_frames_and_numbers_begin_with_0() -> None:
    rig = Rig()
    rig.publish(2)
    payload = encode([Removed(0), Cleared()])
    assert rig.socket.sent[0] == (TOPIC, bytes(8), payload)
    assert rig.socket.sent[1] == (TOPIC, b"\0\0\0\0\0\0\0\1", encode([Removed(1), Cleared()]))
    assert (rig.counts.batches, rig.counts.events, rig.counts.overflows) == (2, 4, 0)


def test_the_window_has_the_payloads_as_they_were_sent_and_loses_the_oldest() -> None:
    rig = Rig(window=3)
    rig.publish(5)
    assert rig.window.since(0) == [(2 + at, message[2]) for at, message in enumerate(rig.socket.sent[2:])]
    assert [number for number, _ in rig.window.since(4)] == [4]
    assert rig.window.since(5) == []


def test_without_subscribers_batches_are_kept_all_the_same() -> None:
    counts = EventCounts()
    window = Window(9)
    faults = EventFaults(Config(model="m"), counts)
    publisher = Publisher(encode, TOPIC, None, window, faults, counts, Clock())
    publisher.publish([Cleared()])
    assert [number for number, _ in window.since(0)] == [0]


def test_r92_a_full_queue_is_counted_and_told_but_not_each_time() -> None:
    rig = Rig()
    rig.socket.full = True
    with capturedLogs() as logs:
        rig.publish(3)
        rig.clock.advance(TOLD_EVERY)
        rig.publish(1)
    told = [(event["number"], event["times"]) for event in logs if event["log_level"] is LogLevel.warn]
    assert told == [(0, 1), (3, 3)]
    assert rig.counts.overflows == 4


def test_a_dropped_batch_can_be_asked_for() -> None:
    rig = Rig("drop; times=1")
    rig.publish(3)
    assert rig.sent == [1, 2]
    assert rig.kept == [0, 1, 2]
    assert rig.counts.faults["drop"] == 1


def test_numbers_left_out_are_nowhere() -> None:
    rig = Rig("gap; skip=3; times=1")
    rig.publish(2)
    assert rig.sent == rig.kept == [3, 4]


def test_a_duplicate_has_the_same_number() -> None:
    rig = Rig("duplicate; times=1")
    rig.publish(2)
    assert rig.sent == [0, 0, 1]
    assert rig.socket.sent[0] == rig.socket.sent[1]
    assert rig.kept == [0, 1]


def test_after_a_restart_numbers_begin_anew_and_nothing_older_is_kept() -> None:
    rig = Rig(rate=0.0)
    rig.publish(3)
    rig.faults.configure(Config(model="m", kv_event_faults=("restart; times=1",), kv_event_fault_rate=100.0))
    rig.publish(2)
    assert rig.sent == [0, 1, 2, 0, 1]
    assert rig.kept == [0, 1]
    # Not even the news that all is gone: this is a crash.
    assert len(rig.socket.sent) == 5


def test_a_delayed_batch_holds_back_later_ones() -> None:
    rig = Rig("delay; for=2s; times=1")
    rig.publisher.speed = 2.0
    rig.publish(3)
    assert (rig.sent, rig.kept) == ([], [0, 1, 2])
    rig.clock.advance(0.99)
    assert rig.sent == []
    rig.clock.advance(0.02)
    assert rig.sent == [0, 1, 2]
    rig.publish(1)
    assert rig.sent == [0, 1, 2, 3]


def test_while_a_batch_is_held_back_others_may_be_dropped_or_doubled() -> None:
    rig = Rig("delay; for=1s; times=1")
    rig.publish(1)
    for fault in ("drop", "duplicate"):
        rig.faults.configure(Config(model="m", kv_event_faults=(fault,), kv_event_fault_rate=100.0))
        rig.publish(1)
    rig.clock.advance(1.0)
    assert rig.sent == [0, 2, 2]


def test_only_so_many_batches_are_held_back() -> None:
    rig = Rig("delay; for=1h; times=1", window=1)
    rig.publish(MOST_HELD)
    assert rig.sent == list(range(MOST_HELD))
    assert not rig.clock.getDelayedCalls()


def test_what_is_held_back_can_be_released_at_the_end() -> None:
    rig = Rig("delay; for=1h")
    rig.publish(2)
    rig.publisher.release()
    assert rig.sent == [0, 1]
    assert not rig.clock.getDelayedCalls()


def test_with_a_seed_the_same_batches_meet_the_same_faults() -> None:
    def run(seed: int | None) -> list[int]:
        rig = Rig("drop", "duplicate", "gap", rate=30.0, seed=seed)
        rig.publish(200)
        assert 30 <= sum(rig.counts.faults.values()) <= 90
        return rig.sent

    assert run(1) == run(1) != run(2)
    assert run(None) != run(None)


@pytest.mark.parametrize("rate", [0.0, 100.0])
def test_the_rate_says_how_many_meet_one(rate: float) -> None:
    rig = Rig("drop", rate=rate)
    rig.publish(20)
    assert len(rig.sent) == (20 if rate == 0.0 else 0)


def test_times_begin_anew_when_faults_change() -> None:
    rig = Rig("drop; times=1")
    rig.publish(2)
    rig.faults.configure(rig.config)
    rig.publish(1)
    assert rig.sent == [1, 2]
    rig.faults.configure(Config(model="m", kv_event_fault_rate=100.0))
    rig.faults.configure(rig.config)
    rig.publish(1)
    assert rig.sent == [1, 2]
