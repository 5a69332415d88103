"""The KV cache of a rank, as the options want it."""

from __future__ import annotations

from collections.abc import Callable

from llmdsim.config import Config
from llmdsim.config.kv_events import kv_event_settings
from llmdsim.engine.kvcache import KvCache
from llmdsim.engine.kvcache.hashing import hasher
from llmdsim.engine.kvcache.lifetimes import WatchedPool
from llmdsim.engine.kvcache.offload import HostTier
from llmdsim.engine.kvcache.pool import Pool
from llmdsim.engine.stats import KV_BYTES_PER_TOKEN, Stats


def kv_cache(config: Config, stats: Stats, seconds: Callable[[], float]) -> KvCache | None:
    """The cache of the rank that `config` is of; None where there is to be none. `seconds` is the clock."""
    if not config.enable_kvcache:
        return None
    names_blocks = None
    settings = kv_event_settings(config)
    if settings.enabled:
        model = config.served_model_name[0]
        names_blocks = hasher(config.prefix_caching_hash_algo, config.hash_seed, model)
    pool = Pool(config.kv_cache_size)
    if config.kv_cache_metrics:
        pool = WatchedPool(config.kv_cache_size, config, stats.block_times, seconds)
    host = None
    if config.kv_offloading_size:
        block_bytes = KV_BYTES_PER_TOKEN * config.block_size
        host = HostTier(int(config.kv_offloading_size * (1 << 30)) // block_bytes)
    cache = KvCache(pool, config.block_size, config.enable_prefix_caching, names_blocks, host)
    # Else not before somebody in this process listens.
    cache.announces = settings.publishes
    return cache
