"""Replies that take long to write: only so many start in one turn of the reactor."""

from __future__ import annotations

from llmdsim.engine.engine import MOST_WRITING
from llmdsim.reply.plan import Plan
from tests.engine.rig import TICK, Rig, log

PLAN = Plan(calls="auto")
LONG = MOST_WRITING + TICK


def test_one_turn_starts_so_many_and_the_next_one_more() -> None:
    rig = Rig(slots=8)
    hard = [rig.make(plan=PLAN, takes=LONG) for _ in range(3)]
    rig.submit(*hard)
    assert rig.started == hard[:1]
    assert (rig.stats.running, rig.stats.waiting) == (1, 2)
    assert rig.engine.next_deadline() == 0.0
    for started in (2, 3):
        rig.engine.turn(rig.now)
        assert rig.started == hard[:started]
    rig.go()
    assert [log(sequence).reasons for sequence in hard] == [["stop"]] * 3
    assert rig.engine.next_deadline() is None


def test_requests_of_their_own_share_a_turn_too_and_keep_their_order() -> None:
    rig = Rig(slots=8)
    hard, plain, other = rig.add(plan=PLAN, takes=LONG), rig.add(), rig.add(plan=PLAN)
    rig.go()
    assert rig.started == [hard]
    rig.engine.turn(rig.now)
    assert rig.started == [hard, plain, other]


def test_easy_ones_start_together() -> None:
    rig = Rig(slots=8)
    easy = [rig.make(plan=PLAN, takes=MOST_WRITING / 16) for _ in range(8)]
    rig.submit(*easy)
    assert rig.started == easy


def test_what_waits_for_a_turn_can_be_aborted_and_counts_against_the_queue() -> None:
    rig = Rig(slots=2, waiting=0)
    first, second = (rig.make(plan=PLAN, takes=LONG) for _ in range(2))
    rig.submit(first, second)
    rig.abort(second)
    assert rig.engine.next_deadline() == first.arrival
    rig.go()
    assert rig.engine.idle
    rig.engine.turn(rig.now)
    assert rig.started == [first]


def test_a_held_engine_asks_for_no_turn() -> None:
    rig = Rig(slots=4)
    rig.submit(*(rig.make(plan=PLAN, takes=LONG) for _ in range(2)))
    rig.engine.freeze(rig.now)
    assert rig.engine.next_deadline() is None
    rig.engine.turn(rig.now)
    assert len(rig.started) == 1
    rig.engine.resume(rig.now)
    rig.go()
    assert len(rig.started) == 2
