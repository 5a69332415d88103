"""The block pool: how many blocks are free, which can be found, and in which order they are given up."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from itertools import chain

from llmdsim.engine.kvcache.records import BlockHash

#: What a block is found by: its prefix, its tokens and, where the prompt has media, those in it. The prefix
#: is the chain number of the block before or, at the start of a prompt, what distinguishes that prompt.
Key = tuple[Hashable, ...]


class Block:
    """A block that can be found by its `key`; `number` is from 1, and `refs` sequences hold it.

    Blocks of equal content have equal `chain`s, and no others. `hash` is what it is announced by, where
    blocks are announced.
    """

    __slots__ = ("chain", "hash", "key", "number", "refs", "twin")

    def __init__(self, number: int) -> None:
        self.number = number
        self.refs = 0
        self.key: Key = ()
        self.chain = 0
        self.hash: BlockHash | None = None
        #: Whether there is, or was, another one of this content.
        self.twin = False


class Pool:
    """`total` blocks (vLLM 0.33, v1/core/block_pool.py, whose null block is not one of them).

    A block without content is as good as any other, so they are only counted. Free ones are taken first; when
    there are none, blocks that can be found give up what they hold, the one first that has been free longest.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        #: Blocks that some sequence holds, with content or without.
        self.used = 0
        self.cached: dict[Key, Block] = {}
        #: Free blocks without content, and free ones with it, the next to give it up first.
        self._blank = total
        self._idle: OrderedDict[Block, None] = OrderedDict()
        #: Further blocks of the same content, in the order in which they were filled.
        self._twins: dict[Key, list[Block]] = {}
        #: Blocks that gave up what they held, to be filled anew, and how many there ever were.
        self._empty: list[Block] = []
        self._made = 0
        self._chains = 0

    @property
    def free(self) -> int:
        """Blocks that no sequence holds."""
        return self.total - self.used

    @property
    def usage(self) -> float:
        """The part of all blocks that sequences hold, 0 to 1."""
        return self.used / self.total

    def blocks(self) -> list[Block]:
        """All blocks that can be found, those of equal content last."""
        return [*self.cached.values(), *chain.from_iterable(self._twins.values())]

    def admit(self, found: Sequence[Block], blocks: int) -> Sequence[Block] | None:
        """Have one more sequence hold each of `found`, and reserve so many others for it.

        Returns those that gave up what they held; None, and nothing happens, where there are too few.
        """
        idle = 0
        for block in found:
            if not block.refs:
                idle += 1
        if blocks + idle > self.total - self.used:
            return None
        for block in found:
            if not block.refs:
                del self._idle[block]
            block.refs += 1
        self.used += idle
        return self.reserve(blocks)

    def reserve(self, blocks: int) -> Sequence[Block]:
        """Take so many blocks, of which there are as many free; returns those that gave up what they held."""
        self.used += blocks
        self._blank -= blocks
        if self._blank >= 0:
            return ()
        pop, cached = self._idle.popitem, self.cached
        given_up = []
        for _ in range(-self._blank):
            block, _ = pop(False)
            if block.twin:
                self._forget(block)
            else:
                del cached[block.key]
            given_up.append(block)
        self._blank = 0
        self._empty += given_up
        return given_up

    def fill(self, key: Key, chain: int | None = None) -> Block:
        """Have a block that was reserved be found by `key`; `chain` is that of a copy elsewhere, if any."""
        if self._empty:
            block = self._empty.pop()
        else:
            self._made += 1
            block = Block(self._made)
        block.key = key
        block.refs = 1
        first = self.cached.setdefault(key, block)
        if first is not block:
            block.chain = first.chain
            self._add_twin(first, block)
        elif chain is not None:
            block.chain = chain
        else:
            self._chains += 1
            block.chain = self._chains
        return block

    def _add_twin(self, first: Block, block: Block) -> None:
        first.twin = block.twin = True
        self._twins.setdefault(block.key, []).append(block)

    def let_go(self, blocks: Sequence[Block], reserved: int) -> None:
        """One sequence less holds each of `blocks`, the last of which goes first, and `reserved` others."""
        idle = self._idle
        self._blank += reserved
        for block in reversed(blocks):
            block.refs -= 1
            if not block.refs:
                idle[block] = None
                reserved += 1
        self.used -= reserved

    def clear(self) -> None:
        """Forget all content; no block is held."""
        self._empty += reversed(self._idle)
        for block in self._idle:
            block.hash = None
            block.twin = False
        self._blank = self.total
        self.cached.clear()
        self._twins.clear()
        self._idle.clear()

    def _forget(self, block: Block) -> None:
        """Have one be found no more of which there are, or were, several of equal content."""
        block.twin = False
        twins = self._twins.get(block.key)
        if twins is None:
            del self.cached[block.key]
        elif self.cached[block.key] is block:
            self.cached[block.key] = twins.pop(0)
        else:
            twins.remove(block)
        if twins is not None and not twins:
            del self._twins[block.key]
