"""The metric families as one table: vLLM's and llm-d-inference-sim's, each with how it is read from `Stats`.

Names, kinds, labels and order are vLLM 0.33's (v1/metrics/loggers.py). A counter's name stands here without
the `_total` that the exposition adds. Families carry the labels `model_name` and `engine` (rank as text).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

from llmdsim.engine.admission import Limit
from llmdsim.engine.stats import FINISH_REASONS, SLEEP_STATES, Histogram, Stats


@dataclass(frozen=True, slots=True)
class Scalar:
    """A gauge or counter with one value a rank."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    read: Callable[[Stats], float]


@dataclass(frozen=True, slots=True)
class Labelled:
    """A gauge or counter split by one more label; `reads` has a child for each of its values.

    Where it is not `per_engine`, it has no label `engine` and a child is the sum of all ranks.
    """

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    label: str
    reads: Mapping[str, Callable[[Stats], float]]
    per_engine: bool = True


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram; its bounds are those of what is read."""

    name: str
    help: str
    read: Callable[[Stats], Histogram]


Family = Scalar | Labelled | Distribution


def _sleeps(state: str, stats: Stats) -> float:
    return stats.sleep_state == state


def _finished(reason: str, stats: Stats) -> float:
    return stats.finished[reason]


def _rejected(limit: Limit, stats: Stats) -> float:
    return stats.rejected[limit]


def _external(stats: Stats) -> float:
    return stats.transfers.loaded + stats.host.loaded


def _nothing(_: Stats) -> float:
    """What the simulated vLLM counts and nothing here does yet."""
    return 0


FAMILIES: tuple[Family, ...] = (
    Scalar(
        "vllm:num_requests_running",
        "gauge",
        "Requests that hold a slot and are being answered.",
        lambda stats: stats.running,
    ),
    Scalar(
        "vllm:num_requests_waiting",
        "gauge",
        "Requests in the queue, not yet started.",
        lambda stats: stats.waiting,
    ),
    Labelled(
        "vllm:num_requests_waiting_by_reason",
        "gauge",
        "Requests in the queue that wait for a slot (capacity), or for something else (deferred).",
        "reason",
        {
            "capacity": lambda stats: stats.waiting - stats.deferred,
            "deferred": lambda stats: stats.deferred,
        },
    ),
    Labelled(
        "vllm:engine_sleep_state",
        "gauge",
        "1 for the state the engine is in.",
        "sleep_state",
        {state: partial(_sleeps, state) for state in SLEEP_STATES},
    ),
    Scalar(
        "vllm:kv_cache_usage_perc",
        "gauge",
        "The part of the KV cache in use, 0 to 1.",
        lambda stats: stats.kv_cache_usage,
    ),
    Scalar(
        "vllm:prefix_cache_queries",
        "counter",
        "Prompt tokens looked up in the prefix cache.",
        lambda stats: stats.prefix_cache_queries,
    ),
    Scalar(
        "vllm:prefix_cache_hits",
        "counter",
        "Prompt tokens found in the prefix cache.",
        lambda stats: stats.prefix_cache_hits,
    ),
    Scalar(
        "vllm:external_prefix_cache_queries",
        "counter",
        "Prompt tokens looked up in other instances' caches, and in CPU memory.",
        lambda stats: stats.transfers.queried + stats.host.queried,
    ),
    Scalar(
        "vllm:external_prefix_cache_hits",
        "counter",
        "Prompt tokens found in other instances' caches, and in CPU memory.",
        lambda stats: stats.transfers.hits + stats.host.hits,
    ),
    Scalar("vllm:mm_cache_queries", "counter", "Images and the like looked up in the cache.", _nothing),
    Scalar("vllm:mm_cache_hits", "counter", "Images and the like found in the cache.", _nothing),
    Scalar(
        "vllm:num_preemptions",
        "counter",
        "Times a running request was put back into the queue.",
        lambda stats: stats.preemptions,
    ),
    Scalar(
        "vllm:prompt_tokens",
        "counter",
        "Prompt tokens of the requests that reached their first token.",
        lambda stats: stats.prompt_tokens,
    ),
    Labelled(
        "vllm:prompt_tokens_by_source",
        "counter",
        "Prompt tokens of the requests that reached their first token, by where their KV came from.",
        "source",
        {
            "local_compute": lambda stats: stats.prompt_tokens - stats.cached_tokens,
            "local_cache_hit": lambda stats: stats.cached_tokens - _external(stats),
            "external_kv_transfer": _external,
        },
    ),
    Scalar(
        "vllm:prompt_tokens_cached",
        "counter",
        "Prompt tokens that were found in a cache and not computed.",
        lambda stats: stats.cached_tokens,
    ),
    Labelled(
        "vllm:prompt_tokens_cached_by_source",
        "counter",
        "Prompt tokens found in a cache as their request was started, by where it was.",
        "source",
        {
            "device": lambda stats: stats.prefix_cache_hits,
            "host": lambda stats: stats.host.hits,
            "p2p": lambda stats: stats.transfers.hits,
            "disk": _nothing,
            "external_unspecified": _nothing,
        },
    ),
    Scalar(
        "vllm:generation_tokens",
        "counter",
        "Tokens generated.",
        lambda stats: stats.generation_tokens,
    ),
    Labelled(
        "vllm:request_success",
        "counter",
        "Requests that ended, by the reason they ended for.",
        "finished_reason",
        {reason: partial(_finished, reason) for reason in FINISH_REASONS},
    ),
    Labelled(
        "vllm:admission_rejections",
        "counter",
        "Requests refused by a limit of the queue.",
        "reason",
        {limit: partial(_rejected, limit) for limit in get_args(Limit)},
        per_engine=False,
    ),
    Distribution(
        "vllm:request_prompt_tokens",
        "Prompt tokens of a finished request.",
        lambda stats: stats.request_prompt_tokens,
    ),
    Distribution(
        "vllm:request_generation_tokens",
        "Tokens generated for a finished request.",
        lambda stats: stats.request_generation_tokens,
    ),
    Distribution(
        "vllm:iteration_tokens_total",
        "Prompt tokens computed and tokens generated in one pass of the engine.",
        lambda stats: stats.pass_tokens,
    ),
    Distribution(
        "vllm:request_max_num_generation_tokens",
        "Tokens of the longest choice of a finished request.",
        lambda stats: stats.max_num_generation_tokens,
    ),
    Distribution(
        "vllm:request_params_n",
        "Parameter n of a finished request.",
        lambda stats: stats.params_n,
    ),
    Distribution(
        "vllm:request_params_max_tokens",
        "Effective max_tokens of a finished request: asked for, or the default.",
        lambda stats: stats.params_max_tokens,
    ),
    Distribution(
        "vllm:time_to_first_token_seconds",
        "Seconds from a request's arrival to its first token.",
        lambda stats: stats.time_to_first_token,
    ),
    Distribution(
        "vllm:inter_token_latency_seconds",
        "Seconds between two tokens of a request.",
        lambda stats: stats.inter_token_latency,
    ),
    Distribution(
        "vllm:request_time_per_output_token_seconds",
        "Mean seconds a token after the first, for a finished request.",
        lambda stats: stats.time_per_output_token,
    ),
    Distribution(
        "vllm:e2e_request_latency_seconds",
        "Seconds from a request's arrival to its end.",
        lambda stats: stats.e2e_latency,
    ),
    Distribution(
        "vllm:request_queue_time_seconds",
        "Seconds a finished request spent in the queue.",
        lambda stats: stats.queue_time,
    ),
    Distribution(
        "vllm:request_inference_time_seconds",
        "Seconds from a request's start to its last token.",
        lambda stats: stats.inference_time,
    ),
    Distribution(
        "vllm:request_prefill_time_seconds",
        "Seconds from a request's start to its first token.",
        lambda stats: stats.prefill_time,
    ),
    Distribution(
        "vllm:request_decode_time_seconds",
        "Seconds from a request's first token to its last.",
        lambda stats: stats.decode_time,
    ),
    Distribution(
        "vllm:request_num_preemptions",
        "Times a finished request was put back into the queue.",
        lambda stats: stats.request_preemptions,
    ),
    Distribution(
        "vllm:request_prefill_kv_computed_tokens",
        "Prompt tokens of a finished request that were computed, not cached.",
        lambda stats: stats.prefill_computed_tokens,
    ),
    # The peer's names, which its users' dashboards query: one vLLM retired, one without vLLM's `request_`.
    Distribution(
        "vllm:time_per_output_token_seconds",
        "The samples of vllm:inter_token_latency_seconds under its former name.",
        lambda stats: stats.inter_token_latency,
    ),
    Distribution(
        "vllm:max_num_generation_tokens",
        "The samples of vllm:request_max_num_generation_tokens under a short name.",
        lambda stats: stats.max_num_generation_tokens,
    ),
)

#: Those of single KV blocks, of which some are measured with `--kv-cache-metrics`.
BLOCK_FAMILIES: tuple[Family, ...] = (
    Distribution(
        "vllm:kv_block_lifetime_seconds",
        "Seconds from when a KV block was taken to when it was taken for something else.",
        lambda stats: stats.block_times.lifetime,
    ),
    Distribution(
        "vllm:kv_block_idle_before_evict_seconds",
        "Seconds that nobody had used a KV block when it was taken for something else.",
        lambda stats: stats.block_times.idle,
    ),
    Distribution(
        "vllm:kv_block_reuse_gap_seconds",
        "Seconds between two hits of a KV block, the last four before it was taken for something else.",
        lambda stats: stats.block_times.reuse_gap,
    ),
)

#: Those of copies of KV blocks in CPU memory (vLLM's offloading/metrics.py), where there is such memory.
OFFLOAD_FAMILIES: tuple[Family, ...] = (
    Scalar(
        "vllm:kv_offload_load_bytes",
        "counter",
        "Bytes of KV blocks that came back from CPU memory.",
        lambda stats: stats.host.load_size.sum,
    ),
    Distribution(
        "vllm:kv_offload_load_size",
        "Bytes of the KV blocks that came back from CPU memory for one prompt.",
        lambda stats: stats.host.load_size,
    ),
)

#: Those of the NIXL connector (vLLM's nixl/stats.py), which are there where KV blocks move between servers.
TRANSFER_FAMILIES: tuple[Family, ...] = (
    Distribution(
        "vllm:nixl_xfer_time_seconds",
        "Seconds a transfer of KV blocks took.",
        lambda stats: stats.transfers.time,
    ),
    Distribution(
        "vllm:nixl_post_time_seconds",
        "Seconds it took to ask for a transfer of KV blocks.",
        lambda stats: stats.transfers.post_time,
    ),
    Distribution(
        "vllm:nixl_bytes_transferred",
        "Bytes of one transfer of KV blocks.",
        lambda stats: stats.transfers.bytes,
    ),
    Distribution(
        "vllm:nixl_num_descriptors",
        "Descriptors of one transfer, which are its blocks.",
        lambda stats: stats.transfers.descriptors,
    ),
    Scalar(
        "vllm:nixl_num_failed_transfers",
        "counter",
        "Transfers of KV blocks that failed.",
        lambda stats: stats.transfers.failed,
    ),
    Scalar(
        "vllm:nixl_num_failed_notifications",
        "counter",
        "Notes to the other server that failed.",
        _nothing,
    ),
    Scalar(
        "vllm:nixl_num_kv_expired_reqs",
        "counter",
        "Prefills whose blocks nobody came for in time.",
        _nothing,
    ),
    Scalar(
        "vllm:nixl_num_notifications_after_expiry",
        "counter",
        "Notes from readers that came when the blocks had been given up.",
        _nothing,
    ),
)
