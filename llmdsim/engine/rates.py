"""What an engine did lately: tokens a second, and how much of prompts was found cached."""

from __future__ import annotations

from collections import deque
from typing import Final

from llmdsim.engine.stats import Stats

#: Seconds that throughput is told of, at least, and between looks at the counters.
WINDOW: Final = 2.0
LOOK_EVERY: Final = 0.5

#: Looks at which there were new prompts, as far back as the hit rate goes.
_MOST_STARTS = 64


class Rates:
    """Of the engine that `stats` are of, as long as somebody has it `look` every `LOOK_EVERY` seconds.

    So nothing is counted as tokens are revealed. It begins `now`.
    """

    __slots__ = ("_cached_tokens", "_prompt_tokens", "_readings", "_starts", "_stats")

    def __init__(self, stats: Stats, now: float) -> None:
        self._stats = stats
        #: When there had been so many tokens; the first is as old as the window, or as old as this.
        self._readings = deque([(now, stats.generation_tokens)], maxlen=int(WINDOW / LOOK_EVERY) + 1)
        #: Tokens of prompts that had their first token, from look to look, and those of them that were
        #: not computed here.
        self._starts: deque[tuple[int, int]] = deque(maxlen=_MOST_STARTS)
        self._prompt_tokens = stats.prompt_tokens
        self._cached_tokens = stats.cached_tokens

    def look(self, now: float) -> None:
        """Note what the counters say."""
        stats = self._stats
        self._readings.append((now, stats.generation_tokens))
        if stats.prompt_tokens > self._prompt_tokens:
            self._starts.append(self._started())
            self._prompt_tokens, self._cached_tokens = stats.prompt_tokens, stats.cached_tokens

    def throughput(self, now: float) -> float:
        """Tokens a second over the window."""
        then, before = self._readings[0]
        return (self._stats.generation_tokens - before) / (now - then) if now > then else 0.0

    @property
    def hit_rate(self) -> float:
        """The part of the latest prompts that was not computed here, 0 to 1; 0 where there were none."""
        prompts, cached = map(sum, zip(self._started(), *self._starts, strict=True))
        return min(1.0, cached / prompts) if prompts else 0.0

    def _started(self) -> tuple[int, int]:
        """Since the last look."""
        stats = self._stats
        return stats.prompt_tokens - self._prompt_tokens, stats.cached_tokens - self._cached_tokens
