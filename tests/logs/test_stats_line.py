"""The line of statistics, in vLLM's words."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from twisted.internet.task import Clock
from twisted.logger import LogEvent, LogLevel, capturedLogs, formatEvent

from llmdsim.engine.kvcache.pool import Pool
from llmdsim.engine.stats import Stats
from llmdsim.logs.stats_line import StatsLine
from tests.logs.rig import LoggedRank, of
from tests.web.clients import CHAT, TEXT, fields


@pytest.fixture
def events() -> Iterator[list[LogEvent]]:
    with capturedLogs() as found:
        yield found


def test_it_is_worded_as_vllm_words_it(events: list[LogEvent]) -> None:
    clock, stats = Clock(), Stats(1024)
    stats.prompt_tokens = stats.generation_tokens = 1000
    stats.pool = Pool(4)
    stats.pool.reserve(1)
    line = StatsLine(0, stats, clock, 10.0)
    line.start()
    stats.prompt_tokens += 123
    stats.generation_tokens += 456
    stats.running, stats.waiting = 2, 3
    clock.advance(10)
    (event,) = events
    assert formatEvent(event) == (
        "Engine 000: Avg prompt throughput: 12.3 tokens/s, Avg generation throughput: 45.6 tokens/s, "
        "Running: 2 reqs, Waiting: 3 reqs, GPU KV cache usage: 25.0%"
    )
    assert (event["running"], event["prompt_throughput"]) == (2, 12.3)


def test_it_tells_who_is_deferred_where_there_is_anybody(events: list[LogEvent]) -> None:
    clock, stats = Clock(), Stats(1024)
    StatsLine(0, stats, clock, 10.0).start()
    stats.waiting, stats.deferred = 3, 2
    clock.advance(10)
    assert "Waiting: 3 reqs, Deferred: 2 reqs, GPU KV cache usage" in formatEvent(events[0])


def test_it_tells_of_the_kv_cache_what_there_is(events: list[LogEvent]) -> None:
    clock, stats = Clock(), Stats(1024)
    stats.preemptions = 5
    StatsLine(0, stats, clock, 10.0).start()
    steps: list[tuple[Callable[[], None], str]] = [
        (lambda: None, "Waiting: 0 reqs, GPU KV cache usage: 0.0%"),
        (lambda: look_up(stats, 100, 0), "usage: 0.0%, Prefix cache hit rate: 0.0%"),
        (lambda: look_up(stats, 100, 50), "usage: 0.0%, Prefix cache hit rate: 25.0%"),
        (
            lambda: stats.host.look_up(50, 10),
            "Prefix cache hit rate: 25.0%, External prefix cache hit rate: 20.0%",
        ),
        (
            lambda: stats.transfers.look_up(50),
            "Prefix cache hit rate: 25.0%, External prefix cache hit rate: 60.0%",
        ),
        (lambda: preempt(stats, 2), "reqs, Preemptions: 2, GPU KV cache usage: 0.0%, Prefix"),
        (lambda: clear(stats), "reqs, GPU KV cache usage: 0.0%"),
        (lambda: look_up(stats, 10, 9), "usage: 0.0%, Prefix cache hit rate: 90.0%"),
    ]
    for happens, expected in steps:
        happens()
        clock.advance(10)
        line = formatEvent(events[-1])
        assert expected in line
        assert line.endswith(expected) or "Preemptions" in line


def look_up(stats: Stats, tokens: int, found: int) -> None:
    stats.prefix_cache_lookups += 1
    stats.prefix_cache_queries += tokens
    stats.prefix_cache_hits += found


def preempt(stats: Stats, times: int) -> None:
    stats.preemptions += times


def clear(stats: Stats) -> None:
    stats.prefix_cache_clears += 1


def test_cached_prompts_are_no_throughput(events: list[LogEvent]) -> None:
    clock, stats = Clock(), Stats(1024)
    StatsLine(0, stats, clock, 10.0).start()
    stats.prompt_tokens, stats.cached_tokens = 100, 60
    clock.advance(10)
    assert "prompt throughput: 4.0 tokens/s" in formatEvent(events[0])


def test_it_is_info_while_busy_and_once_after(events: list[LogEvent]) -> None:
    clock, stats = Clock(), Stats(1024)
    line = StatsLine(7, stats, clock, 2.0)
    line.start()
    assert events == []
    clock.advance(2)
    stats.generation_tokens += 1
    for _ in range(3):
        clock.advance(2)
    stats.prompt_tokens += 1
    clock.advance(2)
    debug, info = LogLevel.debug, LogLevel.info
    assert [event["log_level"] for event in events] == [debug, info, info, debug, info]
    assert formatEvent(events[0]).startswith("Engine 007: Avg prompt throughput: 0.0 tokens/s")
    line.stop()
    clock.advance(10)
    assert len(events) == 5


def test_throughput_is_of_the_time_that_passed(events: list[LogEvent]) -> None:
    clock, stats = Clock(), Stats(1024)
    StatsLine(0, stats, clock, 10.0).start()
    stats.generation_tokens = 40
    clock.advance(40)  # the reactor was held up
    assert "generation throughput: 1.0 tokens/s" in formatEvent(events[0])


def test_a_rank_tells_it() -> None:
    with LoggedRank("--log-stats-interval", "5s") as rig:
        rig.rank_log.startService()
        rig.post(CHAT, fields(CHAT))
        rig.clock.advance(5)
        (line,) = of("stats_line", rig.log.lines)
        rig.rank_log.stopService()
        rig.post(CHAT, fields(CHAT))
        rig.clock.advance(5)
        assert len(rig.log.lines) == 1
    assert "Avg generation throughput: 1.0 tokens/s, Running: 0 reqs" in line


def test_a_rank_with_a_kv_cache_tells_its_hit_rate() -> None:
    cache = ("--enable-kvcache", "--block-size", "8", "--zmq-endpoint", "")
    with LoggedRank("--log-stats-interval", "5s", *cache) as rig:
        rig.rank_log.startService()
        for _ in range(2):
            rig.post(TEXT, fields(TEXT, prompt=[*range(20)]))
        rig.clock.advance(5)
        assert of("stats_line", rig.log.lines)[-1].rstrip().endswith("Prefix cache hit rate: 40.0%")
        assert rig.rank.engine.reset_prefix_cache(5.0)
        rig.clock.advance(5)
        assert "hit rate" not in of("stats_line", rig.log.lines)[-1]
        rig.rank_log.stopService()


def test_a_rank_may_be_told_not_to() -> None:
    with LoggedRank("--disable-log-stats") as rig:
        rig.rank_log.startService()
        rig.post(CHAT, fields(CHAT))
        rig.clock.advance(60)
        rig.rank_log.stopService()
        assert rig.log.lines == []
