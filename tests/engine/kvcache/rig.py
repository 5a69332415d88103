"""Prompts for a cache, and a hasher whose hashes say what they stand for."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from llmdsim.engine.kvcache import PLAIN, BlockHash, BlockTable, Content, Extra, KvCache
from llmdsim.engine.kvcache.pool import Block

#: Tokens in a block, unless a test says something else.
SIZE = 4


class SpelledOut:
    """Hashes that are what they were made from, so that equal ones are of equal content."""

    def root(self, adapter: str | None) -> BlockHash:
        return b"^" if adapter is None else b"^" + adapter.encode()

    def block(self, parent: BlockHash, tokens: array[int], extra: Extra | None) -> BlockHash:
        assert isinstance(parent, bytes)
        return parent + repr((tokens.tolist(), extra)).encode()


def cache(blocks: int = 100, size: int = SIZE, shares: bool = True, events: bool = True) -> KvCache:
    return KvCache(blocks, size, shares, SpelledOut() if events else None)


def table(tokens: Iterable[int], content: Content = PLAIN, reads: bool = True) -> BlockTable:
    return BlockTable(array("I", tokens), content, reads)


def start(cache: KvCache, tokens: Iterable[int], content: Content = PLAIN, reads: bool = True) -> BlockTable:
    """A sequence that is admitted, and whose prompt is computed at once."""
    new = table(tokens, content, reads)
    assert cache.admit(new, cache.find(new))
    cache.store(new, len(new.tokens))
    return new


def generate(cache: KvCache, table: BlockTable, tokens: Iterable[int]) -> bool:
    """Whether there was room for more tokens, of which all but the last are computed."""
    table.tokens.extend(tokens)
    room = cache.extend(table, len(table.tokens))
    if room:
        cache.store(table, len(table.tokens) - 1)
    return room


def run(cache: KvCache, tokens: Iterable[int], content: Content = PLAIN) -> list[int]:
    """The numbers of the blocks of a sequence that comes and goes."""
    gone = start(cache, tokens, content)
    numbers = numbered(gone.blocks)
    cache.release(gone)
    return numbers


def numbered(blocks: Sequence[Block]) -> list[int]:
    return [block.number for block in blocks]


def hit(cache: KvCache, tokens: Iterable[int], content: Content = PLAIN, reads: bool = True) -> list[int]:
    """The numbers of the blocks that would be found."""
    return numbered(cache.find(table(tokens, content, reads)))
