"""The metric families as one table, and the collector that turns the engine's counters into `/metrics`."""

from llmdsim.metrics.block import Block
from llmdsim.metrics.cache_config import cache_config
from llmdsim.metrics.collector import Collector
from llmdsim.metrics.engine import (
    cache_config_block,
    engine_blocks,
    kv_block_blocks,
    offload_blocks,
    own_blocks,
    transfer_blocks,
)
from llmdsim.metrics.http_requests import HttpRequests
from llmdsim.metrics.kv_events import kv_event_blocks
from llmdsim.metrics.lora import lora_blocks
from llmdsim.metrics.process import process_blocks
from llmdsim.metrics.scripted import Scripted

__all__ = [
    "Block",
    "Collector",
    "HttpRequests",
    "Scripted",
    "cache_config",
    "cache_config_block",
    "engine_blocks",
    "kv_block_blocks",
    "kv_event_blocks",
    "lora_blocks",
    "offload_blocks",
    "own_blocks",
    "process_blocks",
    "transfer_blocks",
]
