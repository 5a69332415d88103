"""What vLLM 0.33 shows, read by us in its v1/metrics/{loggers,stats,buckets}.py and config/cache.py."""

from __future__ import annotations

from typing import NamedTuple

TTFT = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80),
    *(160, 640, 2560),
)
ITL = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
LATENCY = (
    *(0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920),
    7680,
)
#: For --max-model-len 4096.
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
ITERATION = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
RESIDENCY = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200),
    1800,
)
PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)

RANK = ("engine", "model_name")


class Known(NamedTuple):
    """A family: its kind, the values of its own label, its labels and buckets."""

    kind: str
    label: str = ""
    values: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    common: tuple[str, ...] = RANK


def histogram(*buckets: float) -> Known:
    return Known("histogram", buckets=buckets)


GAUGE = Known("gauge")
COUNTER = Known("counter")

#: In the order of the page, counters without `_total`; all but `vllm:cache_config_info`.
FAMILIES: dict[str, Known] = {
    "vllm:num_requests_running": GAUGE,
    "vllm:num_requests_waiting": GAUGE,
    "vllm:num_requests_waiting_by_reason": Known("gauge", "reason", ("capacity", "deferred")),
    "vllm:engine_sleep_state": Known("gauge", "sleep_state", ("awake", "weights_offloaded", "discard_all")),
    "vllm:kv_cache_usage_perc": GAUGE,
    "vllm:prefix_cache_queries": COUNTER,
    "vllm:prefix_cache_hits": COUNTER,
    "vllm:external_prefix_cache_queries": COUNTER,
    "vllm:external_prefix_cache_hits": COUNTER,
    "vllm:mm_cache_queries": COUNTER,
    "vllm:mm_cache_hits": COUNTER,
    "vllm:num_preemptions": COUNTER,
    "vllm:prompt_tokens": COUNTER,
    "vllm:prompt_tokens_by_source": Known(
        "counter", "source", ("local_compute", "local_cache_hit", "external_kv_transfer")
    ),
    "vllm:prompt_tokens_cached": COUNTER,
    "vllm:prompt_tokens_cached_by_source": Known(
        "counter", "source", ("device", "host", "p2p", "disk", "external_unspecified")
    ),
    "vllm:generation_tokens": COUNTER,
    "vllm:request_success": Known(
        "counter", "finished_reason", ("stop", "length", "abort", "error", "repetition")
    ),
    "vllm:admission_rejections": Known(
        "counter", "reason", ("max_num_queued_reqs", "max_num_queued_tokens"), common=("model_name",)
    ),
    "vllm:request_prompt_tokens": histogram(*TOKENS),
    "vllm:request_generation_tokens": histogram(*TOKENS),
    "vllm:iteration_tokens_total": histogram(*ITERATION),
    "vllm:request_max_num_generation_tokens": histogram(*TOKENS),
    "vllm:request_params_n": histogram(1, 2, 5, 10, 20),
    "vllm:request_params_max_tokens": histogram(*TOKENS),
    "vllm:time_to_first_token_seconds": histogram(*TTFT),
    "vllm:inter_token_latency_seconds": histogram(*ITL),
    "vllm:request_time_per_output_token_seconds": histogram(*ITL),
    "vllm:e2e_request_latency_seconds": histogram(*LATENCY),
    "vllm:request_queue_time_seconds": histogram(*LATENCY),
    "vllm:request_inference_time_seconds": histogram(*LATENCY),
    "vllm:request_prefill_time_seconds": histogram(*LATENCY),
    "vllm:request_decode_time_seconds": histogram(*LATENCY),
    "vllm:request_num_preemptions": histogram(*PREEMPTIONS),
    "vllm:request_prefill_kv_computed_tokens": histogram(*TOKENS),
    # Known from the Go simulator only.
    "vllm:time_per_output_token_seconds": histogram(*ITL),
    "vllm:max_num_generation_tokens": histogram(*TOKENS),
}

#: The labels of `vllm:cache_config_info`, and their values for a model without peculiarities at our defaults.
CACHE_CONFIG = {
    "_block_size_resolved": "True",
    "block_size": "16",
    "cache_dtype": "auto",
    "cache_hit_alignment_tokens": "None",
    "effective_attention_block_size": "16",
    "enable_mamba_shared_prefix_checkpoint": "False",
    "enable_prefix_caching": "False",
    "gpu_memory_utilization": "0.92",
    "hash_block_size": "None",
    "is_attention_free": "False",
    "kv_cache_dtype_skip_layers": "[]",
    "kv_cache_layout": "None",
    "kv_cache_max_concurrency": "16.0",
    "kv_cache_memory_bytes": "None",
    "kv_cache_size_tokens": "16384",
    "kv_offloading_backend": "native",
    "kv_offloading_size": "None",
    "kv_sharing_fast_prefill": "False",
    "mamba_block_size": "None",
    "mamba_cache_dtype": "auto",
    "mamba_cache_mode": "none",
    "mamba_page_size_padded": "None",
    "mamba_ssm_cache_dtype": "auto",
    "num_cpu_blocks": "None",
    "num_gpu_blocks": "1024",
    "num_gpu_blocks_override": "None",
    "prefix_cache_retention_interval": "0",
    "prefix_caching_hash_algo": "sha256",
    "prefix_match_unit": "None",
    "replayssm_buffer_len": "16",
    "simple_cpu_offload_num_blocks": "None",
    "skip_page_size_padded": "None",
    "sliding_window": "None",
    "swa_bounded_replay": "True",
    "use_kda_recoverssm": "False",
    "use_replayssm": "False",
    "user_specified_block_size": "False",
}

#: The 17 families that the dashboards in vLLM's examples/observability query, as their expressions name them.
DASHBOARDS = (
    *("vllm:e2e_request_latency_seconds_bucket", "vllm:inter_token_latency_seconds_bucket"),
    *("vllm:request_time_per_output_token_seconds_bucket", "vllm:time_to_first_token_seconds_bucket"),
    *("vllm:prompt_tokens_total", "vllm:generation_tokens_total"),
    *("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"),
    *("vllm:request_prompt_tokens_bucket", "vllm:request_generation_tokens_bucket"),
    "vllm:request_success_total",
    *("vllm:request_queue_time_seconds_sum", "vllm:request_prefill_time_seconds_sum"),
    *("vllm:request_decode_time_seconds_sum", "vllm:request_max_num_generation_tokens_sum"),
    "vllm:iteration_tokens_total_count",
)
