"""How long blocks hold what they hold, measured on some of them (vLLM 0.33, v1/core/kv_cache_metrics.py)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random
from typing import Protocol

from llmdsim.engine.kvcache.pool import Block, Key, Pool
from llmdsim.engine.stats import BlockTimes

#: Of a block's hits, so many are remembered.
HITS = 4


class LifetimeSettings(Protocol):
    """The options it reads."""

    @property
    def kv_cache_metrics_sample(self) -> float: ...
    @property
    def seed(self) -> int | None: ...


class Life:
    """Of one block, from when it was filled until it is taken for something else; times are of the clock."""

    __slots__ = ("born", "hits", "used")

    def __init__(self, now: float) -> None:
        self.born = now
        #: When it was filled or, since then, found last.
        self.used = now
        self.hits: deque[float] = deque(maxlen=HITS)


class WatchedPool(Pool):
    """Counts in `times` when a block that is watched is taken for something else; `seconds` is the clock.

    Chance, which comes from a source of its own, chooses the blocks. Unlike in vLLM those that were never
    full do not count: they hold nothing that anybody could find.
    """

    #: A life begins when a block is filled.
    promises = False

    def __init__(
        self, total: int, settings: LifetimeSettings, times: BlockTimes, seconds: Callable[[], float]
    ) -> None:
        super().__init__(total)
        self._part = settings.kv_cache_metrics_sample
        self._random = Random(None if settings.seed is None else f"kv blocks {settings.seed}")
        self._times = times
        self._seconds = seconds
        self._lives: dict[int, Life] = {}

    def fill(self, key: Key, chain: int | None = None) -> Block:
        """As the pool does."""
        block = super().fill(key, chain)
        if self._random.random() < self._part:
            self._lives[block.number] = Life(self._seconds())
        return block

    def admit(self, found: Sequence[Block], blocks: int) -> Sequence[Block] | None:
        """As the pool does."""
        given_up = super().admit(found, blocks)
        if given_up is not None:
            for block in found:
                life = self._lives.get(block.number)
                if life is not None:
                    life.used = self._seconds()
                    life.hits.append(life.used)
        return given_up

    def reserve(self, blocks: int) -> Sequence[Block]:
        """As the pool does."""
        given_up = super().reserve(blocks)
        for block in given_up:
            life = self._lives.pop(block.number, None)
            if life is not None:
                now = self._seconds()
                self._times.count(now - life.born, now - life.used, [b - a for a, b in pairwise(life.hits)])
        return given_up

    def clear(self) -> None:
        """As the pool does; what was watched is not counted."""
        super().clear()
        self._lives.clear()
