"""The KV cache of one engine: it gives sequences blocks, and finds for them what others have filled."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence
from typing import Protocol

from llmdsim.engine.kvcache.content import PLAIN, Content, Extra
from llmdsim.engine.kvcache.pool import Block, Key, Pool
from llmdsim.engine.kvcache.records import BlockHash, Cleared, ExtraKey, Record, Removed, Stored

#: Bytes of a token's id in an array of them.
WIDTH = array("I").itemsize


class Hasher(Protocol):
    """Names blocks by what they hold."""

    def root(self, adapter: str | None) -> BlockHash:
        """What stands for the parent of a prompt's first block; `adapter` is None for the base model."""

    def block(self, parent: BlockHash, tokens: array[int], extra: Extra | None) -> BlockHash:
        """The hash of a block."""


class BlockTable:
    """The blocks of one sequence, and the tokens that go into them: its prompt's and those generated so far.

    The first `stored` blocks can be found by others. With `reads` off, as for a prompt whose log
    probabilities are wanted, none of them is looked for.
    """

    __slots__ = ("blocks", "content", "reads", "stored", "tokens")

    def __init__(self, tokens: array[int], content: Content = PLAIN, reads: bool = True) -> None:
        self.tokens = tokens
        self.content = content
        self.reads = reads
        self.blocks: list[Block] = []
        self.stored = 0


class KvCache:
    """`blocks` blocks of `block_size` tokens (vLLM 0.33, v1/core/kv_cache_manager.py).

    A block that is full can be found, if `shares`, as long as it is not taken for something else. With a
    `hasher`, what happens to blocks is noted in `records`, for somebody to take away. `pool` is of so many
    blocks, where a plain one will not do.
    """

    def __init__(
        self,
        blocks: int,
        block_size: int,
        shares: bool = True,
        hasher: Hasher | None = None,
        pool: Pool | None = None,
    ) -> None:
        self.pool = Pool(blocks) if pool is None else pool
        self.block_size = block_size
        self.records: list[Record] = []
        self._shares = shares
        self._hasher = hasher

    @property
    def usage(self) -> float:
        """The part of all blocks that sequences hold, 0 to 1."""
        return self.pool.used / self.pool.total

    def looks_up(self, table: BlockTable) -> bool:
        """Whether blocks are looked for at all."""
        return self._shares and table.reads

    def find(self, table: BlockTable) -> list[Block]:
        """The blocks with which the table's tokens begin, at most all but the last token of them."""
        if not self.looks_up(table):
            return []
        tokens, content, size = table.tokens, table.content, self.block_size
        media = content.media
        find = self.pool.find
        width = size * WIDTH
        most = (len(tokens) - 1) // size * width
        data = memoryview(tokens)[: most // WIDTH].tobytes() if most > 0 else b""
        found: list[Block] = []
        chain: Hashable = content.root
        for start in range(0, most, width):
            key: Key = (chain, data[start : start + width])
            if media:
                first = start // WIDTH
                key += content.media_of(first, first + size)
            block = find(key)
            if block is None:
                break
            found.append(block)
            chain = block.chain
        return found

    def admit(self, table: BlockTable, found: Sequence[Block]) -> bool:
        """Give the table, which has no blocks, those `found` for it and others for the rest of its tokens.

        Not if there are too few; nothing happens then.
        """
        pool = self.pool
        missing = -(-len(table.tokens) // self.block_size) - len(found)
        idle = sum([not block.refs for block in found])
        if missing + idle > pool.free:
            return False
        for block in found:
            pool.hold(block)
        table.blocks = [*found, *self._take(missing)]
        table.stored = len(found)
        return True

    def extend(self, table: BlockTable, tokens: int) -> bool:
        """Have blocks in the table for so many tokens. Not if there are too few; nothing happens then."""
        missing = -(-tokens // self.block_size) - len(table.blocks)
        if missing > self.pool.free:
            return False
        if missing > 0:
            table.blocks += self._take(missing)
        return True

    def store(self, table: BlockTable, tokens: int) -> None:
        """Have the blocks be found that the first so many of the table's tokens fill."""
        size = self.block_size
        start, stop = table.stored, tokens // size
        if stop <= start or not self._shares:
            return
        content, blocks = table.content, table.blocks
        chain: Hashable = blocks[start - 1].chain if start else content.root
        data = memoryview(table.tokens)[start * size : stop * size].tobytes()
        width = size * WIDTH
        hasher = self._hasher
        for index in range(start, stop):
            block = blocks[index]
            at = (index - start) * width
            key: Key = (chain, data[at : at + width])
            if content.media:
                key += content.media_of(index * size, (index + 1) * size)
            first = self.pool.fill(block, key)
            chain = block.chain
            if hasher is not None:
                block.hash = self._hash(hasher, table, index) if first is None else first.hash
        table.stored = stop
        if hasher is not None:
            self._note(table, start, stop)

    def release(self, table: BlockTable) -> None:
        """Take all blocks from the table; its last ones will be given up before its first ones."""
        self.pool.let_go(table.blocks)
        table.blocks = []
        table.stored = 0

    def clear(self) -> bool:
        """Forget what blocks held; not while any are held."""
        if self.pool.used:
            return False
        self.pool.clear()
        if self._hasher is not None:
            self.records.append(Cleared())
        return True

    def _take(self, blocks: int) -> list[Block]:
        taken, given_up = self.pool.take(blocks)
        self.records += map(Removed, given_up)
        return taken

    def _hash(self, hasher: Hasher, table: BlockTable, index: int) -> BlockHash:
        content, size = table.content, self.block_size
        start, stop = index * size, (index + 1) * size
        parent = table.blocks[index - 1].hash if index else None
        if parent is None:
            parent = hasher.root(content.adapter[0] if content.adapter is not None else None)
        return hasher.block(parent, table.tokens[start:stop], content.extra(start, stop))

    def _note(self, table: BlockTable, start: int, stop: int) -> None:
        content, size, blocks = table.content, self.block_size, table.blocks
        hashes = [block.hash for block in blocks[start:stop] if block.hash is not None]
        extras = [_shown(content.extra(at, at + size)) for at in range(start * size, stop * size, size)]
        self.records.append(
            Stored(
                hashes,
                blocks[start - 1].hash if start else None,
                table.tokens[start * size : stop * size],
                size,
                content.lora_id,
                content.adapter[0] if content.adapter is not None else None,
                extras if any(extras) else None,
            )
        )


def _shown(extra: Extra | None) -> tuple[ExtraKey, ...] | None:
    """A block's extra keys as events tell them (vLLM)."""
    if extra is None:
        return None
    keys: list[ExtraKey] = [] if extra.adapter is None else [extra.adapter[0]]
    keys += extra.media
    if extra.salt is not None:
        keys.append(extra.salt)
    return tuple(keys)
