"""How busy an engine is, as `GetLoads` tells it and events of its KV cache carry it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from llmdsim.rpc.call import reply
from llmdsim.rpc.numbers import int32
from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.web.context import VLLM_VERSION, Context
from llmdsim.wire.request import Request


class EngineLoad(NamedTuple):
    """Of one rank, now. All numbers fit an int32.

    `uncached_tokens` are those of prompts that wait and had no token yet, less what will be found cached if
    that is as much as of late; `throughput` is tokens a second over `engine.rates.WINDOW`. The KV cache has
    room for `capacity` tokens, of which `used` are taken, the part `usage`; `slots` sequences run at once.
    """

    running: int
    waiting: int
    uncached_tokens: int
    used: int
    capacity: int
    usage: float
    throughput: float
    hit_rate: float
    slots: int


def engine_load(context: Context) -> EngineLoad:
    """Read off the engine's counters; it takes as long as looking at each running sequence once."""
    stats, config, engine, rates = context.stats, context.config, context.driver.engine, context.rates
    usage = stats.kv_cache_usage
    hit_rate = rates.hit_rate
    # Those that run are told apart, since there are far fewer than may wait.
    prefilling = sum([sequence.prompt_tokens for sequence in engine.running if not sequence.revealed])
    blocks = config.kv_cache_size if stats.pool is None else stats.pool.total
    return EngineLoad(
        running=int32(stats.running),
        waiting=int32(stats.waiting),
        uncached_tokens=int32(round((engine.prefill_tokens - prefilling) * (1 - hit_rate))),
        used=0 if stats.pool is None else int32(stats.pool.used * config.block_size),
        capacity=int32(blocks * config.block_size),
        usage=usage,
        throughput=rates.throughput(context.turns.seconds()),
        hit_rate=hit_rate,
        slots=int32(config.max_num_seqs),
    )


class Loads:
    """`GetLoads` of one rank; each has a port of its own, and tells of itself alone."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def get(self, request: Request, asked: pb.GetLoadsRequest) -> None:
        """How busy the rank is, whatever parts or rank are asked for (SMG's servicer)."""
        load = engine_load(self._context)
        told = pb.SchedulerLoad(
            dp_rank=max(self._context.config.data_parallel_rank, 0),
            num_running_reqs=load.running,
            num_waiting_reqs=load.waiting,
            num_total_reqs=int32(load.running + load.waiting),
            num_used_tokens=load.used,
            max_total_num_tokens=load.capacity,
            token_usage=load.usage,
            gen_throughput=load.throughput,
            cache_hit_rate=load.hit_rate,
            utilization=load.usage,
            max_running_requests=load.slots,
            num_waiting_uncached_tokens=load.uncached_tokens,
        )
        now = datetime.now(UTC).isoformat()
        reply(
            request, pb.GetLoadsResponse(timestamp=now, version=VLLM_VERSION, dp_rank_count=1, loads=[told])
        )
