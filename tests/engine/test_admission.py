"""Who gets a slot, who waits, who is refused."""

from __future__ import annotations

import pytest

from llmdsim.engine.admission import QueueFull
from llmdsim.engine.sequence import Sequence
from tests.engine.rig import TICK, Rig, log


def test_a_free_slot_is_taken_at_once() -> None:
    rig = Rig(slots=2, time_to_first_token=TICK)
    first, second = rig.add(), rig.add()
    assert rig.started == [first, second]
    assert (rig.stats.running, rig.stats.waiting) == (2, 0)


def test_submit_reveals_nothing() -> None:
    rig = Rig()
    sequence = rig.add(total=3)
    assert log(sequence).calls == []
    rig.go()
    assert log(sequence).tokens == [3]


def test_slots_and_queue() -> None:
    rig = Rig(slots=3, waiting=10, time_to_first_token=TICK)
    for _ in range(10):
        rig.add()
    assert (rig.stats.running, rig.stats.waiting) == (3, 7)
    assert not rig.engine.idle


def test_first_come_first_served() -> None:
    rig = Rig(slots=2, time_to_first_token=TICK, inter_token_latency=TICK)
    sequences = [rig.add(total=1 + index % 3) for index in range(12)]
    rig.drain()
    assert rig.started == sequences
    assert rig.engine.idle


def test_a_slot_freed_goes_to_the_oldest_in_the_same_pass() -> None:
    rig = Rig(slots=1, time_to_first_token=TICK)
    rig.add()
    second, third = rig.add(), rig.add()
    rig.go(TICK)
    assert rig.started[-1] is second
    assert (rig.stats.running, rig.stats.waiting) == (1, 1)
    assert second.scheduled_at == rig.now
    assert third.scheduled_at == 0.0


def test_a_reply_is_written_when_its_sequence_starts_not_before() -> None:
    rig = Rig(slots=1, time_to_first_token=TICK)
    first, second = rig.add(), rig.add()
    assert first.reply is not None
    assert second.reply is None
    rig.go(TICK)
    assert second.reply is not None


@pytest.mark.parametrize(("slots", "waiting"), [(1, 0), (1, 1), (3, 0), (2, 5)])
def test_the_waiting_limit(slots: int, waiting: int) -> None:
    rig = Rig(slots=slots, waiting=waiting, time_to_first_token=TICK)
    for _ in range(slots + waiting):
        rig.add()
    refused = rig.make()
    with pytest.raises(QueueFull):
        rig.submit(refused)
    assert (rig.stats.running, rig.stats.waiting) == (slots, waiting)
    assert log(refused).calls == []
    rig.go(TICK)
    rig.add()  # there is room again


def test_being_refused_leaves_no_trace() -> None:
    rig = Rig(slots=1, waiting=0)
    rig.add()
    refused = rig.make()
    with pytest.raises(QueueFull):
        rig.submit(refused)
    rig.drain()
    assert rig.stats.finished == {"stop": 1, "length": 0, "abort": 0, "error": 0, "repetition": 0}
    assert refused.finish_reason is None
    assert refused not in rig.started


@pytest.mark.parametrize(("busy", "n", "fits"), [(0, 4, True), (1, 4, False), (1, 3, True), (0, 5, False)])
def test_all_choices_of_a_request_or_none(busy: int, n: int, fits: bool) -> None:
    rig = Rig(slots=2, waiting=2, time_to_first_token=TICK)
    for _ in range(busy):
        rig.add()
    choices = [rig.make() for _ in range(n)]
    if fits:
        rig.submit(*choices)
        assert (rig.stats.running, rig.stats.waiting) == (2, busy + n - 2)
    else:
        with pytest.raises(QueueFull):
            rig.submit(*choices)
        assert (rig.stats.running, rig.stats.waiting) == (busy, 0)
        assert not set(choices) & set(rig.started)


def test_more_choices_than_slots_run_one_after_another() -> None:
    rig = Rig(slots=2, waiting=2, time_to_first_token=TICK)
    choices = [rig.make() for _ in range(4)]
    rig.submit(*choices)
    assert rig.started == choices[:2]
    rig.drain()
    assert rig.started == choices
    assert all(log(choice).reasons == ["stop"] for choice in choices)


def test_a_freed_place_in_the_queue_can_be_taken() -> None:
    rig = Rig(slots=1, waiting=1, time_to_first_token=TICK)
    rig.add()
    rig.abort(rig.add())
    rig.add()
    with pytest.raises(QueueFull):
        rig.add()


def test_a_sequence_submitted_by_a_sink_does_not_overtake_the_queue() -> None:
    rig = Rig(slots=1, time_to_first_token=TICK)
    late: list[Sequence] = []
    first = rig.add(then=lambda _: late.append(rig.add()))
    queued = [rig.add(), rig.add()]
    rig.drain()
    assert rig.started == [first, *queued, *late]


def test_a_sequence_submitted_by_a_sink_waits_for_the_next_pass() -> None:
    rig = Rig(slots=2)
    late: list[Sequence] = []
    rig.add(then=lambda _: late.append(rig.add()))
    assert rig.go() == rig.now
    assert log(late[0]).calls == []
    rig.go()
    assert log(late[0]).reasons == ["stop"]


def test_a_sink_that_submits_on_its_last_call_finds_its_own_slot_free() -> None:
    rig = Rig(slots=1, waiting=0)
    late: list[Sequence] = []
    rig.add(then=lambda _: late.append(rig.add()))
    rig.drain()
    assert rig.engine.faults == []
    assert log(late[0]).reasons == ["stop"]


def test_a_refusal_in_a_sink_is_the_sinks_own_fault() -> None:
    rig = Rig(slots=1, waiting=0, inter_token_latency=TICK)
    sequence = rig.add(total=2, then=lambda _: rig.submit(rig.make()))
    rig.drain()
    (found, fault) = rig.engine.faults[0]
    assert found is sequence
    assert isinstance(fault, QueueFull)
    assert rig.stats.finished["error"] == 1
    assert rig.engine.idle
