"""Replies from a file: an SQLite table of what was once said to which prompt."""

from llmdsim.reply.dataset.digest import digest, prompt_digest
from llmdsim.reply.dataset.file import Dataset, DatasetError, DatasetInUse

__all__ = ["Dataset", "DatasetError", "DatasetInUse", "digest", "prompt_digest"]
