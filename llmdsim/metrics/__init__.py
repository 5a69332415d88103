"""The metric families as one table, and the collector that turns the engine's counters into `/metrics`."""

from llmdsim.metrics.collector import Block, Collector
from llmdsim.metrics.exposition import CONTENT_TYPE

__all__ = ["CONTENT_TYPE", "Block", "Collector"]
