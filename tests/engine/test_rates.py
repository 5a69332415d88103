"""Tokens a second and the hit rate, from counters that somebody looks at now and then."""

from __future__ import annotations

import pytest

from llmdsim.engine.rates import LOOK_EVERY, WINDOW, Rates
from llmdsim.engine.stats import Stats


class Engine:
    """Counters that move evenly, looked at as a rank does."""

    def __init__(self, began: float = 100.0) -> None:
        self.stats = Stats(1024)
        self.now = began
        self.rates = Rates(self.stats, began)

    def run(self, seconds: float, tokens_per_look: int = 0) -> None:
        for _ in range(round(seconds / LOOK_EVERY)):
            self.now += LOOK_EVERY
            self.stats.generation_tokens += tokens_per_look
            self.rates.look(self.now)

    def start(self, prompt: int, cached: int) -> None:
        self.stats.prompt_tokens += prompt
        self.stats.cached_tokens += cached


def test_nothing_yet_is_no_throughput() -> None:
    engine = Engine()
    assert engine.rates.throughput(engine.now) == 0.0
    assert engine.rates.hit_rate == 0.0


def test_throughput_is_that_of_the_window() -> None:
    engine = Engine()
    engine.run(10, tokens_per_look=50)
    assert engine.rates.throughput(engine.now) == 100.0
    engine.run(WINDOW, tokens_per_look=5)
    assert engine.rates.throughput(engine.now) == 10.0, "what was before does not count"
    engine.run(WINDOW)
    assert engine.rates.throughput(engine.now) == 0.0


def test_tokens_since_the_last_look_count() -> None:
    engine = Engine()
    engine.run(10)
    engine.stats.generation_tokens += 225
    assert engine.rates.throughput(engine.now + 0.25) == pytest.approx(225 / (WINDOW + 0.25))


def test_at_the_beginning_it_is_since_the_beginning() -> None:
    engine = Engine()
    engine.run(LOOK_EVERY, tokens_per_look=10)
    assert engine.rates.throughput(engine.now) == 10 / LOOK_EVERY


def test_the_hit_rate_is_of_the_latest_prompts_and_stays() -> None:
    engine = Engine()
    engine.start(100, 25)
    assert engine.rates.hit_rate == 0.25
    engine.run(60)
    assert engine.rates.hit_rate == 0.25
    engine.start(100, 75)
    assert engine.rates.hit_rate == 0.5
    engine.run(LOOK_EVERY)
    for _ in range(64):
        engine.start(10, 10)
        engine.run(LOOK_EVERY)
    assert engine.rates.hit_rate == 1.0, "the first ones are long ago"


def test_the_hit_rate_is_of_tokens_not_of_prompts() -> None:
    engine = Engine()
    engine.start(900, 0)
    engine.run(LOOK_EVERY)
    engine.start(100, 100)
    assert engine.rates.hit_rate == 0.1
