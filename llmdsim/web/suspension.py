"""Pausing, sleep and death: what stops the engine, and what starts it again."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final, Literal, TypeAlias

from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from llmdsim.engine.stats import Stats
from llmdsim.web.driver import Driver
from llmdsim.web.errors import ApiError, engine_failed, shown

log = Logger()

#: What becomes of what runs: it is cut short, it may finish, or time stands still for it.
Mode: TypeAlias = Literal["abort", "wait", "keep"]

#: What sleep takes from the GPU, and `/wake_up` brings back one by one.
MEMORY: Final = frozenset(("weights", "kv_cache"))

#: The tag that names no memory: it wakes from level 0.
SCHEDULING: Final = "scheduling"

#: Levels of sleep as metrics name them; at level 0 nothing but scheduling stops.
_STATES = {0: "", 1: "weights_offloaded", 2: "discard_all"}

#: How often it is looked whether all that runs has finished, in seconds.
LOOK_EVERY = 0.01


class Suspension:
    """The state of one rank's engine: at work, paused, asleep, both, or dead (vLLM 0.33 v1/engine/core.py).

    What is asked of a dead engine raises ApiError 500; nothing revives it. With `sleep_serves` sleep is told
    of, forgets what is cached, and stops nothing, as in llm-d-inference-sim. `clock` is an `IReactorTime`.
    """

    def __init__(self, driver: Driver, stats: Stats, clock: Any, sleep_serves: bool = False) -> None:
        #: Why generation is refused, or None.
        self.refusal: str | None = None
        self.dead = False
        #: Called as the engine dies, before its requests are told.
        self.on_death: list[Callable[[], None]] = []
        self._driver = driver
        self._stats = stats
        self._sleep_serves = sleep_serves
        self._paused: Mode | None = None
        self._level: int | None = None
        self._away: set[str] = set()
        #: Whether the prefix cache is to be forgotten when nothing runs any more.
        self._clears = False
        self._waiting: list[Deferred[None]] = []
        self._look = LoopingCall(self._look_round)
        self._look.clock = clock

    @property
    def paused(self) -> bool:
        """Whether the engine starts nothing."""
        return self._paused is not None or (self._level is not None and not self._sleep_serves)

    @property
    def sleeping(self) -> bool:
        """Whether it is asleep; a pause counts, since it is what sleep of level 0 does (vLLM)."""
        return self._paused is not None or self._level is not None

    def refuse(self) -> None:
        """503 for new generation while it is refused."""
        if self.refusal is not None:
            self.require_life()
            raise ApiError(503, self.refusal)

    def require_life(self) -> None:
        """500 for what a dead engine is asked."""
        if self.dead:
            raise engine_failed()

    def die(self) -> None:
        """Fail all that runs or waits, and whatever is asked from now on; nothing revives the engine."""
        self.require_life()
        self.dead = True
        self.refusal = "The engine is dead."
        if self._look.running:
            self._look.stop()
        for died in self.on_death:
            died()
        self._driver.give_up("error")
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done.errback(engine_failed())

    def pause(self, mode: Mode, clear_cache: bool) -> Deferred[None] | None:
        """Stop generating; `keep` lets requests come and wait, otherwise they are refused.

        The Deferred fires when what runs has come to its end, where that is to be waited for.
        """
        self.require_life()
        self._paused = mode
        return self._stop(mode, clear_cache)

    def resume(self) -> None:
        """End the pause; an engine that is asleep stays so."""
        self.require_life()
        self._paused = None
        if not self.paused:
            self._driver.resume()
        self._explain()

    def sleep(self, level: int, mode: Mode) -> Deferred[None] | None:
        """Fall asleep; the Deferred is that of `pause`."""
        self.require_life()
        self._level = level
        self._stats.sleep_state = _STATES[level]
        if level:
            self._away |= MEMORY
        if self._sleep_serves:
            if level:
                self._driver.reset_prefix_cache(preempt=True)
            return None
        return self._stop(mode, level > 0)

    def wake_up(self, tags: Collection[str]) -> bool:
        """Bring back what `tags` name, or everything if there are none; returns whether all of it is back.

        With the last of it any pause ends. A tag that names nothing asleep makes all of them void (vLLM).
        """
        self.require_life()
        memory = set(tags) - {SCHEDULING}
        if not tags:
            self._away.clear()
        elif memory <= self._away:
            self._away -= memory
        else:
            log.warn(
                "of {tags}, only {away} can be woken", tags=shown(sorted(memory)), away=sorted(self._away)
            )
        if self._away:
            return False
        self._level = None
        self._stats.sleep_state = "awake"
        self.resume()
        return True

    def _stop(self, mode: Mode, clear_cache: bool) -> Deferred[None] | None:
        driver = self._driver
        self._clears = clear_cache
        self._explain()
        if mode == "keep":
            driver.freeze()
        else:
            driver.hold()
        if mode == "abort":
            driver.cut_short(driver.engine.sequences)
        if mode == "wait" and self._stats.running:
            done: Deferred[None] = Deferred(self._forget)
            self._waiting.append(done)
            if not self._look.running:
                self._look.start(LOOK_EVERY, now=False)
            return done
        self._clear()
        return None

    def _clear(self) -> None:
        if self._clears:
            self._driver.reset_prefix_cache(preempt=True)

    def _explain(self) -> None:
        if self._level is not None and not self._sleep_serves:
            self.refusal = f"The server is asleep (level {self._level}); POST /wake_up wakes it."
        elif self._paused in ("abort", "wait"):
            self.refusal = "Generation is paused; POST /resume ends the pause."
        else:
            self.refusal = None

    def _forget(self, done: Deferred[None]) -> None:
        self._waiting.remove(done)

    def _look_round(self) -> None:
        if self._stats.running and self.paused:
            return
        self._look.stop()
        if self.paused:
            self._clear()
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done.callback(None)
