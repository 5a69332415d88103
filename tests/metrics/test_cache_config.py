"""The labels that describe the cache."""

from __future__ import annotations

import pytest

from llmdsim.config import parse
from llmdsim.metrics import cache_config
from tests.metrics.vllm import CACHE_CONFIG


def test_every_label_of_vllms_with_its_default() -> None:
    assert cache_config(parse(["--model", "m"], {})) == CACHE_CONFIG


@pytest.mark.parametrize(
    ("flags", "changed"),
    [
        (
            ["--block-size", "32", "--max-model-len", "1000"],
            {
                "block_size": "32",
                "user_specified_block_size": "True",
                "effective_attention_block_size": "32",
                # 32 sequences of the longest kind, which leave a part of their last blocks empty.
                "kv_cache_size_tokens": "32000",
                "kv_cache_max_concurrency": "32.0",
            },
        ),
        (["--block-size", "16"], {"user_specified_block_size": "True"}),
        (
            ["--kv-cache-size", "100", "--max-model-len", "1000"],
            {
                "num_gpu_blocks": "100",
                "kv_cache_size_tokens": "1587",
                "kv_cache_max_concurrency": str(100 / 63),
            },
        ),
        (
            ["--kv-cache-size", "0"],
            {"num_gpu_blocks": "0", "kv_cache_size_tokens": "0", "kv_cache_max_concurrency": "0.0"},
        ),
        (["--prefix-caching-hash-algo", "xxhash"], {"prefix_caching_hash_algo": "xxhash"}),
        (
            ["--num-gpu-blocks-override", "101", "--max-model-len", "1600"],
            {
                "num_gpu_blocks": "101",
                "num_gpu_blocks_override": "101",
                "kv_cache_size_tokens": "1616",
                "kv_cache_max_concurrency": "1.01",
            },
        ),
        (
            ["--kv-offloading-size", "0.5", "--kv-offloading-backend", "lmcache"],
            {"kv_offloading_size": "0.5", "kv_offloading_backend": "lmcache"},
        ),
        (["--enable-prefix-caching"], {"enable_prefix_caching": "True"}),
    ],
)
def test_our_options_show(flags: list[str], changed: dict[str, str]) -> None:
    assert cache_config(parse(["--model", "m", *flags], {})) == {**CACHE_CONFIG, **changed}
