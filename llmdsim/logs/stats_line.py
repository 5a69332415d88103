"""The line that tells how busy an engine is, in vLLM's words."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import LoopingCall
from twisted.logger import Logger, LogLevel

from llmdsim.engine.stats import Stats
from llmdsim.logs.hit_rate import HitRate, Lookups

log = Logger()

#: In vLLM's words and order.
LINE = (
    "Engine {engine}: Avg prompt throughput: {prompt_throughput:.1f} tokens/s, "
    "Avg generation throughput: {generation_throughput:.1f} tokens/s, Running: {running} reqs, "
    "Waiting: {waiting} reqs, {deferred}{preempted}GPU KV cache usage: {kv_cache_usage:.1f}%{hit_rates}"
)


class StatsLine:
    """Tells of `stats` every `interval` seconds; at debug level where nothing happened in two of them.

    `engine` is the engine's number.
    """

    def __init__(self, engine: int, stats: Stats, clock: Any, interval: float) -> None:
        self._engine = f"{engine:03d}"
        self._stats = stats
        self._clock = clock
        self._interval = interval
        self._call = LoopingCall(self._tell)
        self._call.clock = clock
        self._was_busy = False
        self._hits = HitRate()
        self._external_hits = HitRate()

    def start(self) -> None:
        """Begin; the first line comes one interval from now."""
        self._remember()
        self._call.start(self._interval, now=False).addErrback(
            lambda failure: log.failure("the line of statistics ends", failure)
        )

    def stop(self) -> None:
        """End."""
        if self._call.running:
            self._call.stop()

    def _remember(self) -> None:
        self._since = self._clock.seconds()
        stats = self._stats
        self._prompt_tokens = _computed(stats)
        self._generation_tokens = stats.generation_tokens
        self._preemptions = stats.preemptions
        self._clears = stats.prefix_cache_clears
        self._lookups = _lookups(stats)
        self._external_lookups = _external_lookups(stats)

    def _tell(self) -> None:
        stats = self._stats
        took = self._clock.seconds() - self._since
        prompt = (_computed(stats) - self._prompt_tokens) / took
        generation = (stats.generation_tokens - self._generation_tokens) / took
        preemptions = stats.preemptions - self._preemptions
        hit_rates = self._hit_rates()
        self._remember()
        busy = bool(prompt or generation)
        level = LogLevel.info if busy or self._was_busy else LogLevel.debug
        self._was_busy = busy
        log.emit(
            level,
            LINE,
            engine=self._engine,
            prompt_throughput=prompt,
            generation_throughput=generation,
            running=stats.running,
            waiting=stats.waiting,
            deferred=f"Deferred: {stats.deferred} reqs, " if stats.deferred else "",
            preempted=f"Preemptions: {preemptions}, " if preemptions else "",
            kv_cache_usage=stats.kv_cache_usage * 100,
            hit_rates=hit_rates,
        )

    def _hit_rates(self) -> str:
        """Those of the caches that anything was looked up in."""
        stats = self._stats
        if stats.prefix_cache_clears != self._clears:
            # What came before in this interval is counted with what came after.
            self._hits.clear()
            self._external_hits.clear()
        self._hits.add(_lookups(stats).since(self._lookups))
        self._external_hits.add(_external_lookups(stats).since(self._external_lookups))
        told = ""
        for name, rate in (("Prefix", self._hits), ("External prefix", self._external_hits)):
            if rate.percent is not None:
                told += f", {name} cache hit rate: {rate.percent:.1f}%"
        return told


def _computed(stats: Stats) -> int:
    """Prompt tokens that were not found anywhere."""
    return stats.prompt_tokens - stats.cached_tokens


def _lookups(stats: Stats) -> Lookups:
    return Lookups(stats.prefix_cache_lookups, stats.prefix_cache_queries, stats.prefix_cache_hits)


def _external_lookups(stats: Stats) -> Lookups:
    host, transfers = stats.host, stats.transfers
    return Lookups(
        host.lookups + transfers.lookups, host.queried + transfers.queried, host.hits + transfers.hits
    )
