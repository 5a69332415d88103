"""The line that tells how busy an engine is, in vLLM's words."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import LoopingCall
from twisted.logger import Logger, LogLevel

from llmdsim.engine.stats import Stats

log = Logger()

#: In vLLM's words and order.
LINE = (
    "Engine {engine}: Avg prompt throughput: {prompt_throughput:.1f} tokens/s, "
    "Avg generation throughput: {generation_throughput:.1f} tokens/s, Running: {running} reqs, "
    "Waiting: {waiting} reqs, {deferred}GPU KV cache usage: {kv_cache_usage:.1f}%"
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
        self._prompt_tokens = self._stats.prompt_tokens
        self._generation_tokens = self._stats.generation_tokens

    def _tell(self) -> None:
        stats = self._stats
        took = self._clock.seconds() - self._since
        prompt = (stats.prompt_tokens - self._prompt_tokens) / took
        generation = (stats.generation_tokens - self._generation_tokens) / took
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
            kv_cache_usage=stats.kv_cache_usage * 100,
        )
