"""Prompts whose blocks come back from the host's memory: how long that takes, and how it is counted."""

from __future__ import annotations

from llmdsim.engine.kvcache import KvCache
from llmdsim.engine.kvcache.offload import HostTier
from llmdsim.engine.kvcache.pool import Pool
from llmdsim.engine.sequence import Sequence
from llmdsim.engine.stats import KV_BYTES_PER_TOKEN
from llmdsim.engine.transfers import RemotePrefill
from tests.engine.rig import Rig, log
from tests.engine.test_blocks import SIZE, prompt

PER_TOKEN = {"kv_offloading_time_per_token": 1.0, "prefill_time_per_token": 8.0, "prefill_overhead": 100.0}


def host_rig(blocks: int = 3, host: int = 100, **more: object) -> Rig:
    rig = Rig(8, **more)
    rig.use_cache(KvCache(Pool(blocks), SIZE, host=HostTier(host)))
    return rig


def evicted(rig: Rig) -> Rig:
    """A rig whose device held the prompt of 12 and then one of 8, of whose blocks the host has all."""
    for each in (prompt(12), prompt(8, first=500)):
        rig.add(prompt=each)
        rig.drain()
    return rig


def lasted(sequence: Sequence) -> float:
    return log(sequence).calls[0][0] - sequence.arrival


def test_loading_takes_its_time_before_the_rest_is_prefilled() -> None:
    rig = evicted(host_rig(**PER_TOKEN))
    sequence = rig.add(prompt=prompt(12))
    rig.drain()
    # One block is on the device, one comes back, and the last one is computed.
    assert (sequence.cached_tokens, sequence.host_tokens) == (8, 4)
    assert lasted(sequence) == 4 * 1.0 + 100.0 + 4 * 8.0


def test_loading_comes_on_top_of_a_constant_prefill_and_speed_divides_it() -> None:
    rig = evicted(host_rig(time_to_first_token=16.0, kv_offloading_time_per_token=1.0, speed=2.0))
    sequence = rig.add(prompt=prompt(12))
    rig.drain()
    assert lasted(sequence) == (16.0 + 4.0) / 2.0


def test_a_changed_time_counts_from_when_loading_began() -> None:
    rig = evicted(host_rig(time_to_first_token=16.0, kv_offloading_time_per_token=1.0))
    sequence = rig.add(prompt=prompt(12))
    rig.go(2.0)
    assert rig.change(kv_offloading_time_per_token=10.0) == sequence.arrival + 16.0 + 40.0


def test_what_came_back_is_on_the_device_again() -> None:
    rig = evicted(host_rig())
    rig.add(prompt=prompt(12))
    rig.drain()
    again = rig.add(prompt=prompt(12))
    assert (again.cached_tokens, again.host_tokens) == (8, 0)


def test_tokens_are_counted_by_where_they_came_from() -> None:
    rig = evicted(host_rig())
    stats = rig.stats
    assert (stats.prefix_cache_queries, stats.prefix_cache_hits) == (20, 0)
    assert (stats.host.queried, stats.host.hits, stats.host.loaded) == (20, 0, 0)
    rig.add(prompt=prompt(12))
    assert (stats.prefix_cache_queries, stats.prefix_cache_hits) == (32, 4)
    assert (stats.host.queried, stats.host.hits, stats.host.loaded) == (20 + 8, 4, 0)
    rig.drain()
    assert (stats.prompt_tokens, stats.cached_tokens, stats.host.loaded) == (32, 8, 4)
    assert (stats.host.load_size.count, stats.host.load_size.sum) == (1, 4 * KV_BYTES_PER_TOKEN)
    assert (stats.transfers.queried, stats.transfers.hits) == (0, 0)


def test_a_preempted_sequence_loads_again_and_is_counted_once() -> None:
    rig = evicted(host_rig(time_to_first_token=16.0, kv_offloading_time_per_token=1.0))
    sequence = rig.add(prompt=prompt(12))
    rig.go(1.0)
    assert rig.engine.reset_prefix_cache(rig.now, preempt=True)
    rig.drain()
    assert log(sequence).reasons[-1] == "stop"
    # What the device and the host had is forgotten: all of it is computed.
    assert lasted(sequence) == 1.0 + 16.0
    stats = rig.stats
    assert (stats.host.hits, stats.host.loaded, stats.cached_tokens) == (4, 4, 8)


def test_a_prefill_elsewhere_is_asked_for_what_the_host_has_not() -> None:
    rig = evicted(host_rig(kv_cache_transfer_time_per_token=2.0, kv_offloading_time_per_token=1.0))
    sequence = rig.make(prompt=prompt(12))
    sequence.remote_prefill = RemotePrefill()
    rig.submit(sequence)
    rig.drain()
    assert lasted(sequence) == 4 * 1.0 + 4 * 2.0
    assert rig.stats.transfers.loaded == 4
