"""The KV blocks of one engine: which tokens they hold, who uses them, and what became of them."""

from llmdsim.engine.kvcache.cache import BlockTable, Hasher, KvCache
from llmdsim.engine.kvcache.content import PLAIN, Content, Extra
from llmdsim.engine.kvcache.records import BlockHash, Cleared, ExtraKey, Record, Removed, Stored

__all__ = [
    "PLAIN",
    "BlockHash",
    "BlockTable",
    "Cleared",
    "Content",
    "Extra",
    "ExtraKey",
    "Hasher",
    "KvCache",
    "Record",
    "Removed",
    "Stored",
]
