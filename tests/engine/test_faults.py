"""What a sink or the writer raises ends one sequence, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from llmdsim.engine.sequence import Family, Sequence
from tests.engine.rig import TICK, Rig, log


def fail(_: Sequence) -> None:
    raise ValueError("a sink's fault")


def give_up_on(rig: Rig, sequences: list[Sequence]) -> Callable[[Sequence], None]:
    """What a reply sent whole does when one choice cannot be had: the others are of no use."""

    def abort_them(_: Sequence) -> None:
        for sequence in sequences:
            rig.abort(sequence)

    return abort_them


def test_a_sinks_exception_ends_that_sequence_alone() -> None:
    rig = Rig(slots=3, inter_token_latency=TICK)
    before, bad, after = rig.add(total=3), rig.add(total=3, then=fail), rig.add(total=3)
    queued = rig.add()
    rig.go()
    assert log(before).tokens == log(after).tokens == [1]
    assert bad.finish_reason == "error"
    assert rig.started[-1] is queued
    assert rig.stats.running == 3
    rig.drain()
    assert log(bad).tokens == [1]
    assert log(before).reasons == log(after).reasons == [None, None, "stop"]
    assert log(queued).reasons == ["stop"]
    assert rig.stats.finished == {"stop": 3, "length": 0, "abort": 0, "error": 1, "repetition": 0}
    assert [(found, str(fault)) for found, fault in rig.engine.faults] == [(bad, "a sink's fault")]


def test_a_sinks_exception_on_its_last_call_frees_the_slot_too() -> None:
    rig = Rig(slots=1)
    bad = rig.add(then=fail)
    queued = rig.add()
    rig.drain()
    assert bad.finish_reason == "stop"  # that much was true, and is counted
    assert log(bad).reasons == ["stop"]
    assert rig.stats.finished["error"] == 0
    assert log(queued).reasons == ["stop"]
    assert len(rig.engine.faults) == 1
    assert rig.engine.idle


def test_a_writers_exception_ends_that_sequence_and_tells_its_sink() -> None:
    rig = Rig(slots=1, time_to_first_token=TICK)
    bad = rig.add(fault=ValueError("a writer's fault"))
    assert log(bad).calls == [(rig.now, 0, "error")]
    assert rig.stats.running == 0
    assert rig.stats.finished["error"] == 1
    assert [(found, str(fault)) for found, fault in rig.engine.faults] == [(bad, "a writer's fault")]
    assert rig.engine.idle
    assert rig.go() is None
    good = rig.add()
    rig.drain()
    assert log(good).reasons == ["stop"]


def test_a_writers_exception_for_a_queued_sequence_lets_the_next_start() -> None:
    rig = Rig(slots=1)
    rig.add()
    bad = [rig.add(fault=ValueError()) for _ in range(3)]
    good = rig.add()
    rig.go()
    assert [log(each).reasons for each in bad] == [["error"]] * 3
    assert rig.started[-1] is good
    assert (rig.stats.running, rig.stats.waiting) == (1, 0)
    assert len(rig.engine.faults) == 3


def test_writer_and_sink_may_both_fail() -> None:
    rig = Rig(slots=1)
    rig.add(fault=KeyError(), then=fail)
    assert [type(fault) for _, fault in rig.engine.faults] == [KeyError, ValueError]
    assert rig.stats.finished["error"] == 1
    assert rig.engine.idle


def test_siblings_aborted_while_they_are_being_submitted_never_start() -> None:
    rig = Rig(slots=4, time_to_first_token=TICK)
    family = Family(4)
    siblings = [rig.make(family=family, index=index) for index in range(4)]
    siblings[1].ask.fault = ValueError()  # type: ignore[attr-defined]
    log(siblings[1]).then = give_up_on(rig, siblings)
    rig.submit(*siblings)
    assert (rig.stats.running, rig.stats.waiting) == (0, 0)
    assert rig.stats.finished == {"stop": 0, "length": 0, "abort": 3, "error": 1, "repetition": 0}
    assert family.left == 0
    rig.drain()
    assert rig.engine.idle


def test_a_sink_told_of_a_writers_fault_may_submit_but_not_overtake() -> None:
    rig = Rig(slots=1, waiting=3, time_to_first_token=TICK)
    late: list[Sequence] = []
    bad = rig.make(fault=ValueError(), then=lambda _: late.append(rig.add()))
    sibling = rig.make()
    rig.submit(bad, sibling)
    rig.drain()
    assert rig.started == [bad, sibling, *late]


@pytest.mark.parametrize("pairs", [10, 2000])
def test_a_long_queue_of_failures_is_no_deep_recursion(pairs: int) -> None:
    rig = Rig(slots=2, waiting=2 * pairs + 1)
    rig.submit(rig.make(), rig.make())
    for _ in range(pairs):
        pair = [rig.make(fault=ValueError()), rig.make(fault=ValueError())]
        for each in pair:
            log(each).then = give_up_on(rig, pair)
        rig.submit(*pair)
    last = rig.add()
    rig.drain()
    assert {type(fault) for _, fault in rig.engine.faults} == {ValueError}
    assert log(last).reasons == ["stop"]
    assert sum(rig.stats.finished.values()) == 2 * pairs + 3
    assert rig.engine.idle
