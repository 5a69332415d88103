"""What follows the last token, and what ends before the first."""

from __future__ import annotations

import pytest

from llmdsim.reply.plan import Plan
from tests.engine.rig import TICK, Rig, log

IMAGE = Plan(image=True)


@pytest.mark.parametrize("gap", [0.0, TICK])
@pytest.mark.parametrize("total", [1, 3])
def test_an_image_comes_its_time_after_the_last_token(gap: float, total: int) -> None:
    rig = Rig(inter_token_latency=gap, time_to_generate_image=100 * TICK)
    sequence = rig.add(total=total, plan=IMAGE)
    rig.go(0)
    for _ in range(total - 1):
        rig.go(gap)
    told = log(sequence)
    assert sequence.revealed == total
    assert told.reasons[-1] is None
    assert rig.stats.running == 1
    last = sequence.last_token_at
    rig.go(99 * TICK)
    assert told.reasons[-1] is None
    rig.go(TICK)
    assert told.reasons[-1] == "stop"
    assert (rig.stats.running, sequence.revealed, sequence.last_token_at) == (0, total, last)
    assert rig.stats.generation_tokens == total
    assert rig.engine.idle
    assert rig.pacing.next_deadline() is None


def test_an_image_that_takes_no_time_ends_with_the_last_token() -> None:
    rig = Rig()
    sequence = rig.add(total=2, plan=IMAGE)
    rig.go(0)
    assert log(sequence).reasons == ["stop"]


def test_an_empty_reply_has_no_image_to_wait_for() -> None:
    rig = Rig(time_to_generate_image=TICK)
    sequence = rig.add(total=0, plan=IMAGE)
    rig.go(0)
    assert log(sequence).reasons == ["stop"]


def test_leaving_while_the_image_is_made_frees_the_slot() -> None:
    rig = Rig(slots=1, time_to_generate_image=100 * TICK)
    sequence, other = rig.add(total=2, plan=IMAGE), rig.add()
    rig.go(TICK)
    rig.abort(sequence)
    assert sequence.finish_reason == "abort"
    rig.go(0)
    assert other.finish_reason == "stop"
    assert rig.stats.finished["abort"] == 1
    assert rig.pacing.next_deadline() is None


@pytest.mark.parametrize(("cached", "threshold", "ends"), [(0, 0.1, True), (2, 0.5, True), (3, 0.5, False)])
def test_too_little_of_the_prompt_cached_ends_before_it_begins(
    cached: int, threshold: float, ends: bool
) -> None:
    rig = Rig(slots=1, time_to_first_token=TICK)
    sequence = rig.make()
    sequence.cached_tokens = cached
    sequence.cache_hit_threshold = threshold
    rig.submit(sequence)
    told = log(sequence)
    assert told.reasons == (["cache_threshold"] if ends else [])
    assert rig.stats.running == (not ends)
    rig.go(TICK)
    assert told.reasons == ["cache_threshold" if ends else "stop"]
    assert rig.stats.below_threshold == ends
    assert rig.stats.generation_tokens == (not ends)
    assert rig.stats.prompt_tokens == (0 if ends else 5)
    assert rig.engine.idle


def test_those_behind_one_below_its_threshold_are_not_kept_waiting() -> None:
    rig = Rig(slots=1, time_to_first_token=TICK)
    first, second, third = rig.add(), rig.make(), rig.make()
    second.cache_hit_threshold = 1.0
    rig.submit(second)
    rig.submit(third)
    assert log(second).reasons == []
    rig.go(TICK)
    reasons = [sequence.finish_reason for sequence in (first, second, third)]
    assert reasons == ["stop", "cache_threshold", None]
    rig.go(TICK)
    assert third.finish_reason == "stop"


@pytest.mark.parametrize("passes", [[7, 3], [10]])
def test_a_late_last_token_does_not_put_the_image_off(passes: list[int]) -> None:
    rig = Rig(time_to_first_token=2 * TICK, inter_token_latency=4 * TICK, time_to_generate_image=8 * TICK)
    start = rig.now
    sequence = rig.add(total=2, plan=IMAGE)
    for ticks in passes:
        deadline = rig.go(ticks * TICK)
    assert sequence.revealed == 2
    assert deadline == start + 14 * TICK
