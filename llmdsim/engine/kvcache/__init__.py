"""The KV blocks of one engine: which tokens they hold, who uses them, and what became of them."""

from llmdsim.engine.kvcache.records import BlockHash, Cleared, ExtraKey, Record, Removed, Stored

__all__ = ["BlockHash", "Cleared", "ExtraKey", "Record", "Removed", "Stored"]
