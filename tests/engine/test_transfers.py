"""Prompts that another server has prefilled: when their first token comes, what fails, what is counted."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from llmdsim.config import Config, parse
from llmdsim.engine.sequence import Sequence
from llmdsim.engine.stats import KV_BYTES_PER_TOKEN, Histogram
from llmdsim.engine.transfers import RemotePrefill, Transfers
from tests.engine.rig import TICK, Rig, log

RECOMPUTE = '{"kv_load_failure_policy": "recompute"}'


def add(rig: Rig, total: int = 1, prompt: int = 40, cached_here: int = 0, **remote: Any) -> Sequence:
    """A sequence whose prompt was prefilled elsewhere."""
    sequence = rig.make(total, prompt=range(prompt))
    sequence.cached_tokens = cached_here
    sequence.remote_prefill = RemotePrefill(**remote)
    rig.submit(sequence)
    return sequence


def in_buckets(histogram: Histogram) -> dict[float, int]:
    bounds = (*histogram.bounds, float("inf"))
    return {bound: count for bound, count in zip(bounds, histogram.counts, strict=True) if count}


def test_the_first_token_comes_when_the_blocks_are_there() -> None:
    rig = Rig(time_to_first_token=99 * TICK, kv_cache_transfer_latency=8 * TICK, inter_token_latency=TICK)
    start = rig.now
    local, remote = rig.add(total=2), add(rig, total=2)
    rig.drain()
    assert log(remote).token_times() == [start + 8 * TICK, start + 9 * TICK]
    assert log(local).token_times() == [start + 99 * TICK, start + 100 * TICK]


def test_a_transfer_by_tokens_is_of_the_whole_prompt() -> None:
    rig = Rig(kv_cache_transfer_time_per_token=TICK, prefill_overhead=99 * TICK)
    start = rig.now
    add(rig, prompt=40, cached_here=16)
    assert rig.go() == start + 40 * TICK


def test_a_transfer_holds_a_slot_and_may_be_left() -> None:
    rig = Rig(slots=1, kv_cache_transfer_latency=8 * TICK)
    sequence, other = add(rig), rig.add()
    assert (rig.stats.running, rig.stats.waiting) == (1, 1)
    rig.abort(sequence)
    rig.drain()
    assert log(other).reasons == ["stop"]
    assert rig.stats.transfers.time.count == 0
    assert rig.stats.transfers.hits == 40


def test_a_queued_transfer_begins_with_the_slot() -> None:
    rig = Rig(slots=1, time_to_first_token=4 * TICK, kv_cache_transfer_latency=8 * TICK)
    start = rig.now
    rig.add()
    sequence = add(rig)
    rig.drain()
    assert log(sequence).token_times() == [start + 12 * TICK]
    assert rig.stats.transfers.time.sum == 8 * TICK


def test_what_ends_before_it_begins_reads_nothing() -> None:
    rig = Rig(kv_cache_transfer_latency=60.0)
    sequence = rig.make()
    sequence.remote_prefill = RemotePrefill()
    sequence.cache_hit_threshold = 0.5
    rig.submit(sequence)
    assert log(sequence).calls == [(rig.now, 0, "cache_threshold")]
    assert rig.stats.transfers.queried == 0


def test_a_transfer_is_measured_with_its_lateness() -> None:
    rig = Rig(kv_cache_transfer_latency=0.05)
    add(rig, prompt=40)
    rig.go(0.125)
    add(rig, prompt=400)
    rig.go(0.0625)
    transfers = rig.stats.transfers
    assert transfers.time.sum == pytest.approx(0.1875)
    assert in_buckets(transfers.time) == {0.2: 1, 0.075: 1}
    assert in_buckets(transfers.post_time) == {0.001: 2}
    # 3 and 25 blocks of 16 tokens.
    assert transfers.descriptors.sum == 28
    assert in_buckets(transfers.descriptors) == {10.0: 1, 30.0: 1}
    assert transfers.bytes.sum == 28 * 16 * KV_BYTES_PER_TOKEN == 28 * 2 * 2**20
    assert in_buckets(transfers.bytes) == {2.0**23: 1, 2.0**27: 1}


def test_tokens_are_counted_by_where_they_come_from() -> None:
    rig = Rig(kv_cache_transfer_latency=TICK)
    add(rig, prompt=40, cached_here=16)
    stats = rig.stats
    assert (stats.transfers.queried, stats.transfers.hits, stats.transfers.loaded) == (24, 24, 0)
    rig.drain()
    assert (stats.prompt_tokens, stats.cached_tokens, stats.transfers.loaded) == (40, 40, 24)
    # Nothing was computed but the one token.
    assert (stats.pass_tokens.count, stats.pass_tokens.sum) == (1, 1)


@pytest.mark.parametrize(
    ("remote", "computed"),
    [
        ({}, 0),
        ({"cached": 10}, 30),
        ({"cached": 0}, 40),
        ({"cached": 1 << 60}, 0),
        ({"fails": True, "recomputes": True}, 40),
        ({"fails": True, "recomputes": True, "cached": 10}, 30),
    ],
)
def test_what_was_computed_is_what_the_prefill_told(remote: dict[str, Any], computed: int) -> None:
    rig = Rig()
    add(rig, prompt=40, **remote)
    rig.drain()
    assert (rig.stats.prefill_computed_tokens.count, rig.stats.prefill_computed_tokens.sum) == (1, computed)


@pytest.mark.parametrize("total", [0, 1, 3])
def test_a_failed_transfer_ends_the_sequence_when_its_time_is_over(total: int) -> None:
    rig = Rig(slots=1, kv_cache_transfer_latency=8 * TICK)
    start = rig.now
    sequence, other = add(rig, total, fails=True), rig.add()
    rig.drain()
    assert log(sequence).calls == [(start + 8 * TICK, 0, "error")]
    assert log(other).reasons == ["stop"]
    stats = rig.stats
    assert (stats.finished["error"], stats.finished["stop"]) == (1, 1)
    assert (stats.transfers.failed, stats.transfers.time.count, stats.transfers.loaded) == (1, 0, 0)
    assert stats.prompt_tokens == 5  # the other's
    assert rig.engine.idle
    assert rig.engine.next_deadline() is None


@pytest.mark.parametrize("total", [0, 1, 3])
def test_or_it_is_prefilled_here(total: int) -> None:
    rig = Rig(time_to_first_token=20 * TICK, kv_cache_transfer_latency=8 * TICK, inter_token_latency=2 * TICK)
    start = rig.now
    sequence = add(rig, total, fails=True, recomputes=True)
    rig.drain()
    assert log(sequence).token_times() == [start + (28 + 2 * token) * TICK for token in range(total)]
    assert log(sequence).calls[-1][2] == "stop"
    stats = rig.stats
    assert (stats.transfers.failed, stats.transfers.time.count, stats.transfers.loaded) == (1, 0, 0)
    # Looked up once more, in vain (vLLM).
    assert (stats.transfers.queried, stats.transfers.hits) == (80, 40)
    assert (stats.prompt_tokens, stats.cached_tokens) == (40, 0)
    assert rig.engine.idle


def test_lateness_of_the_failure_does_not_put_off_the_prefill() -> None:
    rig = Rig(time_to_first_token=20 * TICK, kv_cache_transfer_latency=8 * TICK)
    start = rig.now
    add(rig, fails=True, recomputes=True)
    assert rig.go(13 * TICK) == start + 28 * TICK


def test_leaving_during_the_prefill_after_a_failure() -> None:
    rig = Rig(time_to_first_token=20 * TICK)
    sequence = add(rig, fails=True, recomputes=True)
    rig.go()
    rig.abort(sequence)
    rig.drain()
    assert log(sequence).calls == []
    assert rig.engine.idle


def test_a_failure_by_chance_takes_no_other_along() -> None:
    rig = Rig(slots=4, kv_cache_transfer_latency=8 * TICK)
    fine, bad, good = add(rig, 2), add(rig, 2, fails=True), add(rig, 2)
    rig.drain()
    assert [log(each).reasons[-1] for each in (fine, bad, good)] == ["stop", "error", "stop"]


def settings(*flags: str) -> Config:
    return parse(["--model", "m", *flags], {})


def fates(transfers: Transfers, number: int = 1000) -> list[bool]:
    return [transfers.draw(None).fails for _ in range(number)]


@pytest.mark.parametrize(("rate", "fewest", "most"), [("0", 0, 0), ("100", 1000, 1000), ("12.5", 90, 160)])
def test_as_many_fail_as_the_rate_says(rate: str, fewest: int, most: int) -> None:
    failed = sum(fates(Transfers(settings("--kv-transfer-failure-rate", rate, "--seed", "7"))))
    assert fewest <= failed <= most


def test_a_seed_repeats_which_fail() -> None:
    flags = ("--kv-transfer-failure-rate", "50", "--seed")
    first = fates(Transfers(settings(*flags, "7")))
    assert fates(Transfers(settings(*flags, "7"))) == first
    assert fates(Transfers(settings(*flags, "8"))) != first


def test_the_rate_may_change_and_chance_goes_on() -> None:
    transfers = Transfers(settings("--kv-transfer-failure-rate", "50", "--seed", "7"))
    fates(transfers, 10)
    transfers.configure(settings())
    assert not any(fates(transfers, 10))
    transfers.configure(settings("--kv-transfer-failure-rate", "50"))
    twin = Transfers(settings("--kv-transfer-failure-rate", "50", "--seed", "7"))
    fates(twin, 20)
    assert fates(transfers) == fates(twin)


@pytest.mark.parametrize(
    ("flags", "recomputes"),
    [
        ((), False),
        (("--kv-transfer-config", "{}"), False),
        (("--kv-transfer-config", '{"kv_load_failure_policy": "fail"}'), False),
        (("--kv-transfer-config", RECOMPUTE), True),
        (("--kv-transfer-config.kv_load_failure_policy", "recompute"), True),
    ],
)
def test_vllms_policy_decides_what_a_failure_means(flags: tuple[str, ...], recomputes: bool) -> None:
    assert Transfers(settings(*flags)).draw(3).recomputes is recomputes


def test_chance_is_not_that_of_replies_and_latencies() -> None:
    random = Random(7)
    others = [random.random() < 0.5 for _ in range(1000)]
    assert fates(Transfers(settings("--kv-transfer-failure-rate", "50", "--seed", "7"))) != others
