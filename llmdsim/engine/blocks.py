"""The KV blocks of sequences: what they are given as they start and grow, and leave as they end."""

from __future__ import annotations

import sys

from llmdsim.engine.adapters import Adapter
from llmdsim.engine.kvcache import PLAIN, Content, KvCache
from llmdsim.engine.sequence import Sequence
from llmdsim.engine.stats import Stats
from llmdsim.tokenization.prompt import WIDTH, MediaSpan


class Blocks:
    """Blocks are taken for a whole prompt when its sequence starts, and can be found by others from then on.

    A generated token is computed in the step after the one it came from, so the last one never is (vLLM 0.33,
    v1/core/sched/scheduler.py).
    """

    def __init__(self, cache: KvCache, stats: Stats) -> None:
        self.cache = cache
        self._stats = stats
        stats.pool = cache.pool

    def start(self, sequence: Sequence) -> bool:
        """Give `sequence` blocks for all its tokens. Not if there are too few free ones; it has to wait then.

        One below its threshold is given none: it is not to run.
        """
        cache = self.cache
        size = cache.block_size
        prompt = sequence.ask.prompt
        data = prompt.packed
        tokens = sequence.prompt_tokens
        if sequence.revealed:
            data = self._tokens(sequence, 0, tokens + sequence.revealed)
            tokens += sequence.revealed
        kind = PLAIN
        if sequence.adapter is not None or sequence.cache_salt is not None or prompt.media:
            kind = content(sequence.adapter, sequence.cache_salt, prompt.media)
        reads = cache.shares and sequence.reads_cache
        found = cache.find(data, kind) if reads else []
        here = cached = len(found) * size
        if cache.host is not None and reads:
            sequence.loaded_tokens = cache.hosted(data, kind, found) * size
            cached += sequence.loaded_tokens
        first = not sequence.preemptions
        if first:
            sequence.cached_tokens = cached
            threshold = sequence.cache_hit_threshold
            if threshold is not None and cached < threshold * tokens:
                if reads:
                    self._count(sequence, here)
                return True
        table = cache.admit(found, tokens, kind)
        if table is None:
            return False
        sequence.table = table
        sequence.resident_tokens = cached
        if first:
            if reads:
                self._count(sequence, here)
            if sequence.remote_prefill is not None:
                sequence.grows_at = 1  # when the blocks have been read
                return True
            if cache.shares:
                sequence.created_tokens = tokens - tokens % size - cached
        if tokens - here >= size:
            cache.store(table, data[here * WIDTH :])
        sequence.grows_at = sequence.revealed + (-tokens % size or 1)
        return True

    def grow(self, sequence: Sequence) -> bool:
        """Have blocks for the tokens that have been revealed. Not if there are too few free ones."""
        total = sequence.prompt_tokens + sequence.revealed
        if not self._fill(sequence, total):
            return False
        self._plan(sequence, total)
        return True

    def stop_growing(self, sequence: Sequence) -> None:
        """There is no room for it to grow, and nobody to take any from."""
        sequence.grows_at = sys.maxsize

    def leave(self, sequence: Sequence, complete: bool) -> None:
        """Take its blocks from `sequence`; with `complete` they are filled first, as far as there is room."""
        table = sequence.table
        if table is None:
            return
        cache = self.cache
        if complete:
            computed = sequence.prompt_tokens + sequence.revealed - 1
            reply = sequence.reply
            assert reply is not None
            if not sequence.preemptions:
                begin = sequence.ask.prompt.packed[len(table.blocks) * cache.block_size * WIDTH :]
                if cache.complete(table, computed, begin, reply):
                    sequence.table = None
                    return
            if not self._fill(sequence, computed):
                self._fill(sequence, (len(table.blocks) + table.room) * cache.block_size)
        cache.release(table)
        sequence.table = None

    def _count(self, sequence: Sequence, here: int) -> None:
        """Count a prompt that was looked up, of which so many tokens are here."""
        stats = self._stats
        stats.prefix_cache_lookups += 1
        stats.prefix_cache_queries += sequence.prompt_tokens
        stats.prefix_cache_hits += here
        if self.cache.host is not None:
            sequence.host_tokens = sequence.loaded_tokens
            stats.host.look_up(sequence.prompt_tokens - here, sequence.loaded_tokens)

    def _plan(self, sequence: Sequence, total: int) -> None:
        """Have it grow when its tokens, so many by now, fill a block, and when the next block begins."""
        sequence.grows_at = sequence.revealed + (-total % self.cache.block_size or 1)

    def _fill(self, sequence: Sequence, total: int) -> bool:
        """Have blocks for its first `total` tokens, and those be found that are full."""
        cache, table = self.cache, sequence.table
        assert table is not None
        if not cache.extend(table, total):
            return False
        stored = len(table.blocks) * cache.block_size
        if total - stored >= cache.block_size:
            cache.store(table, self._tokens(sequence, stored, total))
        return True

    @staticmethod
    def _tokens(sequence: Sequence, start: int, stop: int) -> bytes:
        """Those tokens of its prompt and of what has been revealed."""
        prompt = sequence.prompt_tokens
        if stop <= prompt:
            return sequence.ask.prompt.packed[start * WIDTH : stop * WIDTH]
        reply = sequence.reply
        assert reply is not None
        if start >= prompt:
            return reply.packed(start - prompt, stop - prompt)
        return sequence.ask.prompt.packed[start * WIDTH :] + reply.packed(0, stop - prompt)


def content(adapter: Adapter | None, salt: str | None, media: tuple[MediaSpan, ...]) -> Content:
    """What besides its tokens distinguishes the blocks of a prompt."""
    if adapter is None:
        if salt is None and not media:
            return PLAIN
        return Content(salt=salt, media=media)
    return Content((adapter.name, adapter.path), adapter.id, salt, media)
