"""The KV blocks of sequences: what they are given as they start and grow, and leave as they end."""

from __future__ import annotations

import sys
from array import array

from llmdsim.engine.kvcache import PLAIN, BlockTable, Content, KvCache
from llmdsim.engine.sequence import Sequence
from llmdsim.engine.stats import Stats


class Blocks:
    """Blocks are taken for a whole prompt when its sequence starts, and can be found by others from then on.

    A generated token is computed in the step after the one it came from, so the last one never is (vLLM 0.33,
    v1/core/sched/scheduler.py).
    """

    def __init__(self, cache: KvCache, stats: Stats) -> None:
        self.cache = cache
        self._stats = stats

    def start(self, sequence: Sequence) -> bool:
        """Give `sequence` blocks for all its tokens. Not if there are too few free ones; it has to wait then.

        One below its threshold is given none: it is not to run.
        """
        cache = self.cache
        table = sequence.table
        if table is None:
            # Its own copy, to which generated tokens are added.
            tokens = array("I", sequence.ask.prompt.tokens)
            table = sequence.table = BlockTable(tokens, content_of(sequence), sequence.reads_cache)
        found = cache.find(table)
        cached = len(found) * cache.block_size
        first = not sequence.preemptions
        if first:
            sequence.cached_tokens = cached
            threshold = sequence.cache_hit_threshold
            if threshold is not None and cached < threshold * sequence.prompt_tokens:
                self._count(sequence)
                return True
        if not cache.admit(table, found):
            return False
        if first:
            self._count(sequence)
        sequence.resident_tokens = cached
        if sequence.remote_prefill is None or not first:
            cache.store(table, len(table.tokens))
            self._plan(sequence)
        else:
            sequence.grows_at = 1  # when the blocks have been read
        self._stats.kv_cache_usage = cache.usage
        return True

    def grow(self, sequence: Sequence) -> bool:
        """Have blocks for the tokens that have been revealed. Not if there are too few free ones."""
        table = sequence.table
        assert table is not None
        self._note_tokens(sequence, table)
        cache = self.cache
        total = len(table.tokens)
        if not cache.extend(table, total):
            return False
        cache.store(table, total)
        self._plan(sequence)
        self._stats.kv_cache_usage = cache.usage
        return True

    def stop_growing(self, sequence: Sequence) -> None:
        """There is no room for it to grow, and nobody to take any from."""
        sequence.grows_at = sys.maxsize

    def leave(self, sequence: Sequence, complete: bool) -> None:
        """Take its blocks from `sequence`; with `complete` they are filled first, as far as there is room."""
        table = sequence.table
        if table is None or not table.blocks:
            return
        cache = self.cache
        if complete:
            computed = sequence.prompt_tokens + sequence.revealed - 1
            if computed // cache.block_size > table.stored:
                self._note_tokens(sequence, table)
                if not cache.extend(table, computed):
                    computed = len(table.blocks) * cache.block_size
                cache.store(table, computed)
        cache.release(table)
        self._stats.kv_cache_usage = cache.usage

    def _count(self, sequence: Sequence) -> None:
        assert sequence.table is not None
        if not self.cache.looks_up(sequence.table):
            return
        self._stats.prefix_cache_queries += sequence.prompt_tokens
        self._stats.prefix_cache_hits += sequence.cached_tokens

    def _plan(self, sequence: Sequence) -> None:
        """Have it grow when the tokens so far fill a block, and when the first one of the next comes."""
        size = self.cache.block_size
        filled = (sequence.prompt_tokens + sequence.revealed) % size
        sequence.grows_at = sequence.revealed + (size - filled if filled else 1)

    @staticmethod
    def _note_tokens(sequence: Sequence, table: BlockTable) -> None:
        known = len(table.tokens) - sequence.prompt_tokens
        if known < sequence.revealed:
            assert sequence.reply is not None
            table.tokens.extend(sequence.reply.ids(known, sequence.revealed))


def content_of(sequence: Sequence) -> Content:
    """What besides its tokens distinguishes the blocks of `sequence`."""
    adapter = sequence.adapter
    if adapter is None:
        if sequence.cache_salt is None and not sequence.media:
            return PLAIN
        return Content(salt=sequence.cache_salt, media=sequence.media)
    return Content((adapter.name, adapter.path), adapter.id, sequence.cache_salt, sequence.media)
