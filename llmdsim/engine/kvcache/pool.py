"""The block pool: how many blocks are free, which can be found, and in which order they are given up."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from itertools import chain
from typing import Protocol

from llmdsim.engine.kvcache.records import BlockHash

#: What a block is found by: its prefix, its tokens and, where the prompt has media, those in it. The prefix
#: is the chain number of the block before or, at the start of a prompt, what distinguishes that prompt.
Key = tuple[Hashable, ...]


class Block:
    """A block that can be found by its `key`; `number` is from 1, and `refs` sequences hold it.

    Blocks of equal content have equal `chain`s, and no others. `hash` is what it is announced by, where
    blocks are announced.
    """

    __slots__ = ("chain", "hash", "key", "number", "promise", "refs", "twin")

    def __init__(self, number: int) -> None:
        self.number = number
        self.refs = 0
        self.key: Key = ()
        self.chain = 0
        self.hash: BlockHash | None = None
        #: Whether there is, or was, another one of this content.
        self.twin = False
        #: What it was made for, in whose place in the queue of free blocks it stands.
        self.promise: Promise | None = None


class Tokens(Protocol):
    """Something that has tokens."""

    def packed(self, start: int, stop: int) -> bytes:
        """Those from `start` to `stop`, as the bytes of an array of them."""


class Promise:
    """The last `left` blocks of a sequence that has ended, which nobody has looked for: none is made yet.

    They follow `chain`, and hold the tokens of `begin` and, behind these, those of `rest`. Those that had to
    be made in the end are `blocks`.
    """

    __slots__ = ("begin", "blocks", "chain", "left", "rest")

    def __init__(self, chain: Hashable, begin: bytes, rest: Tokens, left: int) -> None:
        self.chain = chain
        self.begin = begin
        self.rest = rest
        self.left = left
        self.blocks: list[Block] | None = None


class Pool:
    """`total` blocks (vLLM 0.33, v1/core/block_pool.py, whose null block is not one of them).

    A block without content is as good as any other, so they are only counted. Free ones are taken first; when
    there are none, blocks that can be found give up what they hold, the one first that has been free longest.

    Most of what replies fill is given up before anybody looks for it. So it may be `promised` until somebody
    does, who has to `keep` the promise.
    """

    #: Whether blocks may be promised.
    promises = True

    def __init__(self, total: int) -> None:
        self.total = total
        #: Blocks that some sequence holds, with content or without.
        self.used = 0
        self.cached: dict[Key, Block] = {}
        #: By the chain that they follow, in the order in which they were made.
        self.promised: dict[Hashable, dict[Promise, None]] = {}
        #: Free blocks without content, and free ones with it, the next to give it up first.
        self._blank = total
        self._idle: OrderedDict[Block | Promise, None] = OrderedDict()
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

    @property
    def findable(self) -> int:
        """Blocks that can be found, or will be when somebody looks."""
        promised = sum(promise.left for others in self.promised.values() for promise in others)
        return promised + len(self.cached) + sum(map(len, self._twins.values()))

    def blocks(self) -> list[Block]:
        """All blocks that can be found but those that are promised, those of equal content last."""
        return [*self.cached.values(), *chain.from_iterable(self._twins.values())]

    def admit(self, found: Sequence[Block], blocks: int) -> Sequence[Block] | None:
        """Have one more sequence hold each of `found`, and reserve so many others for it.

        Returns those that gave up what they held; None, and nothing happens, where there are too few.
        """
        free = self.free - blocks
        if free < len(found) and free < sum(not block.refs for block in found):
            return None
        for block in found:
            if not block.refs:
                self.used += 1
                if block.promise is None:
                    del self._idle[block]
                else:
                    self._take_out(block, block.promise)
            block.refs += 1
        return self.reserve(blocks)

    def _take_out(self, block: Block, promise: Promise) -> None:
        """Have a block that was promised be in the queue no more."""
        blocks = promise.blocks
        assert blocks is not None
        block.promise = None
        blocks.remove(block)
        if not blocks:
            del self._idle[promise]

    def reserve(self, blocks: int) -> Sequence[Block]:
        """Take so many blocks, of which there are as many free; returns those that gave up what they held."""
        self.used += blocks
        blank = self._blank - blocks
        if blank >= 0:
            self._blank = blank
            return ()
        self._blank, missing = 0, -blank
        given_up: list[Block] = []
        pop, cached = self._idle.popitem, self.cached
        while missing:
            first, _ = pop(False)
            if isinstance(first, Promise):
                missing -= self._break(first, missing, given_up)
                continue
            missing -= 1
            if first.twin:
                self._forget(first)
            else:
                del cached[first.key]
            given_up.append(first)
        self._empty += given_up
        return given_up

    def _break(self, promise: Promise, most: int, given_up: list[Block]) -> int:
        """Give up that many blocks that were promised, the last ones first, or all; returns how many."""
        blocks = promise.blocks
        if blocks is not None:
            broken = min(most, len(blocks))
            for _ in range(broken):
                block = blocks.pop()
                block.promise = None
                self._forget(block)
                given_up.append(block)
            left = len(blocks)
        else:
            broken = min(most, promise.left)
            promise.left = left = promise.left - broken
            if not left:
                others = self.promised[promise.chain]
                del others[promise]
                if not others:
                    del self.promised[promise.chain]
        if left:
            self._idle[promise] = None
            self._idle.move_to_end(promise, last=False)
        return broken

    def promise(self, promise: Promise) -> None:
        """Let go of reserved blocks, as many as are promised."""
        self.used -= promise.left
        self._idle[promise] = None
        self.promised.setdefault(promise.chain, {})[promise] = None

    def keep(self, promise: Promise, key: Key) -> Block:
        """Make the next one of the blocks that were promised, which is found by `key` then."""
        block = self.fill(key)
        block.refs = 0
        block.promise = promise
        if promise.blocks is None:
            promise.blocks = []
        promise.blocks.append(block)
        return block

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
        blocks = self.blocks()
        for block in blocks:
            block.hash = None
            block.twin = False
            block.promise = None
        self._empty += blocks
        self._blank = self.total
        self.cached.clear()
        self.promised.clear()
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
