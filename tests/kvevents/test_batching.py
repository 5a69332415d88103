"""When events leave, and how many together."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from llmdsim.engine.kvcache.records import Record, Removed, Stored
from llmdsim.kvevents.batching import Batcher


def records(first: int, number: int) -> list[Record]:
    return [Removed(each) for each in range(first, first + number)]


class Rig:
    def __init__(self, size: int, interval: float) -> None:
        self.clock = Clock()
        self.batches: list[list[Record]] = []
        self.batcher = Batcher(size, self.clock, self.batches.append)
        self.batcher.interval = interval

    @property
    def hashes(self) -> list[list[object]]:
        return [[record.hash for record in batch] for batch in self.batches]  # type: ignore[union-attr]


def test_r67_by_default_a_pass_leaves_with_its_end() -> None:
    rig = Rig(16, 0.0)
    rig.batcher.add(records(0, 2))
    rig.batcher.add(records(2, 1))
    assert rig.hashes == [[0, 1], [2]]
    assert not rig.clock.getDelayedCalls()


def test_no_batch_has_more_events_than_it_may() -> None:
    rig = Rig(16, 0.0)
    rig.batcher.add(records(0, 40))
    assert [len(batch) for batch in rig.batches] == [16, 16, 8]
    assert [each for batch in rig.hashes for each in batch] == list(range(40))


def test_with_an_interval_a_full_batch_leaves_at_once_and_the_rest_when_it_is_over() -> None:
    rig = Rig(4, 1.0)
    rig.batcher.add(records(0, 3))
    rig.clock.advance(0.9)
    assert rig.hashes == []
    rig.batcher.add(records(3, 3))
    assert rig.hashes == [[0, 1, 2, 3]]
    # What is left waits from when the full one left.
    rig.clock.advance(0.99)
    assert len(rig.batches) == 1
    rig.clock.advance(0.02)
    assert rig.hashes == [[0, 1, 2, 3], [4, 5]]


def test_nothing_is_armed_while_nothing_waits() -> None:
    rig = Rig(2, 1.0)
    assert not rig.clock.getDelayedCalls()
    rig.batcher.add(records(0, 2))
    assert not rig.clock.getDelayedCalls()
    rig.batcher.add(records(2, 1))
    assert len(rig.clock.getDelayedCalls()) == 1
    rig.clock.advance(1.0)
    assert rig.hashes == [[0, 1], [2]]
    assert not rig.clock.getDelayedCalls()


def test_what_waits_can_be_sent_now() -> None:
    rig = Rig(8, 60.0)
    rig.batcher.add(records(0, 3))
    rig.batcher.flush()
    assert rig.hashes == [[0, 1, 2]]
    assert not rig.clock.getDelayedCalls()
    rig.batcher.flush()
    assert len(rig.batches) == 1


def test_the_list_that_a_pass_gave_is_left_as_it_is() -> None:
    rig = Rig(2, 1.0)
    given_list = records(0, 3)
    rig.batcher.add(given_list)
    rig.batcher.add(records(3, 1))
    assert given_list == records(0, 3)


@given(
    passes=st.lists(st.integers(0, 9), max_size=30),
    size=st.integers(1, 5),
    interval=st.sampled_from([0.0, 0.1, 1.0]),
    pause=st.floats(0.0, 0.5),
)
def test_order_and_number_are_kept(passes: list[int], size: int, interval: float, pause: float) -> None:
    rig = Rig(size, interval)
    first = 0
    for number in passes:
        rig.batcher.add(records(first, number))
        first += number
        rig.clock.advance(pause)
    rig.batcher.flush()
    assert [each for batch in rig.hashes for each in batch] == list(range(first))
    assert all(1 <= len(batch) <= size for batch in rig.batches)


@pytest.mark.parametrize("interval", [0.0, 1.0])
def test_one_store_is_one_event_however_many_blocks_it_has(interval: float) -> None:
    rig = Rig(1, interval)
    rig.batcher.add([Stored(list(range(100)), None, array("I", range(1600)), 16)])
    assert [len(batch) for batch in rig.batches] == [1]
