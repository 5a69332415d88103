"""Latencies that change while sequences run count for what is not due yet, from when it began."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdsim.engine.pacing import BURST
from llmdsim.engine.sequence import Sequence
from llmdsim.engine.transfers import RemotePrefill
from llmdsim.reply.plan import Plan
from tests.engine.rig import TICK, Rig, log

IMAGE = Plan(image=True)


def test_a_prefill_under_way_ends_by_the_new_time() -> None:
    rig = Rig(time_to_first_token=60.0)
    start = rig.now
    sequence = rig.add()
    rig.go(8 * TICK)
    assert rig.change(time_to_first_token=20 * TICK) == start + 20 * TICK
    rig.drain()
    assert log(sequence).token_times() == [start + 20 * TICK]


def test_a_gap_under_way_ends_by_the_new_time_and_later_ones_follow() -> None:
    rig = Rig(inter_token_latency=60.0)
    start = rig.now
    sequence = rig.add(total=4)
    rig.go()
    rig.go(8 * TICK)
    assert rig.change(inter_token_latency=10 * TICK) == start + 10 * TICK
    rig.drain()
    assert log(sequence).token_times() == [start + 10 * token * TICK for token in range(4)]


def test_what_would_be_due_already_is_due_now() -> None:
    rig = Rig(inter_token_latency=60.0)
    sequence = rig.add(total=4)
    rig.go()
    rig.go(30.0)
    changed = rig.now
    assert rig.change(inter_token_latency=TICK) == changed
    rig.drain()
    # No burst for the half minute that is past.
    assert log(sequence).token_times()[1:] == [changed, changed + TICK, changed + 2 * TICK]


def test_times_may_become_longer() -> None:
    rig = Rig(time_to_first_token=10 * TICK, inter_token_latency=TICK)
    start = rig.now
    sequence = rig.add(total=2)
    rig.go(4 * TICK)
    assert rig.change(time_to_first_token=90 * TICK) == start + 90 * TICK
    rig.go(86 * TICK)
    assert rig.change(inter_token_latency=50 * TICK) == start + 140 * TICK
    rig.drain()
    assert log(sequence).tokens == [1, 2]


def test_what_is_due_already_stays_due() -> None:
    rig = Rig(time_to_first_token=10 * TICK)
    start = rig.now
    sequence = rig.add()
    rig.now += 10 * TICK
    assert rig.change(time_to_first_token=60.0) == start + 10 * TICK
    rig.go()
    assert log(sequence).tokens == [1]


def test_the_rest_of_a_burst_is_not_put_off() -> None:
    rig = Rig()
    sequence = rig.add(total=BURST + 2)
    rig.go()
    rig.change(inter_token_latency=TICK)
    rig.drain()
    times = log(sequence).token_times()
    assert times[BURST:] == [times[0], times[0] + TICK]


def test_changes_add_no_lateness() -> None:
    rig = Rig(inter_token_latency=8 * TICK)
    start = rig.now
    sequence = rig.add(total=400)
    rig.go()
    for turn in range(399):
        # Each pass is late by 3 ticks, and each is followed by a change to other times and back.
        deadline = rig.engine.next_deadline()
        assert deadline == start + 8 * (turn + 1) * TICK
        rig.now = deadline + 3 * TICK
        rig.engine.advance(rig.now)
        rig.change(inter_token_latency=64 * TICK)
        rig.change(inter_token_latency=8 * TICK)
    assert log(sequence).reasons[-1] == "stop"


def test_settings_that_do_not_differ_change_nothing() -> None:
    rig = Rig(inter_token_latency=1.0, inter_token_latency_std_dev=0.3)
    rig.add(total=9)
    deadline = rig.go()
    for _ in range(5):
        assert rig.change() == deadline


@pytest.mark.parametrize("field", ["inter_token_latency_std_dev", "time_factor_under_load"])
def test_between_times_that_vary_and_times_that_do_not(field: str) -> None:
    varying = {field: 4.0} if field == "time_factor_under_load" else {field: 9.0}
    rig = Rig(slots=2, inter_token_latency=60.0)
    sequences = [rig.add(total=3), rig.add(total=3)]
    rig.go()
    start = rig.now
    rig.change(inter_token_latency=40 * TICK, **varying)
    loaded = 160 if field == "time_factor_under_load" else 40
    assert start + 0.3 * loaded * TICK <= (rig.engine.next_deadline() or 0) <= start + 1.7 * loaded * TICK
    assert rig.change(inter_token_latency=40 * TICK, **{field: 1.0 if loaded == 160 else 0.0})
    rig.drain()
    for sequence in sequences:
        assert log(sequence).token_times() == [start, start + 40 * TICK, start + 80 * TICK]


def test_the_load_is_that_of_the_change() -> None:
    rig = Rig(slots=3, time_to_first_token=60.0)
    start = rig.now
    rig.add()
    rig.add()
    assert rig.change(time_to_first_token=10 * TICK, time_factor_under_load=3.0) == start + 20 * TICK


def test_prefills_by_tokens() -> None:
    rig = Rig(latency_calculator="per-token", prefill_time_per_token=1.0)
    start = rig.now
    sequence = rig.make(prompt=range(10))
    sequence.resident_tokens = 4
    rig.submit(sequence)
    assert rig.change(prefill_time_per_token=TICK, prefill_overhead=TICK) == start + 7 * TICK


def test_transfers() -> None:
    rig = Rig(time_to_first_token=TICK, kv_cache_transfer_latency=60.0)
    start = rig.now
    sequence = rig.make(prompt=range(10))
    sequence.remote_prefill = RemotePrefill()
    rig.submit(sequence)
    assert rig.change(time_to_first_token=2 * TICK) == start + 60.0
    assert rig.change(kv_cache_transfer_latency=5 * TICK) == start + 5 * TICK
    assert (
        rig.change(latency_calculator="per-token", kv_cache_transfer_time_per_token=TICK) == start + 10 * TICK
    )


def test_the_prefill_after_a_transfer_that_failed() -> None:
    rig = Rig(time_to_first_token=60.0, kv_cache_transfer_latency=8 * TICK)
    start = rig.now
    sequence = rig.make()
    sequence.remote_prefill = RemotePrefill(fails=True, recomputes=True)
    rig.submit(sequence)
    rig.go(8 * TICK)
    assert rig.change(kv_cache_transfer_latency=9.0, time_to_first_token=30 * TICK) == start + 38 * TICK


def test_an_image_under_way_and_one_to_come() -> None:
    rig = Rig(inter_token_latency=TICK, time_to_generate_image=60.0)
    start = rig.now
    early, late = rig.add(total=1, plan=IMAGE), rig.add(total=3, plan=IMAGE)
    rig.go()
    rig.change(time_to_generate_image=32 * TICK)
    rig.drain()
    assert log(early).calls[-1][0] == start + 32 * TICK
    assert log(late).calls[-1] == (start + 34 * TICK, 3, "stop")


def test_images_that_come_to_take_time_and_those_that_cease_to() -> None:
    rig = Rig(inter_token_latency=4 * TICK)
    start = rig.now
    sequence = rig.add(total=2, plan=IMAGE)
    rig.go()
    rig.change(time_to_generate_image=60.0)
    rig.go(4 * TICK)
    assert log(sequence).reasons == [None, None]
    assert rig.change(time_to_generate_image=0.0) == start + 4 * TICK
    rig.go()
    assert log(sequence).reasons[-1] == "stop"
    assert rig.engine.idle


def test_speed() -> None:
    rig = Rig(inter_token_latency=60.0)
    start = rig.now
    rig.add(total=3)
    rig.go()
    assert rig.change(speed=10.0) == start + 6.0
    rig.go(6.0)
    assert rig.change(speed=1.0) == start + 66.0


def test_while_time_stands_still() -> None:
    rig = Rig(inter_token_latency=60.0)
    sequence = rig.add(total=2)
    rig.go()
    rig.go(10.0)
    rig.engine.freeze(rig.now)
    rig.now += 1000.0
    assert rig.change(inter_token_latency=25.0) is None
    rig.now += 1000.0
    rig.engine.resume(rig.now)
    # 10 of the 25 s had passed.
    assert rig.engine.next_deadline() == rig.now + 15.0
    rig.drain()
    assert log(sequence).reasons[-1] == "stop"


def test_after_time_stood_still() -> None:
    rig = Rig(inter_token_latency=60.0)
    rig.add(total=2)
    rig.go()
    rig.engine.freeze(rig.now)
    rig.now += 1000.0
    rig.engine.resume(rig.now)
    assert rig.change(inter_token_latency=25.0) == rig.now + 25.0


def test_a_change_in_the_middle_of_a_pass_reaches_all_that_are_in_it() -> None:
    rig = Rig(slots=3, inter_token_latency=60.0)
    start = rig.now

    def change(_: Sequence) -> None:
        rig.change(inter_token_latency=TICK)

    first, _, last = rig.add(total=2), rig.add(total=1, then=change), rig.add(total=2)
    assert rig.go() == start + TICK
    rig.drain()
    for sequence in (first, last):
        assert log(sequence).token_times() == [start, start + TICK]


def test_who_has_left_is_forgotten() -> None:
    rig = Rig(slots=90, inter_token_latency=60.0)
    left = [rig.add(total=2) for _ in range(80)]
    stays = rig.add(total=2)
    rig.go()
    for sequence in left[:50]:
        rig.abort(sequence)
    rig.change(inter_token_latency=TICK)
    for sequence in left[50:]:
        rig.abort(sequence)
    rig.drain()
    assert log(stays).reasons[-1] == "stop"
    assert rig.engine.next_deadline() is None
    assert rig.engine.idle


SECONDS = st.sampled_from([0.0, TICK, 40 * TICK, 60.0])


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["ttft", "itl", "wait", "freeze", "resume", "add"]), SECONDS), max_size=30
    ),
    std_dev=st.sampled_from([0.0, TICK]),
)
def test_whatever_changes_all_comes_in_order_and_to_an_end(
    steps: list[tuple[str, float]], std_dev: float
) -> None:
    rig = Rig(inter_token_latency=TICK, inter_token_latency_std_dev=std_dev)
    sequences = [rig.add(total=5)]
    for what, seconds in steps:
        match what:
            case "ttft":
                rig.change(time_to_first_token=seconds)
            case "itl":
                rig.change(inter_token_latency=seconds)
            case "wait":
                rig.go(seconds)
            case "freeze":
                rig.engine.freeze(rig.now)
            case "resume":
                rig.engine.resume(rig.now)
            case "add":
                sequences.append(rig.add(total=3))
    rig.engine.resume(rig.now)
    rig.drain()
    assert rig.engine.idle
    for sequence in sequences:
        assert log(sequence).reasons[-1] == "stop"
        assert log(sequence).tokens == sorted(log(sequence).tokens)
