"""How long watched blocks live, lie idle and are not hit (vLLM's kv_cache_metrics.py)."""

from __future__ import annotations

from dataclasses import dataclass

from llmdsim.engine.kvcache.lifetimes import WatchedPool
from llmdsim.engine.stats import BlockTimes, Histogram
from tests.engine.kvcache.rig import SIZE, Cache, generate, run, start


@dataclass
class Settings:
    kv_cache_metrics_sample: float = 1.0
    seed: int | None = 1


class Watch:
    """A cache whose blocks are watched, and the time."""

    def __init__(self, blocks: int, part: float = 1.0, seed: int | None = 1) -> None:
        self.now = 100.0
        self.times = BlockTimes()
        pool = WatchedPool(blocks, Settings(part, seed), self.times, lambda: self.now)
        self.cache = Cache(pool, SIZE)

    def told(self) -> tuple[tuple[int, float], ...]:
        """Count and sum of each histogram."""
        times = self.times
        histograms: tuple[Histogram, ...] = (times.lifetime, times.idle, times.reuse_gap)
        return tuple((each.count, each.sum) for each in histograms)


def test_a_block_is_counted_when_it_is_taken_for_something_else() -> None:
    watch = Watch(2)
    run(watch.cache, range(8))
    watch.now += 3.0
    assert watch.told() == ((0, 0.0), (0, 0.0), (0, 0.0))
    run(watch.cache, range(50, 54))
    assert watch.told() == ((1, 3.0), (1, 3.0), (0, 0.0))
    watch.now += 4.0
    run(watch.cache, range(70, 78))
    assert watch.told() == ((3, 3.0 + 7.0 + 4.0), (3, 3.0 + 7.0 + 4.0), (0, 0.0))


def test_idle_is_counted_from_the_last_hit_and_not_from_when_it_was_let_go() -> None:
    watch = Watch(1)
    first = start(watch.cache, range(4))
    watch.now += 1.0
    generate(watch.cache, first, [])
    watch.now += 1.0
    watch.cache.release(first)
    watch.now += 1.0
    run(watch.cache, range(50, 54))
    assert watch.told()[:2] == ((1, 3.0), (1, 3.0))


def test_gaps_are_those_between_the_last_four_hits() -> None:
    watch = Watch(2)
    run(watch.cache, range(4))
    for gap in (1.0, 2.0, 4.0, 8.0, 16.0):
        watch.now += gap
        run(watch.cache, range(5))
    watch.now += 32.0
    run(watch.cache, range(50, 58))
    (lives, life), (_, idle), gaps = watch.told()
    assert gaps == (3, 4.0 + 8.0 + 16.0), "the first hit is forgotten, and with it a gap"
    # The second block, which was taken five times for one token, was never full.
    assert (lives, life, idle) == (1, 63.0, 32.0)


def test_one_hit_has_no_gap() -> None:
    watch = Watch(2)
    run(watch.cache, range(4))
    run(watch.cache, range(5))
    run(watch.cache, range(50, 58))
    assert watch.told()[2] == (0, 0.0)


def test_a_reset_forgets_what_was_watched() -> None:
    watch = Watch(1)
    run(watch.cache, range(4))
    assert watch.cache.clear()
    run(watch.cache, range(4))
    assert watch.told()[0] == (0, 0.0)


def test_some_blocks_are_watched_and_with_a_seed_the_same_ones() -> None:
    counts = []
    for seed in (1, 1, 2):
        watch = Watch(1000, 0.1, seed)
        run(watch.cache, range(4000))
        run(watch.cache, range(5000, 9000))
        counts.append(watch.told()[0][0])
        assert 50 < counts[-1] < 150
    assert counts[0] == counts[1] != counts[2]
