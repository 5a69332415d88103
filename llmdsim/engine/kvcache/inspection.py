"""What the blocks of a cache hold, for whoever wants to see it."""

from __future__ import annotations

from collections.abc import Generator, Hashable
from typing import Any, NamedTuple

from llmdsim.engine.kvcache.pool import Block, Pool
from llmdsim.engine.kvcache.records import BlockHash

#: Blocks that are looked at in half a millisecond, in passing and closely.
BLOCKS_AT_ONCE = 2000
ROWS_AT_ONCE = 200


class Seen(NamedTuple):
    """A block that can be found.

    `parent` is the number of the block before it in its prompt, None for the first, and `depth` how many
    there are. `adapter` and `salt` are those of the prompt. What the engine changed meanwhile is None.
    """

    number: int
    refs: int
    hash: BlockHash | None
    parent: int | None
    depth: int | None
    adapter: str | None
    salt: str | None


class Inspection:
    """Looks at the blocks of `pool` in steps, between which the engine may go on."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._by_chain: dict[Hashable, Block] = {}
        #: By chain: depth, and what distinguishes the prompt.
        self._places: dict[int, tuple[int, Any]] = {}

    def rows(self, offset: int, limit: int) -> Generator[None, None, tuple[list[Seen], int | None]]:
        """Of all blocks that can be found so many, after `offset` others; and the next offset, if any."""
        blocks = self._pool.blocks()
        for start in range(0, len(blocks), BLOCKS_AT_ONCE):
            for block in blocks[start : start + BLOCKS_AT_ONCE]:
                self._by_chain.setdefault(block.chain, block)
            if len(blocks) > BLOCKS_AT_ONCE:
                yield
        rows: list[Seen] = []
        for block in blocks[offset : offset + limit]:
            rows.append(self._seen(block))
            if len(rows) % ROWS_AT_ONCE == 0:
                yield
        end = offset + len(rows)
        return rows, end if end < len(blocks) else None

    def _seen(self, block: Block) -> Seen:
        depth, (adapter, salt) = self._place(block) or (None, (None, None))
        parent = self._by_chain.get(block.key[0])
        above = None if parent is None else parent.number
        name = None if adapter is None else adapter[0]
        return Seen(block.number, block.refs, block.hash, above, depth, name, salt)

    def _place(self, block: Block) -> tuple[int, Any] | None:
        """How deep it is, and what distinguishes its prompt."""
        below: list[int] = []
        while (place := self._places.get(block.chain)) is None:
            below.append(block.chain)
            prefix = block.key[0]
            if not isinstance(prefix, int):
                place = (-1, prefix)
                break
            parent = self._by_chain.get(prefix)
            if parent is None or parent.chain != prefix:
                return None
            block = parent
        depth, root = place
        for chain in reversed(below):
            depth += 1
            self._places[chain] = (depth, root)
        return depth, root
