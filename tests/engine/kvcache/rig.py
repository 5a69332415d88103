"""Prompts for a cache, and a hasher whose hashes say what they stand for."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from llmdsim.engine.kvcache import PLAIN, BlockHash, BlockTable, Content, Extra, KvCache, Record
from llmdsim.engine.kvcache.offload import HostTier
from llmdsim.engine.kvcache.pool import Block, Pool
from llmdsim.tokenization.prompt import WIDTH

#: Tokens in a block, unless a test says something else.
SIZE = 4


class SpelledOut:
    """Hashes that are what they were made from, so that equal ones are of equal content."""

    def root(self, adapter: str | None) -> BlockHash:
        return b"^" if adapter is None else b"^" + adapter.encode()

    def block(self, parent: BlockHash, tokens: array[int], extra: Extra | None) -> BlockHash:
        assert isinstance(parent, bytes)
        return parent + repr((tokens.tolist(), extra)).encode()


class Table(BlockTable):
    """A sequence: its blocks, and the tokens that go into them."""

    def __init__(self, tokens: Iterable[int], content: Content = PLAIN, reads: bool = True) -> None:
        super().__init__(content, [], 0)
        self.tokens = array("I", tokens)
        self.reads = reads

    def __len__(self) -> int:
        """How many blocks it has."""
        return len(self.blocks) + self.room


class Cache(KvCache):
    """A cache that is told of sequences where it is told of tokens."""

    def look_up(self, table: Table) -> list[Block]:
        return self.find(table.tokens.tobytes(), table.content) if table.reads else []

    def look_up_host(self, table: Table, found: list[Block]) -> int:
        return self.hosted(table.tokens.tobytes(), table.content, found) if table.reads else 0

    def take_in(self, table: Table, found: list[Block]) -> bool:
        admitted = self.admit(found, len(table.tokens), table.content)
        if admitted is None:
            return False
        table.blocks, table.room = admitted.blocks, admitted.room
        self._latest = table
        return True

    def keep(self, table: Table, tokens: int) -> None:
        """Have the blocks be found that the first so many tokens fill."""
        stored = len(table.blocks) * self.block_size
        self.store(table, table.tokens[stored : max(tokens, stored)].tobytes())


def cache(
    blocks: int = 100, size: int = SIZE, shares: bool = True, events: bool = True, host: int = 0
) -> Cache:
    tier = HostTier(host) if host else None
    return Cache(Pool(blocks), size, shares, SpelledOut() if events else None, tier)


def table(tokens: Iterable[int], content: Content = PLAIN, reads: bool = True) -> Table:
    return Table(tokens, content, reads)


def start(cache: Cache, tokens: Iterable[int], content: Content = PLAIN, reads: bool = True) -> Table:
    """A sequence that is admitted, and whose prompt is computed at once."""
    new = table(tokens, content, reads)
    assert cache.take_in(new, cache.look_up(new))
    cache.keep(new, len(new.tokens))
    return new


def generate(cache: Cache, table: Table, tokens: Iterable[int]) -> bool:
    """Whether there was room for more tokens, of which all but the last are computed."""
    table.tokens.extend(tokens)
    room = cache.extend(table, len(table.tokens))
    if room:
        cache.keep(table, len(table.tokens) - 1)
    return room


def run(cache: Cache, tokens: Iterable[int], content: Content = PLAIN) -> list[int]:
    """The numbers of the full blocks of a sequence that comes and goes."""
    gone = start(cache, tokens, content)
    numbers = numbered(gone.blocks)
    cache.release(gone)
    return numbers


def told(cache: KvCache) -> list[Record]:
    """What has been told since the last time."""
    records, cache.records = cache.records, []
    return records


def numbered(blocks: Iterable[Block]) -> list[int]:
    return [block.number for block in blocks]


def hit(cache: Cache, tokens: Iterable[int], content: Content = PLAIN, reads: bool = True) -> list[int]:
    """The numbers of the blocks that would be found."""
    return numbered(cache.look_up(table(tokens, content, reads)))


class Said:
    """Tokens of a reply."""

    def __init__(self, tokens: bytes) -> None:
        self.tokens = tokens

    def packed(self, start: int, stop: int) -> bytes:
        return self.tokens[start * WIDTH : stop * WIDTH]


def end(cache: Cache, table: Table, tokens: list[int]) -> bool:
    """Have a sequence end that says `tokens` at once, unless its blocks cannot be promised."""
    prompt = table.tokens.tobytes()
    said = array("I", tokens)
    begin = prompt[len(table.blocks) * cache.block_size * WIDTH :]
    computed = len(table.tokens) + len(tokens) - 1
    if not cache.complete(table, computed, begin, Said(said.tobytes())):
        return False
    table.tokens += said
    table.blocks, table.room = [], 0
    return True
