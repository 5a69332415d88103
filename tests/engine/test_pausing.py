"""Holding back what is new, and time that stands still."""

from __future__ import annotations

import pytest

from llmdsim.engine.admission import QueueFull
from tests.engine.rig import TICK, Rig, log


def test_a_frozen_engine_reveals_nothing_and_starts_nothing() -> None:
    rig = Rig(slots=2, inter_token_latency=TICK)
    running = rig.add(total=5)
    rig.go()
    rig.engine.freeze(rig.now)
    waiting = rig.add()
    assert rig.go(10 * TICK) is None
    assert (running.revealed, waiting.running) == (1, False)
    assert (rig.stats.running, rig.stats.waiting) == (1, 1)


def test_deadlines_move_by_as_long_as_time_stood_still() -> None:
    rig = Rig(slots=2, time_to_first_token=8 * TICK, inter_token_latency=4 * TICK)
    first, second = rig.add(total=3), rig.add(total=1)
    start = rig.now
    rig.go(9 * TICK)
    rig.engine.freeze(rig.now)
    rig.now += 100 * TICK
    rig.engine.freeze(rig.now)  # goes on standing still
    rig.now += 900 * TICK
    rig.engine.resume(rig.now)
    rig.drain()
    assert log(first).token_times() == [start + 9 * TICK, start + 1012 * TICK, start + 1016 * TICK]
    assert log(second).reasons == ["stop"]


def test_what_was_due_when_time_stopped_is_due_when_it_goes_on() -> None:
    rig = Rig(inter_token_latency=TICK)
    sequence = rig.add(total=2)
    rig.go()
    rig.now += 2 * TICK
    rig.engine.freeze(rig.now)
    rig.now += 50 * TICK
    rig.engine.resume(rig.now)
    rig.go()
    assert log(sequence).reasons == [None, "stop"]


def test_to_resume_what_goes_on_changes_nothing() -> None:
    rig = Rig(inter_token_latency=TICK)
    sequence = rig.add(total=3)
    deadline = rig.go()
    rig.engine.resume(rig.now)
    assert rig.pacing.next_deadline() == deadline
    rig.drain()
    assert log(sequence).reasons == [None, None, "stop"]


def test_holding_lets_a_frozen_engine_finish_what_runs() -> None:
    rig = Rig(slots=1, inter_token_latency=TICK)
    running, waiting = rig.add(total=3), rig.add()
    rig.go()
    rig.engine.freeze(rig.now)
    rig.engine.hold(rig.now)
    rig.drain()
    assert (running.finish_reason, waiting.running, rig.stats.waiting) == ("stop", False, 1)
    rig.engine.resume(rig.now)
    rig.drain()
    assert waiting.finish_reason == "stop"


@pytest.mark.parametrize("running", [0, 1, 2])
def test_as_many_are_taken_as_would_have_been(running: int) -> None:
    rig = Rig(slots=2, waiting=1, time_to_first_token=TICK)
    for _ in range(running):
        rig.add()
    rig.engine.freeze(rig.now)
    for _ in range(3 - running):
        rig.add()
    with pytest.raises(QueueFull):
        rig.add()
    rig.engine.resume(rig.now)
    assert (rig.stats.running, rig.stats.waiting) == (2, 1)


def test_what_is_frozen_can_be_aborted_and_cut_short() -> None:
    rig = Rig(slots=2, inter_token_latency=TICK)
    left, cut, waiting = rig.add(total=5), rig.add(total=5), rig.add()
    rig.go()
    rig.engine.freeze(rig.now)
    rig.abort(left)
    rig.engine.cut_short([cut, waiting], rig.now)
    assert log(left).reasons == [None]
    assert (log(cut).reasons, log(waiting).reasons) == ([None, "abort"], ["abort"])
    assert [(each.revealed, each.reply and each.reply.total) for each in (cut, waiting)] == [(1, 1), (0, 0)]
    assert rig.engine.idle
    rig.engine.resume(rig.now)
    assert rig.go() is None


def test_many_abandoned_deadlines_do_not_pile_up_while_frozen() -> None:
    rig = Rig(slots=1000, time_to_first_token=TICK)
    sequences = [rig.add() for _ in range(1000)]
    rig.engine.freeze(rig.now)
    for sequence in sequences[1:]:
        rig.abort(sequence)
    rig.now += 5 * TICK
    rig.engine.resume(rig.now)
    assert rig.pacing.next_deadline() == rig.now + TICK
    rig.drain()
    assert sequences[0].finish_reason == "stop"


def test_a_sink_may_stop_time() -> None:
    rig = Rig(slots=3, inter_token_latency=TICK)
    for _ in range(3):
        rig.add(total=3, then=lambda _: rig.engine.freeze(rig.now))
    rig.go()
    assert rig.stats.generation_tokens == 3  # what was due when the pass began
    assert rig.go(9 * TICK) is None
    assert rig.stats.generation_tokens == 3


def test_sinks_that_cut_others_short_while_the_queue_moves_up_do_not_pile_up() -> None:
    rig = Rig(slots=1, waiting=3000, time_to_first_token=TICK)
    rig.add()
    for _ in range(3000):
        rig.add(then=lambda _: rig.engine.cut_short([], rig.now), fault=ValueError())
    rig.drain()
    assert [type(fault) for _, fault in rig.engine.faults] == [ValueError] * 3000
    assert rig.engine.idle
