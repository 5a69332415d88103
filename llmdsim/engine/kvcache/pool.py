"""The block pool: which blocks are free, in which order they are taken, and which can be found."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from itertools import count

from llmdsim.engine.kvcache.records import BlockHash

#: What a block is found by: its prefix, its tokens and the media in it. The prefix is the chain number of the
#: block before or, at the start of a prompt, what distinguishes that prompt.
Key = tuple[Hashable, ...]


class Block:
    """Room for one block's tokens; `number` is from 1.

    `refs` sequences hold it. With a `key` it can be found; blocks of equal content have equal `chain`s
    then, and no others. `hash` is what it is announced by, where blocks are announced.
    """

    __slots__ = ("chain", "hash", "key", "number", "refs")

    def __init__(self, number: int) -> None:
        self.number = number
        self.refs = 0
        self.key: Key | None = None
        self.chain = 0
        self.hash: BlockHash | None = None


class Pool:
    """`total` blocks (vLLM 0.33, v1/core/block_pool.py, whose null block is not one of them).

    Free blocks that can be found wait in the order in which they became free, and are taken, the oldest
    first, when there are no others.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        #: Blocks that some sequence holds.
        self.used = 0
        self._cached: dict[Key, Block] = {}
        #: Further blocks of the same content, in the order in which they were filled.
        self._twins: dict[Key, list[Block]] = {}
        #: Free blocks in the order in which they are taken: those without content, the next one last; those
        #: from this number on, which are made as they are taken, since there may be millions; those whose
        #: content was forgotten, the next one last; and those with content.
        self._spare: list[Block] = []
        self._fresh = 1
        self._worn: list[Block] = []
        self._idle: OrderedDict[Block, None] = OrderedDict()
        self._chains = count(1)

    @property
    def free(self) -> int:
        """Blocks that no sequence holds."""
        return self.total - self.used

    def find(self, key: Key) -> Block | None:
        """The block of that content, the one filled first if there are several."""
        return self._cached.get(key)

    def take(self, blocks: int) -> tuple[list[Block], list[BlockHash]]:
        """So many blocks to be filled, of which there are as many free, and the hashes of what they held."""
        self.used += blocks
        spare = self._spare
        taken = spare[: -blocks - 1 : -1]
        del spare[len(spare) - len(taken) :]
        if (missing := blocks - len(taken)) and self._fresh <= self.total:
            fresh = range(self._fresh, min(self._fresh + missing, self.total + 1))
            taken += map(Block, fresh)
            self._fresh = fresh.stop
        given_up: list[BlockHash] = []
        while len(taken) < blocks:
            if self._worn:
                block = self._worn.pop()
            else:
                block, _ = self._idle.popitem(last=False)
                self._forget(block)
                if block.hash is not None:
                    given_up.append(block.hash)
            block.key = block.hash = None
            taken.append(block)
        for block in taken:
            block.refs = 1
        return taken, given_up

    def hold(self, block: Block) -> None:
        """One more sequence holds `block`, which was found."""
        if not block.refs:
            del self._idle[block]
            self.used += 1
        block.refs += 1

    def let_go(self, blocks: Sequence[Block]) -> None:
        """One sequence less holds each of `blocks`, of which the last will be taken before the first."""
        idle = self._idle
        spare: list[Block] = []
        for block in reversed(blocks):
            block.refs -= 1
            if block.refs:
                continue
            self.used -= 1
            if block.key is None:
                spare.append(block)
            else:
                idle[block] = None
        self._spare += reversed(spare)

    def fill(self, block: Block, key: Key) -> Block | None:
        """Have `block` be found by `key`; returns the one that already is, if any."""
        block.key = key
        first = self._cached.get(key)
        if first is None:
            block.chain = next(self._chains)
            self._cached[key] = block
        else:
            block.chain = first.chain
            self._twins.setdefault(key, []).append(block)
        return first

    def clear(self) -> None:
        """Forget all content; no block is held. The order in which blocks are taken stays as it is."""
        self._worn = [*reversed(self._idle), *self._worn]
        self._cached.clear()
        self._twins.clear()
        self._idle.clear()

    def _forget(self, block: Block) -> None:
        key = block.key
        assert key is not None
        twins = self._twins.get(key) if self._twins else None
        if twins is None:
            del self._cached[key]
            return
        if self._cached[key] is block:
            self._cached[key] = twins.pop(0)
        else:
            twins.remove(block)
        if not twins:
            del self._twins[key]
