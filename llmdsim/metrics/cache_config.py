"""The labels of `vllm:cache_config_info`: every field of vLLM 0.33's CacheConfig, as its str()."""

from __future__ import annotations

from llmdsim.config import Config


def cache_config(config: Config) -> dict[str, str]:
    """Our options where there is one, else vLLM's defaults for a model with attention everywhere."""
    block_size = config.block_size
    # As asked for. Of vLLM's number one is never used, and of llm-d-inference-sim's none.
    blocks = config.num_gpu_blocks_override or config.kv_cache_size
    # A sequence of the longest kind takes whole blocks.
    concurrency = blocks / -(-config.max_model_len // block_size)
    fields: dict[str, object] = {
        "block_size": block_size,
        "user_specified_block_size": "block_size" in config.given,
        "kv_cache_layout": None,
        "prefix_match_unit": None,
        "gpu_memory_utilization": 0.92,
        "cache_dtype": "auto",
        "is_attention_free": False,
        "num_gpu_blocks_override": config.num_gpu_blocks_override,
        "sliding_window": None,
        "enable_prefix_caching": config.enable_prefix_caching,
        "prefix_caching_hash_algo": config.prefix_caching_hash_algo,
        "prefix_cache_retention_interval": 0,
        "kv_cache_dtype_skip_layers": [],
        "mamba_page_size_padded": None,
        "skip_page_size_padded": None,
        "mamba_block_size": None,
        "mamba_cache_dtype": "auto",
        "mamba_ssm_cache_dtype": "auto",
        "mamba_cache_mode": "none",
        "enable_mamba_shared_prefix_checkpoint": False,
        "replayssm_buffer_len": 16,
        "use_replayssm": False,
        "use_kda_recoverssm": False,
        "num_gpu_blocks": blocks,
        "num_cpu_blocks": None,
        "simple_cpu_offload_num_blocks": None,
        "effective_attention_block_size": block_size,
        "kv_cache_size_tokens": int(concurrency * config.max_model_len),
        "kv_cache_max_concurrency": concurrency,
        "hash_block_size": None,
        "cache_hit_alignment_tokens": None,
        "kv_sharing_fast_prefill": False,
        "swa_bounded_replay": True,
        "kv_cache_memory_bytes": None,
        "kv_offloading_size": config.kv_offloading_size,
        "kv_offloading_backend": config.kv_offloading_backend,
        "_block_size_resolved": True,
    }
    return {name: str(value) for name, value in fields.items()}
