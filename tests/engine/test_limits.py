"""vLLM's limits on what the engine takes in: on sequences, and on prompt tokens that wait to be prefilled."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from llmdsim.engine.adapters import Adapters
from llmdsim.engine.admission import Overloaded, QueueFull
from llmdsim.engine.sequence import Family, Sequence
from tests.engine.rig import TICK, Rig


def limit_met(submit: Callable[[], object]) -> str:
    """The name of the limit that a request would exceed, or "" if it is taken."""
    try:
        submit()
    except Overloaded as overload:
        return overload.limit
    return ""


def choices(rig: Rig, n: int, prompt: int = 5, **ask: object) -> list[Sequence]:
    family = Family(n) if n > 1 else None
    return [rig.make(family=family, prompt=range(prompt), **ask) for _ in range(n)]


def test_running_and_waiting_ones_count_and_ended_ones_do_not() -> None:
    rig = Rig(slots=1, max_num_queued_reqs=2, time_to_first_token=TICK)
    running, _ = rig.add(), rig.add()
    assert limit_met(rig.add) == "max_num_queued_reqs"
    rig.abort(running)
    assert limit_met(rig.add) == ""
    assert limit_met(rig.add) == "max_num_queued_reqs"
    assert rig.stats.rejected == {"max_num_queued_reqs": 2, "max_num_queued_tokens": 0}
    assert rig.stats.refused == 0


@pytest.mark.parametrize(("busy", "n", "fits"), [(0, 3, True), (0, 4, False), (1, 2, True), (1, 3, False)])
def test_all_choices_count_or_none_is_taken(busy: int, n: int, fits: bool) -> None:
    rig = Rig(slots=8, max_num_queued_reqs=3, time_to_first_token=TICK)
    for _ in range(busy):
        rig.add()
    made = choices(rig, n)
    assert (limit_met(lambda: rig.submit(*made)) == "") == fits
    assert (rig.stats.running, rig.engine.prefill_tokens) == (busy + n * fits, 5 * (busy + n * fits))


def test_a_limit_of_no_sequence_lets_nothing_in() -> None:
    assert limit_met(Rig(max_num_queued_reqs=0).add) == "max_num_queued_reqs"
    assert limit_met(Rig(max_num_queued_tokens=0).add) == "max_num_queued_tokens"


@pytest.mark.parametrize(("before", "refused"), [(9, False), (10, True), (11, True)])
def test_a_backlog_as_long_as_the_limit_refuses_and_ones_own_prompt_does_not_count(
    before: int, refused: bool
) -> None:
    rig = Rig(slots=4, max_num_queued_tokens=10, time_to_first_token=TICK)
    rig.add(prompt=range(before))
    assert bool(limit_met(lambda: rig.add(prompt=range(1000)))) == refused


def test_the_first_token_takes_a_prompt_out_of_the_backlog() -> None:
    rig = Rig(slots=1, max_num_queued_tokens=5, time_to_first_token=TICK, inter_token_latency=TICK)
    rig.add(3)
    assert limit_met(rig.add) == "max_num_queued_tokens"
    rig.go(TICK)
    assert rig.engine.prefill_tokens == 0
    waiting = rig.add()
    assert limit_met(rig.add) == "max_num_queued_tokens", "what waits is in it as well"
    rig.abort(waiting)
    assert limit_met(rig.add) == ""


def test_choices_of_one_prompt_are_in_the_backlog_one_by_one() -> None:
    rig = Rig(slots=1, max_num_queued_tokens=15, time_to_first_token=TICK)
    rig.submit(*choices(rig, 2))
    assert limit_met(rig.add) == ""
    assert rig.engine.prefill_tokens == 15
    assert limit_met(rig.add) == "max_num_queued_tokens"


@pytest.mark.parametrize(("prompts", "n", "fits"), [(2, 1, True), (3, 1, False), (2, 2, False), (1, 9, True)])
def test_prompts_of_one_request_find_those_before_them_in_the_backlog(
    prompts: int, n: int, fits: bool
) -> None:
    """As vLLM, whose prompts come one after another; but none is taken for a while and then aborted."""
    rig = Rig(slots=99, max_num_queued_tokens=10, time_to_first_token=TICK)
    made = [choice for _ in range(prompts) for choice in choices(rig, n)]
    assert limit_met(lambda: rig.submit(*made)) == ("" if fits else "max_num_queued_tokens")
    assert rig.stats.running == (prompts * n if fits else 0)


def test_limits_come_before_the_queue_and_requests_before_tokens() -> None:
    rig = Rig(slots=1, waiting=0, max_num_queued_reqs=1, max_num_queued_tokens=1, time_to_first_token=TICK)
    rig.add()
    assert limit_met(rig.add) == "max_num_queued_reqs"
    rig = Rig(slots=1, waiting=0, max_num_queued_reqs=2, max_num_queued_tokens=1, time_to_first_token=TICK)
    rig.add()
    assert limit_met(rig.add) == "max_num_queued_tokens"
    rig = Rig(slots=1, waiting=0, max_num_queued_reqs=2, max_num_queued_tokens=6, time_to_first_token=TICK)
    rig.add()
    with pytest.raises(QueueFull):
        rig.add()
    assert (rig.stats.refused, sum(rig.stats.rejected.values())) == (1, 0)


def by_abort(rig: Rig, sequence: Sequence) -> None:
    rig.abort(sequence)


def by_cutting_short(rig: Rig, sequence: Sequence) -> None:
    rig.engine.cut_short([sequence], rig.now)


@pytest.mark.parametrize("end", [by_abort, by_cutting_short])
@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("busy", [0, 1])
def test_what_ends_without_a_token_leaves_the_backlog(
    end: Callable[[Rig, Sequence], None], held: bool, busy: int
) -> None:
    rig = Rig(slots=1, time_to_first_token=TICK, inter_token_latency=TICK)
    for _ in range(busy):
        rig.add(9)
    rig.go(TICK)
    if held:
        rig.engine.hold(rig.now)
    sequence = rig.add()
    assert rig.engine.prefill_tokens == 5
    end(rig, sequence)
    assert rig.engine.prefill_tokens == 0


def test_so_does_what_cannot_be_written_or_is_below_its_threshold() -> None:
    rig = Rig()
    rig.add(fault=KeyError())
    below = rig.make()
    below.cache_hit_threshold = 0.5
    rig.submit(below)
    assert rig.stats.below_threshold == rig.stats.finished["error"] == 1
    assert rig.engine.prefill_tokens == 0


@pytest.mark.parametrize("total", [0, 1, 2])
def test_an_empty_reply_leaves_it_once(total: int) -> None:
    rig = Rig()
    rig.add(total)
    rig.drain()
    assert rig.engine.prefill_tokens == 0


def test_a_sink_that_fails_with_the_first_token_leaves_it_once() -> None:
    def fail(_: Sequence) -> None:
        raise ValueError

    rig = Rig(inter_token_latency=TICK)
    rig.add(3, then=fail)
    rig.drain()
    assert (rig.stats.finished["error"], rig.engine.prefill_tokens) == (1, 0)


def test_what_takes_no_time_is_checked_and_not_taken() -> None:
    rig = Rig(slots=1, waiting=0, max_num_queued_reqs=3, max_num_queued_tokens=10, time_to_first_token=TICK)
    rig.add()
    rig.engine.check_prompts([4, 100])  # it needs no place in the queue
    assert limit_met(lambda: rig.engine.check_prompts([1, 1, 1])) == "max_num_queued_reqs"
    assert limit_met(lambda: rig.engine.check_prompts([5, 1])) == "max_num_queued_tokens"
    assert rig.stats.rejected == {"max_num_queued_reqs": 1, "max_num_queued_tokens": 1}
    assert rig.engine.prefill_tokens == 5


def test_slots_that_are_held_count_as_places() -> None:
    rig = Rig(slots=2, waiting=1, inter_token_latency=TICK)
    rig.engine.hold(rig.now)
    held = [rig.add(9), rig.add(9), rig.add(9)]
    with pytest.raises(QueueFull):
        rig.add()
    rig.abort(held[1])
    last = rig.add(9)
    with pytest.raises(QueueFull):
        rig.add()
    rig.engine.resume(rig.now)
    assert rig.started == [held[0], held[2]]
    rig.engine.hold(rig.now)
    rig.abort(held[0])
    assert last.waiting, "a slot that comes free while held is not given away"
    assert rig.add(9).waiting
    with pytest.raises(QueueFull):
        rig.add()


def test_places_are_for_those_too_that_wait_for_an_adapter_beside_a_free_slot() -> None:
    known = Adapters()
    one, two = (known.load(name, "/", "base") for name in ("l1", "l2"))
    rig = Rig(slots=2, waiting=0, max_loras=1, time_to_first_token=TICK)
    rig.add(adapter=one)
    waiting = rig.add(adapter=two)
    assert waiting.waiting
    with pytest.raises(QueueFull):
        rig.add()


def test_a_crowd_waits_and_nothing_is_left_of_it() -> None:
    known = Adapters()
    adapters = [known.load(f"l{number}", "/", "base") for number in range(5)]
    rig = Rig(slots=12, waiting=1000, max_loras=2, time_to_first_token=3.0)
    sequences = [rig.add(adapter=adapters[number % 5]) for number in range(1000)]
    rig.go(2.0)
    assert (rig.stats.running, rig.stats.waiting, rig.engine.prefill_tokens) == (12, 988, 5000)
    assert {sequence.adapter for sequence in sequences if sequence.running} == set(adapters[:2])
    assert {sequence.adapter for sequence in sequences if sequence.waiting} == set(adapters)
    rig.drain()
    assert rig.stats.finished["stop"] == 1000
    assert (rig.engine.idle, rig.engine.prefill_tokens) == (True, 0)
