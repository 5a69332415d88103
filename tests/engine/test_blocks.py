"""Sequences and their KV blocks: what they start with and leave, and what becomes of them under pressure."""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from llmdsim.engine.adapters import Adapter
from llmdsim.engine.kvcache import PLAIN, Cleared, Extra, KvCache, Removed, Stored
from llmdsim.engine.kvcache.pool import Pool
from llmdsim.engine.sequence import Sequence
from llmdsim.engine.transfers import RemotePrefill
from llmdsim.tokenization.prompt import MediaSpan
from tests.engine.rig import TICK, Rig, log

SIZE = 4


class Names:
    """Hashes that tell what they are made of."""

    def root(self, adapter: str | None) -> int:
        return 0

    def block(self, parent: Any, tokens: array[int], extra: Extra | None) -> int:
        return hash((parent, tuple(tokens), extra)) & 2**64 - 1


@dataclass(eq=False)
class Ids:
    """A prompt as the engine knows it."""

    ids: list[int]
    media: tuple[MediaSpan, ...] = ()

    @property
    def packed(self) -> bytes:
        return array("I", self.ids).tobytes()

    def __len__(self) -> int:
        return len(self.ids)


def block_rig(blocks: int = 100, slots: int = 8, **more: Any) -> Rig:
    rig = Rig(slots, **more)
    cache = KvCache(Pool(blocks), SIZE, hasher=Names())
    rig.use_cache(cache)
    return rig


def prompt(tokens: int, first: int = 1) -> Ids:
    return Ids(list(range(first, first + tokens)))


def add(rig: Rig, prompt_: Ids, total: int = 1, **more: Any) -> Sequence:
    return rig.add(total, prompt=prompt_, **more)


def cache_of(rig: Rig) -> KvCache:
    assert rig.engine.cache is not None
    return rig.engine.cache


def hits(rig: Rig, tokens: list[int]) -> int:
    """Tokens of such a prompt that would be found."""
    return len(cache_of(rig).find(array("I", tokens).tobytes(), PLAIN)) * SIZE


def generated(sequence: Sequence) -> list[int]:
    assert sequence.reply is not None
    return sequence.reply.ids(0, sequence.revealed)


def test_a_prompt_is_found_from_the_moment_its_sequence_starts() -> None:
    rig = block_rig(time_to_first_token=1.0)
    first = add(rig, prompt(10))
    second = add(rig, prompt(10))
    assert (first.cached_tokens, second.cached_tokens) == (0, 8)
    assert (rig.stats.prefix_cache_queries, rig.stats.prefix_cache_hits) == (20, 8)
    # 3 blocks, two of them shared, and one of its own.
    assert rig.stats.kv_cache_usage == 4 / 100
    rig.drain()
    assert rig.stats.kv_cache_usage == 0.0
    assert rig.stats.prompt_tokens - rig.stats.cached_tokens == 12


@pytest.mark.parametrize(("tokens", "cached"), [(8, 4), (9, 8), (3, 0), (4, 0), (5, 4)])
def test_the_last_token_is_always_computed(tokens: int, cached: int) -> None:
    rig = block_rig()
    add(rig, prompt(tokens))
    rig.drain()
    assert add(rig, prompt(tokens)).cached_tokens == cached


def test_generated_tokens_fill_blocks_and_the_last_is_never_computed() -> None:
    rig = block_rig(inter_token_latency=1.0)
    sequence = add(rig, prompt(6), total=7)
    rig.drain()
    said = generated(sequence)
    # 6 and 7 tokens, the last of which nothing followed: 12 were computed.
    turn = [*range(1, 7), *said]
    assert hits(rig, [*turn, 77, 78, 79, 80]) == 12
    longer = add(rig, prompt(6), total=8)
    rig.drain()
    assert hits(rig, [*range(1, 7), *generated(longer), 77, 78, 79]) == 12


@pytest.mark.parametrize("gap", [0.0, 1.0])
@pytest.mark.parametrize("total", [1, 2, 3, 9, 300])
def test_blocks_do_not_depend_on_how_tokens_are_revealed(gap: float, total: int) -> None:
    rig = block_rig(inter_token_latency=gap)
    sequence = add(rig, prompt(6), total=total)
    rig.drain()
    rig.go()
    computed = [*range(1, 7), *generated(sequence)][:-1]
    assert hits(rig, [*computed, 0, 0]) == len(computed) // SIZE * SIZE
    assert cache_of(rig).pool.used == 0


def test_usage_grows_with_each_block() -> None:
    rig = block_rig(inter_token_latency=1.0)
    add(rig, prompt(4), total=20)
    used = []
    for gap in (0, 1, 1, 1, 1, 1):
        rig.go(gap)
        used.append(cache_of(rig).pool.used)
    # The first token after a full block needs another, the next three do not.
    assert used == [2, 2, 2, 2, 3, 3]


def test_one_without_room_waits_and_nothing_overtakes_it() -> None:
    rig = block_rig(blocks=5, time_to_first_token=1.0)
    running = add(rig, prompt(12))
    large = add(rig, prompt(12, first=100))
    small = add(rig, prompt(3, first=200))
    assert (running.running, large.running, small.running) == (True, False, False)
    assert rig.stats.waiting == 2
    rig.drain()
    assert [log(each).reasons[-1] for each in (running, large, small)] == ["stop"] * 3
    # Both had room once the first was gone.
    assert large.scheduled_at == small.scheduled_at == running.first_token_at


def test_the_one_that_started_last_makes_room_and_computes_all_anew() -> None:
    rig = block_rig(
        blocks=6, inter_token_latency=1.0, latency_calculator="per-token", prefill_time_per_token=1 / 16
    )
    first = add(rig, prompt(8), total=12)
    second = add(rig, prompt(8, first=100), total=12)
    rig.drain()
    assert [log(each).reasons[-1] for each in (first, second)] == ["stop"] * 2
    assert (first.preemptions, second.preemptions) == (0, 1)
    assert rig.stats.preemptions == 1
    assert second.revealed == 12
    assert log(second).tokens == list(range(1, 13))
    times = log(second).token_times()
    gaps = [later - before for before, later in pairwise(times)]
    (longest,) = [gap for gap in gaps if gap != 1.0]
    # It waited for the first to end, and computed what was not in the cache any more.
    assert longest > 1.0
    assert rig.stats.request_preemptions.sum == 1
    assert rig.stats.request_preemptions.counts[:2] == [2, 0]
    assert cache_of(rig).pool.used == 0


def test_a_preempted_one_goes_before_all_that_wait() -> None:
    rig = block_rig(blocks=6, inter_token_latency=1.0)
    first = add(rig, prompt(8), total=12)
    second = add(rig, prompt(8, first=100), total=12)
    third = add(rig, prompt(12, first=200))
    rig.go()
    while not second.preemptions:
        rig.go(1.0)
    assert rig.engine.sequences == [first, second, third]
    rig.drain()
    assert third.scheduled_at == first.last_token_at


def test_the_prefill_of_a_resumed_one_is_of_all_that_is_not_cached() -> None:
    rig = block_rig(
        blocks=100, inter_token_latency=1.0, latency_calculator="per-token", prefill_time_per_token=1.0
    )
    sequence = add(rig, prompt(6), total=9)
    for seconds in (6.0, 1.0, 1.0):
        rig.go(seconds)
    revealed = sequence.revealed
    assert revealed == 3
    before = rig.now
    assert rig.engine.reset_prefix_cache(rig.now, preempt=True)
    assert sequence.running
    assert sequence.resuming
    assert sequence.revealed == revealed
    assert rig.engine.next_deadline() == before + 6 + revealed
    rig.change(prefill_time_per_token=2.0)
    assert rig.engine.next_deadline() == before + 2 * (6 + revealed)
    rig.drain()
    assert log(sequence).tokens[-1] == 9
    assert not sequence.resuming


def test_by_priority_the_least_urgent_makes_room() -> None:
    rig = block_rig(blocks=6, inter_token_latency=1.0, scheduling_policy="priority")
    urgent_last = [add(rig, prompt(8), total=12, priority=5), add(rig, prompt(8, 100), total=12, priority=0)]
    rig.drain()
    assert [each.preemptions for each in urgent_last] == [1, 0]
    assert [log(each).reasons[-1] for each in urgent_last] == ["stop"] * 2


def test_one_that_was_aborted_in_the_queue_after_preemption_leaves_nothing() -> None:
    rig = block_rig(blocks=6, inter_token_latency=1.0)
    first = add(rig, prompt(8), total=12)
    second = add(rig, prompt(8, first=100), total=12)
    for _ in range(12):
        rig.go(1.0)
        if second.preemptions:
            break
    assert second.waiting
    rig.abort(second)
    rig.drain()
    assert first.finish_reason == "stop"
    assert (rig.stats.waiting, rig.stats.running, cache_of(rig).pool.used) == (0, 0, 0)
    assert rig.stats.finished["abort"] == 1


def test_an_aborted_one_gives_its_blocks_back_and_its_prompt_stays_found() -> None:
    rig = block_rig(time_to_first_token=1.0)
    sequence = add(rig, prompt(9))
    rig.abort(sequence)
    assert cache_of(rig).pool.used == 0
    assert hits(rig, list(range(1, 20))) == 8


def test_one_below_its_threshold_takes_and_stores_nothing() -> None:
    rig = block_rig()
    sequence = rig.make(prompt=prompt(9))
    sequence.cache_hit_threshold = 0.5
    rig.submit(sequence)
    assert sequence.finish_reason == "cache_threshold"
    assert hits(rig, list(range(1, 20))) == 0
    add(rig, prompt(9))
    rig.drain()
    again = rig.make(prompt=prompt(9))
    again.cache_hit_threshold = 0.8
    rig.submit(again)
    rig.drain()
    assert (again.finish_reason, again.cached_tokens) == ("stop", 8)


def test_adapters_and_salts_share_no_blocks() -> None:
    rig = block_rig(max_loras=8)
    one, other = Adapter("a", "/a", 1, "m"), Adapter("a", "/b", 2, "m")
    for make in (
        lambda: rig.make(prompt=prompt(9)),
        lambda: rig.make(prompt=prompt(9), adapter=one),
        lambda: rig.make(prompt=prompt(9), adapter=other),
        lambda: salted(rig.make(prompt=prompt(9)), "x"),
        lambda: salted(rig.make(prompt=prompt(9)), "y"),
        lambda: salted(rig.make(prompt=prompt(9), adapter=one), "x"),
    ):
        for cached in (0, 8):
            sequence = make()
            rig.submit(sequence)
            rig.drain()
            assert sequence.cached_tokens == cached


def test_prompts_with_other_media_share_what_comes_before_them() -> None:
    rig = block_rig()
    for media, cached in (
        ((), 0),
        ((MediaSpan("i", 5, 3),), 4),
        ((MediaSpan("j", 5, 3),), 4),
        ((MediaSpan("i", 5, 3),), 8),
        ((), 8),
    ):
        sequence = rig.make(prompt=Ids(list(range(1, 10)), media))
        rig.submit(sequence)
        rig.drain()
        assert sequence.cached_tokens == cached


def salted(sequence: Sequence, salt: str) -> Sequence:
    sequence.cache_salt = salt
    return sequence


def test_prompts_whose_log_probabilities_are_wanted_are_computed() -> None:
    rig = block_rig()
    add(rig, prompt(9))
    rig.drain()
    sequence = rig.make(prompt=prompt(9))
    sequence.reads_cache = False
    rig.submit(sequence)
    assert sequence.cached_tokens == 0


def test_blocks_read_from_elsewhere_are_found_once_they_are_there() -> None:
    rig = block_rig(kv_cache_transfer_latency=1.0, latency_calculator="constant", inter_token_latency=1.0)
    sequence = rig.make(5, prompt=prompt(9))
    sequence.remote_prefill = RemotePrefill(None, fails=False, recomputes=False)
    rig.submit(sequence)
    assert cache_of(rig).pool.used == 3
    assert hits(rig, list(range(1, 20))) == 0
    rig.go(1.0)
    assert hits(rig, list(range(1, 20))) == 8


def test_events_come_when_the_first_token_does() -> None:
    rig = block_rig(time_to_first_token=1.0)
    add(rig, prompt(9))
    rig.go()
    assert not rig.engine.events_due
    rig.go(1.0)
    assert rig.engine.events_due
    (stored,) = rig.engine.drain_events()
    assert isinstance(stored, Stored)
    assert (stored.parent, stored.tokens.tolist(), stored.block_size) == (None, list(range(1, 9)), SIZE)
    assert not rig.engine.events_due
    assert rig.engine.drain_events() == []


def test_what_happened_is_told_though_no_token_came_of_it() -> None:
    rig = block_rig(time_to_first_token=1.0)
    sequence = add(rig, prompt(9))
    rig.abort(sequence)
    assert rig.engine.events_due


def test_resetting_forgets_all_unless_something_is_held() -> None:
    rig = block_rig(time_to_first_token=1.0)
    sequence = add(rig, prompt(9))
    assert not rig.engine.reset_prefix_cache(rig.now)
    rig.drain()
    assert sequence.finish_reason == "stop"
    assert rig.engine.reset_prefix_cache(rig.now)
    assert hits(rig, list(range(1, 20))) == 0
    assert rig.engine.drain_events()[-1] == Cleared()


def test_thousands_are_preempted_at_once() -> None:
    rig = block_rig(blocks=8000, slots=4000, inter_token_latency=TICK)
    running = [add(rig, prompt(1), total=3) for _ in range(4000)]
    rig.go()
    started = time.thread_time()
    rig.engine.reset_prefix_cache(rig.now, preempt=True)
    # Were each looked for among all deadlines, this would take a second.
    assert time.thread_time() - started < 0.5
    rig.drain()
    assert [log(sequence).reasons[-1] for sequence in running] == ["stop"] * 4000
    assert {sequence.preemptions for sequence in running} == {1}


def test_evicted_blocks_are_told_before_those_that_took_their_place() -> None:
    rig = block_rig(blocks=3)
    add(rig, prompt(9))
    rig.drain()
    rig.engine.drain_events()
    add(rig, prompt(9, first=100))
    rig.drain()
    kinds = [type(record) for record in rig.engine.drain_events()]
    assert kinds == [Removed, Removed, Stored]


def test_one_that_nothing_can_make_room_for_goes_on_without() -> None:
    rig = block_rig(blocks=3, inter_token_latency=1.0)
    sequence = add(rig, prompt(9), total=30)
    rig.drain()
    assert (sequence.finish_reason, sequence.revealed, sequence.preemptions) == ("stop", 30, 0)
    assert cache_of(rig).pool.used == 0


def test_resuming_the_engine_starts_what_was_preempted_while_it_stood_still() -> None:
    rig = block_rig(inter_token_latency=1.0)
    sequences = [add(rig, prompt(9, first), total=5) for first in (1, 100)]
    rig.go()
    rig.engine.freeze(rig.now)
    assert rig.engine.reset_prefix_cache(rig.now, preempt=True)
    assert (rig.stats.running, rig.stats.waiting) == (0, 2)
    rig.now += 10
    rig.engine.resume(rig.now)
    assert list(rig.engine.running) == sequences
    rig.drain()
    assert [each.revealed for each in sequences] == [5, 5]
