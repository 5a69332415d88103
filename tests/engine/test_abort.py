"""Ending sequences early: at any moment, from anywhere, with the slot free at once."""

from __future__ import annotations

import weakref

import pytest

from llmdsim.engine.sequence import Sequence
from tests.engine.rig import TICK, Reply, Rig, log


def test_abort_of_a_running_sequence_frees_its_slot_at_once() -> None:
    rig = Rig(slots=1, time_to_first_token=TICK, inter_token_latency=TICK)
    running, queued = rig.add(total=9), rig.add()
    rig.go(TICK)
    rig.abort(running)
    assert running.finish_reason == "abort"
    assert rig.started == [running, queued]
    assert (rig.stats.running, rig.stats.waiting) == (1, 0)
    rig.drain()
    assert log(running).reasons == [None]  # not a word after the abort
    assert log(queued).reasons == ["stop"]
    assert rig.engine.idle


def test_abort_of_a_queued_sequence_frees_its_place() -> None:
    rig = Rig(slots=1, time_to_first_token=TICK)
    first, second, third = rig.add(), rig.add(), rig.add()
    rig.abort(second)
    assert (rig.stats.running, rig.stats.waiting) == (1, 1)
    rig.drain()
    assert rig.started == [first, third]
    assert log(second).calls == []


def test_abort_of_the_last_running_sequence_leaves_an_idle_engine() -> None:
    rig = Rig(time_to_first_token=TICK)
    rig.abort(rig.add())
    assert rig.engine.idle
    assert rig.go() is None


def test_abort_after_the_end_changes_nothing() -> None:
    rig = Rig()
    sequence = rig.add()
    rig.go()
    rig.abort(sequence)
    assert sequence.finish_reason == "stop"
    assert rig.stats.finished["abort"] == 0


def test_a_second_abort_changes_nothing() -> None:
    rig = Rig(time_to_first_token=TICK)
    sequence = rig.add()
    rig.abort(sequence)
    rig.abort(sequence)
    assert rig.stats.finished["abort"] == 1
    assert rig.stats.running == 0


@pytest.mark.parametrize("calls", [1, 2])
def test_a_sink_may_abort_its_own_sequence(calls: int) -> None:
    rig = Rig(slots=1, inter_token_latency=TICK)
    sequence = rig.make(total=5)
    log(sequence).then = lambda each: rig.abort(each) if len(log(each).calls) == calls else None
    rig.submit(sequence)
    queued = rig.add()
    rig.drain()
    assert log(sequence).tokens == list(range(1, calls + 1))
    assert sequence.finish_reason == "abort"
    assert log(queued).reasons == ["stop"]
    assert (rig.stats.running, rig.stats.finished["abort"]) == (0, 1)
    assert rig.engine.faults == []


def test_a_sink_may_abort_its_own_sequence_on_its_last_call() -> None:
    rig = Rig(slots=1)
    sequence = rig.add(then=rig.abort)
    queued = rig.add()
    rig.drain()
    assert sequence.finish_reason == "stop"
    assert log(queued).reasons == ["stop"]
    assert rig.stats.finished["abort"] == 0


def test_a_sink_may_abort_itself_and_then_fail() -> None:
    rig = Rig(slots=1, inter_token_latency=TICK)

    def gives_up(sequence: Sequence) -> None:
        rig.abort(sequence)
        raise ValueError

    rig.add(total=5, then=gives_up)
    rig.drain()
    assert rig.stats.finished == {"stop": 0, "length": 0, "abort": 1, "error": 0, "repetition": 0}
    assert [type(fault) for _, fault in rig.engine.faults] == [ValueError]
    assert rig.engine.idle


@pytest.mark.parametrize("total", [1, 5])
def test_a_sink_may_abort_another_sequence_due_in_the_same_pass(total: int) -> None:
    rig = Rig(slots=2, inter_token_latency=TICK)
    later = rig.make(total=5)
    rig.add(total=total, then=lambda _: rig.abort(later))
    rig.submit(later)
    queued = rig.add()
    rig.go()
    assert log(later).calls == []
    assert later.finish_reason == "abort"
    assert rig.started[-1] is queued
    rig.drain()
    assert log(queued).reasons == ["stop"]
    assert rig.engine.idle


def test_a_sink_may_abort_a_sequence_served_before_it_in_the_same_pass() -> None:
    rig = Rig(slots=2, inter_token_latency=TICK)
    earlier = rig.add(total=5)
    rig.add(total=1, then=lambda _: rig.abort(earlier))
    rig.drain()
    assert log(earlier).tokens == [1]
    assert rig.stats.running == 0


def test_a_sink_may_abort_a_queued_sequence() -> None:
    rig = Rig(slots=1)
    queued = rig.make()
    first = rig.add(then=lambda _: rig.abort(queued))
    rig.submit(queued)
    last = rig.add()
    rig.drain()
    assert rig.started == [first, last]
    assert log(queued).calls == []


def test_a_sequence_started_by_an_abort_in_a_pass_waits_for_its_own_deadline() -> None:
    rig = Rig(slots=2, time_to_first_token=TICK)
    other = rig.make(total=1)
    rig.add(then=lambda _: rig.abort(other))
    rig.submit(other)
    queued = rig.add()
    rig.go(TICK)
    assert rig.started[-1] is queued
    assert log(queued).calls == []
    assert rig.go() == rig.now + TICK


def test_cutting_short_tells_every_sink() -> None:
    rig = Rig(slots=2, inter_token_latency=TICK)
    sequences = [rig.add(total=5) for _ in range(4)]
    rig.go()
    rig.engine.cut_short(rig.engine.sequences, rig.now)
    assert [log(sequence).reasons for sequence in sequences] == [[None, "abort"]] * 2 + [["abort"]] * 2
    assert (rig.stats.running, rig.stats.waiting) == (0, 0)
    assert rig.stats.finished["abort"] == 4
    assert rig.engine.idle
    assert rig.go(TICK) is None


def test_cutting_short_outlives_sinks_that_fail_or_abort_their_siblings() -> None:
    rig = Rig(slots=2, time_to_first_token=TICK)
    sequences = [rig.make() for _ in range(6)]

    def abort_siblings(_: Sequence) -> None:
        for each in sequences:
            rig.abort(each)
        raise ValueError

    log(sequences[0]).then = log(sequences[1]).then = abort_siblings
    rig.submit(*sequences)
    rig.engine.cut_short(rig.engine.sequences, rig.now)
    assert rig.stats.finished["abort"] == 6
    assert rig.engine.idle


def test_a_sequence_submitted_while_all_are_cut_short_is_not_forgotten() -> None:
    rig = Rig(slots=1, time_to_first_token=TICK)
    late: list[Sequence] = []
    rig.add(then=lambda _: late.append(rig.add()))
    rig.add()
    rig.engine.cut_short(rig.engine.sequences, rig.now)
    rig.drain()
    assert log(late[0]).reasons == ["stop"]
    assert rig.engine.idle


@pytest.mark.parametrize("total", [0, 1, 7])
def test_abandoned_deadlines_do_not_pile_up(total: int) -> None:
    rig = Rig(slots=4, time_to_first_token=3600.0)
    alive = 0
    most = 0

    def died() -> None:
        nonlocal alive
        alive -= 1

    for _ in range(20_000):
        sequence = rig.add(total=total)
        assert isinstance(sequence.reply, Reply)
        weakref.finalize(sequence.reply, died)
        alive += 1
        rig.abort(sequence)
        del sequence
        rig.started.clear()
        most = max(most, alive)
    assert most < 1000


def test_a_hundred_thousand_aborts_beside_long_runners_keep_their_deadlines() -> None:
    rig = Rig(slots=4, time_to_first_token=64.0)
    long_runners = [rig.add() for _ in range(3)]
    for _ in range(100_000):
        rig.abort(rig.add())
        rig.started.clear()
    assert rig.go(64.0 - TICK) == rig.now + TICK
    assert [log(each).calls for each in long_runners] == [[], [], []]
    rig.go(TICK)
    assert [log(each).reasons for each in long_runners] == [["stop"]] * 3
    assert rig.stats.finished["abort"] == 100_000
