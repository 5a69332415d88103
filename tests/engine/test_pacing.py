"""Deadlines are absolute: what is due is revealed, and lateness never adds up."""

from __future__ import annotations

from random import Random

import pytest

from llmdsim.engine.latency import Latency
from llmdsim.engine.pacing import BURST, MOST_IN_BURSTS
from tests.engine.rig import TICK, Rig, log


def test_the_timetable_of_one_sequence() -> None:
    rig = Rig(time_to_first_token=8 * TICK, inter_token_latency=3 * TICK)
    start = rig.now
    sequence = rig.add(total=4)
    assert rig.go() == start + 8 * TICK
    rig.drain()
    assert log(sequence).calls == [
        (start + 8 * TICK, 1, None),
        (start + 11 * TICK, 2, None),
        (start + 14 * TICK, 3, None),
        (start + 17 * TICK, 4, "stop"),
    ]


def test_nothing_is_revealed_before_its_time() -> None:
    rig = Rig(time_to_first_token=8 * TICK)
    sequence = rig.add()
    rig.go(8 * TICK - TICK / 64)
    assert log(sequence).calls == []
    rig.go(TICK / 64)
    assert log(sequence).tokens == [1]


def test_a_late_pass_reveals_all_that_is_due_and_later_deadlines_stay() -> None:
    rig = Rig(time_to_first_token=8 * TICK, inter_token_latency=TICK)
    start = rig.now
    sequence = rig.add(total=10)
    assert rig.go(11.5 * TICK) == start + 12 * TICK
    assert log(sequence).tokens == [4]
    assert rig.go(TICK) == start + 13 * TICK
    assert log(sequence).tokens == [4, 5]
    rig.go(100 * TICK)
    assert log(sequence).tokens == [4, 5, 10]
    assert log(sequence).reasons[-1] == "stop"


def test_a_late_pass_counts_a_token_due_at_this_very_instant() -> None:
    rig = Rig(time_to_first_token=TICK, inter_token_latency=TICK)
    sequence = rig.add(total=10)
    rig.go(3 * TICK)
    assert log(sequence).tokens == [3]


@pytest.mark.parametrize("under_way", [False, True])
def test_after_a_late_pass_the_order_is_that_of_time(under_way: bool) -> None:
    rig = Rig(time_to_first_token=8 * TICK, inter_token_latency=TICK)
    first = rig.add(total=20)
    rig.go(TICK / 2)
    second = rig.add(total=20)
    rig.go(7.5 * TICK)
    if under_way:
        # Their deadlines are in order from here on.
        rig.go(TICK / 2)
        rig.go(TICK / 2)
    # The first is due after the second, though its turn comes before.
    before = rig.now
    assert rig.go(1.75 * TICK) == before + 2 * TICK if under_way else before + 2 * TICK
    told = len(log(first).tokens), len(log(second).tokens)
    for _ in range(4):
        rig.go(TICK / 2)
    assert (len(log(first).tokens) - told[0], len(log(second).tokens) - told[1]) == (2, 2)


@pytest.mark.parametrize("late", [BURST - 1, BURST, BURST + 1, 3 * BURST])
def test_a_pass_that_is_very_late_reveals_a_burst_at_most(late: int) -> None:
    rig = Rig(time_to_first_token=TICK, inter_token_latency=TICK)
    sequence = rig.add(total=4 * BURST)
    rig.go(TICK)
    rig.go(TICK)
    rig.go(late * TICK)
    assert log(sequence).tokens == [1, 2, 2 + min(late, BURST)]
    while log(sequence).tokens[-1] < 2 + late:
        rig.go()
    assert log(sequence).tokens[-1] == 2 + late


def test_a_late_pass_with_varying_gaps() -> None:
    options = {
        "time_to_first_token": 0.1,
        "inter_token_latency": 0.02,
        "inter_token_latency_std_dev": 0.005,
        "seed": 7,
    }
    rig = Rig(**options)
    twin = Latency(rig.settings)
    due = [rig.now + twin.prefill(5, 0, 1)]
    for _ in range(19):
        due.append(due[-1] + twin.gap(1))
    sequence = rig.add(total=20)
    while rig.pacing.next_deadline() is not None:
        rig.go(0.07)
        assert log(sequence).tokens[-1:] == [sum(each <= rig.now for each in due)][: len(log(sequence).calls)]
    assert log(sequence).reasons[-1] == "stop"


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_without_latency_a_pass_reveals_a_bounded_burst(factor: float) -> None:
    rig = Rig(time_factor_under_load=factor)
    long, short = rig.add(total=2 * BURST + 3), rig.add(total=2)
    deadline = rig.go()
    assert log(long).tokens == [BURST]
    assert log(short).tokens == [2]  # has its turn in the same pass
    assert deadline is not None
    assert deadline <= rig.now
    rig.go()
    rig.go()
    assert log(long).tokens == [BURST, 2 * BURST, 2 * BURST + 3]
    assert log(long).reasons == [None, None, "stop"]


def test_a_pass_without_latency_has_room_for_some_bursts_and_the_others_come_next() -> None:
    rig = Rig(slots=100)
    in_a_pass = MOST_IN_BURSTS // BURST
    sequences = [rig.add(total=9 * BURST) for _ in range(3 * in_a_pass)]
    rig.go()
    first = [log(each).tokens[-1] for each in sequences if log(each).tokens]
    assert first == [BURST] * in_a_pass
    last = rig.add(total=2)
    for _ in range(4):
        rig.go(TICK)
    # In rotation: each has had its turn before any has its third.
    assert log(last).tokens == [2]
    assert {len(log(each).calls) for each in sequences} <= {1, 2}


def test_one_token_of_everybody_is_always_one_pass() -> None:
    rig = Rig(slots=3000, inter_token_latency=TICK)
    sequences = [rig.add(total=3) for _ in range(2 * MOST_IN_BURSTS)]
    rig.go()
    assert all(log(each).tokens == [1] for each in sequences)


def test_a_reply_of_just_a_burst_ends_in_one_pass() -> None:
    rig = Rig()
    sequence = rig.add(total=BURST)
    assert rig.go() is None
    assert log(sequence).reasons == ["stop"]


@pytest.mark.parametrize("std_dev", [0.0, TICK / 4])
def test_a_very_late_pass_reveals_bursts_too_but_never_what_is_not_due(std_dev: float) -> None:
    rig = Rig(inter_token_latency=TICK, inter_token_latency_std_dev=std_dev)
    sequence = rig.add(total=10_000)
    deadline = rig.go(2.5 * BURST * TICK)
    assert log(sequence).tokens == [BURST]
    while deadline is not None and deadline <= rig.now:
        deadline = rig.go()
    assert log(sequence).tokens[1] == 2 * BURST
    # Token k is due k gaps after the start; gaps that vary do so around their mean.
    assert log(sequence).tokens[-1] == pytest.approx(2.5 * BURST + 1, abs=40 if std_dev else 0)


@pytest.mark.parametrize("latency", [0.0, TICK])
def test_an_empty_reply_is_one_last_call_after_the_prefill(latency: float) -> None:
    rig = Rig(slots=1, time_to_first_token=latency, inter_token_latency=latency)
    sequence = rig.add(total=0)
    queued = rig.add()
    assert log(sequence).calls == []
    rig.go(latency)
    assert log(sequence).calls == [(rig.now, 0, "stop")]
    assert rig.started[-1] is queued
    rig.drain()
    assert rig.engine.idle


def test_the_finish_reason_is_the_replys_and_comes_with_the_last_token() -> None:
    rig = Rig(inter_token_latency=TICK)
    sequence = rig.add(total=2, finish_reason="length")
    rig.drain()
    assert log(sequence).reasons == [None, "length"]


def test_sequences_due_at_the_same_instant_go_in_the_order_of_their_start() -> None:
    order: list[int] = []
    rig = Rig(slots=8, time_to_first_token=TICK)
    for index in range(8):
        rig.add(index=index, then=lambda sequence: order.append(sequence.index))
    rig.go(TICK)
    assert order == list(range(8))


def test_earlier_deadlines_go_first_in_a_late_pass() -> None:
    order: list[int] = []
    rig = Rig(slots=8, latency_calculator="per-token", prefill_time_per_token=TICK)
    for index, prompt in enumerate([9, 3, 6]):
        rig.add(index=index, prompt=range(prompt), then=lambda sequence: order.append(sequence.index))
    rig.go(1.0)
    assert order == [1, 2, 0]


def test_half_a_minute_of_a_hundred_streams_without_drift() -> None:
    ttft, itl, late = 0.1, 0.02, 0.015
    rig = Rig(slots=100, time_to_first_token=ttft, inter_token_latency=itl)
    random = Random(3)
    start: dict[int, float] = {}
    sequences = []
    for index in range(100):
        rig.now += random.uniform(0.0, 0.0002)
        start[index] = rig.now
        sequences.append(rig.add(total=1500, index=index))
    while (deadline := rig.pacing.next_deadline()) is not None:
        rig.now = max(rig.now, deadline) + random.uniform(0.0, late)
        rig.engine.advance(rig.now)
    for sequence in sequences:
        times = log(sequence).token_times()
        first = start[sequence.index] + ttft
        lateness = [now - (first + token * itl) for token, now in enumerate(times)]
        assert len(lateness) == 1500
        assert min(lateness) >= -1e-9
        assert max(lateness) <= late + 1e-9


def test_the_load_is_that_of_the_moment_a_token_is_revealed() -> None:
    # Three slots and a factor of three: each running sequence adds one to the factor.
    rig = Rig(slots=3, time_to_first_token=4 * TICK, inter_token_latency=4 * TICK, time_factor_under_load=3.0)
    start = rig.now
    first = rig.add(total=5)
    rig.go(4 * TICK)  # alone: the prefill is 4, and so is the next gap
    second = rig.make(total=1)
    rig.submit(second)  # two run: its prefill is 8
    rig.go(4 * TICK)  # the gap was drawn alone; the next is drawn with two running
    assert log(first).token_times() == [start + 4 * TICK, start + 8 * TICK]
    rig.drain()
    assert log(second).token_times() == [start + 12 * TICK]
    assert log(first).token_times()[2:] == [start + 16 * TICK, start + 20 * TICK, start + 24 * TICK]


def test_every_sequence_of_a_request_counts_as_soon_as_it_starts() -> None:
    rig = Rig(slots=3, time_to_first_token=TICK, time_factor_under_load=3.0)
    choices = [rig.make() for _ in range(3)]
    start = rig.now
    rig.submit(*choices)
    rig.drain()
    assert [log(each).token_times() for each in choices] == [
        [start + TICK],
        [start + 2 * TICK],
        [start + 3 * TICK],
    ]


def test_queued_sequences_are_no_load() -> None:
    rig = Rig(slots=2, time_to_first_token=4 * TICK, time_factor_under_load=2.0)
    start = rig.now
    first = rig.add()
    second = rig.add()
    for _ in range(10):
        rig.add()
    rig.go(8 * TICK)
    assert first.first_token_at == start + 8 * TICK  # the one pass, which is late for this one
    assert log(second).token_times() == [start + 8 * TICK]


def test_the_prefill_knows_prompt_and_cached_tokens() -> None:
    rig = Rig(latency_calculator="per-token", prefill_overhead=TICK, prefill_time_per_token=2 * TICK)
    start = rig.now
    sequence = rig.make(prompt=range(10))
    sequence.resident_tokens = 4
    rig.submit(sequence)
    assert rig.go() == start + TICK + 6 * 2 * TICK


def test_a_queued_sequence_is_prefilled_from_its_start() -> None:
    rig = Rig(slots=1, time_to_first_token=4 * TICK)
    start = rig.now
    rig.add()
    queued = rig.add()
    rig.drain()
    assert log(queued).token_times() == [start + 8 * TICK]
