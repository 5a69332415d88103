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

    __slots__ = ("chain", "hash", "key", "number", "refs", "sample")

    def __init__(self, number: int) -> None:
        self.number = number
        self.refs = 1
        self.key: Key | None = None
        self.chain = 0
        self.hash: BlockHash | None = None
        #: What is measured of it, for the few of which that is.
        self.sample: object | None = None


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
        #: Free blocks in the order in which they are taken. Numbers of those without content, the next to be
        #: taken last; the first number never taken; numbers of those whose content was forgotten, the next to
        #: be taken last; and those with content.
        self._spare: list[int] = []
        self._fresh = 1
        self._worn: list[int] = []
        self._idle: OrderedDict[Block, None] = OrderedDict()
        self._chains = count(1)

    @property
    def free(self) -> int:
        """Blocks that no sequence holds."""
        return self.total - self.used

    def find(self, key: Key) -> Block | None:
        """The block of that content, the one filled first if there are several."""
        return self._cached.get(key)

    def take(self) -> tuple[Block, Block | None]:
        """A block to be filled, and the one whose content was given up for it; there is a free one."""
        self.used += 1
        if self._spare:
            return Block(self._spare.pop()), None
        if self._fresh <= self.total:
            self._fresh += 1
            return Block(self._fresh - 1), None
        if self._worn:
            return Block(self._worn.pop()), None
        given_up, _ = self._idle.popitem(last=False)
        self._forget(given_up)
        return Block(given_up.number), given_up

    def hold(self, block: Block) -> None:
        """One more sequence holds `block`, which was found."""
        if not block.refs:
            del self._idle[block]
            self.used += 1
        block.refs += 1

    def let_go(self, blocks: Sequence[Block]) -> None:
        """One sequence less holds each of `blocks`, of which the last will be taken before the first."""
        idle = self._idle
        spare: list[int] = []
        for block in reversed(blocks):
            block.refs -= 1
            if block.refs:
                continue
            self.used -= 1
            if block.key is None:
                spare.append(block.number)
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
        self._worn = [block.number for block in reversed(self._idle)] + self._worn
        self._cached.clear()
        self._twins.clear()
        self._idle.clear()

    def _forget(self, block: Block) -> None:
        key = block.key
        assert key is not None
        twins = self._twins.get(key)
        if self._cached[key] is not block:
            assert twins is not None
            twins.remove(block)
        elif twins:
            self._cached[key] = twins.pop(0)
        else:
            del self._cached[key]
        if not twins:
            self._twins.pop(key, None)
