"""The KV cache of one engine: it gives sequences blocks, and finds for them what others have filled."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterator, Sequence
from typing import Protocol

from llmdsim.engine.kvcache.content import PLAIN, Content, Extra
from llmdsim.engine.kvcache.offload import HostTier
from llmdsim.engine.kvcache.pool import Block, Key, Pool, Promise, Tokens
from llmdsim.engine.kvcache.records import CPU, GPU, BlockHash, Cleared, ExtraKey, Record, Removed, Stored
from llmdsim.tokenization.prompt import WIDTH

#: So many of one chain are kept in some milliseconds.
MOST_PROMISES = 1024


class Hasher(Protocol):
    """Names blocks by what they hold."""

    def root(self, adapter: str | None) -> BlockHash:
        """What stands for the parent of a prompt's first block; `adapter` is None for the base model."""

    def block(self, parent: BlockHash, tokens: array[int], extra: Extra | None) -> BlockHash:
        """The hash of a block."""


class BlockTable:
    """The blocks of one sequence: `blocks` that others can find, and `room` further ones."""

    __slots__ = ("blocks", "content", "room")

    def __init__(self, content: Content, blocks: list[Block], room: int) -> None:
        self.content = content
        self.blocks = blocks
        self.room = room


class KvCache:
    """Blocks of `block_size` tokens (vLLM 0.33, v1/core/kv_cache_manager.py).

    A block that is full can be found, if `shares`, as long as it is not taken for something else. With a
    `hasher`, what happens to blocks is noted in `records`, for somebody to take away. While there is nobody,
    `announces` is off: blocks stay without hashes, which cost more than all the rest, and are told of when
    something is built on them later. With a `host` tier, those that are full are copied there at once.
    Tokens are given as bytes, those of an `array("I")` of their ids.
    """

    def __init__(
        self,
        pool: Pool,
        block_size: int,
        shares: bool = True,
        hasher: Hasher | None = None,
        host: HostTier | None = None,
    ) -> None:
        self.pool = pool
        self.host = host
        self.block_size = block_size
        self.shares = shares
        self.records: list[Record] = []
        self.announces = hasher is not None
        #: Whether there was something to tell, and nobody to hear it.
        self.missed = False
        self._hasher = hasher
        self._width = block_size * WIDTH
        self._most_promises = MOST_PROMISES if shares and host is None and pool.promises else 0
        #: The table that was last given blocks.
        self._latest: BlockTable | None = None

    def find(self, tokens: bytes, content: Content) -> list[Block]:
        """The blocks with which these tokens begin, at most all but the last token of them."""
        found: list[Block] = []
        if not self.shares:
            return found
        width = self._width
        get, promised = self.pool.cached.get, self.pool.promised
        chain: Hashable = content.root
        for start in range(0, (len(tokens) - WIDTH) // width * width, width):
            if chain in promised:
                self._keep_promises(chain)
            piece = tokens[start : start + width]
            key: Key = self._key(chain, piece, content, len(found)) if content.media else (chain, piece)
            block = get(key)
            if block is None:
                break
            found.append(block)
            chain = block.chain
        return found

    def hosted(self, tokens: bytes, content: Content, found: list[Block]) -> int:
        """How many blocks the host has that follow those `found`, as `find` does."""
        if self.host is None or not self.shares:
            return 0
        width = self._width
        chain: Hashable = found[-1].chain if found else content.root
        known = len(found)
        for start in range(known * width, (len(tokens) - WIDTH) // width * width, width):
            copy = self.host.find(self._key(chain, tokens[start : start + width], content, known))
            if copy is None:
                break
            known += 1
            chain = copy.chain
        return known - len(found)

    def admit(self, found: list[Block], tokens: int, content: Content) -> BlockTable | None:
        """A table of the blocks `found` for a sequence, and of others for as many tokens in all.

        None if there are too few; nothing happens then.
        """
        missing = -(-tokens // self.block_size) - len(found)
        given_up = self.pool.admit(found, missing)
        if given_up is None:
            return None
        if given_up:
            self._note_removed(given_up)
        self._latest = table = BlockTable(content, found, missing)
        return table

    def extend(self, table: BlockTable, tokens: int) -> bool:
        """Have blocks in the table for so many tokens. Not if there are too few; nothing happens then."""
        missing = -(-tokens // self.block_size) - len(table.blocks) - table.room
        if missing > self.pool.free:
            return False
        if missing > 0:
            table.room += missing
            given_up = self.pool.reserve(missing)
            if given_up:
                self._note_removed(given_up)
        return True

    def store(self, table: BlockTable, tokens: bytes) -> None:
        """Have blocks be found that these tokens fill, which come after those of the blocks that are."""
        width = self._width
        end = len(tokens) // width * width
        if not end or not self.shares:
            return
        content, blocks, host = table.content, table.blocks, self.host
        fill, promised = self.pool.fill, self.pool.promised
        chain: Hashable = blocks[-1].chain if blocks else content.root
        for start in range(0, end, width):
            if chain in promised:
                self._keep_promises(chain)
            piece = tokens[start : start + width]
            key: Key = self._key(chain, piece, content, len(blocks)) if content.media else (chain, piece)
            # What follows a copy in the host does so still.
            copy = None if host is None else host.find(key)
            block = fill(key, None if copy is None else copy.chain)
            chain = block.chain
            blocks.append(block)
        table.room -= end // width
        if self.announces:
            self._name(table)
        else:
            self.missed = True
        if host is not None:
            self._copy(host, table)

    def release(self, table: BlockTable) -> None:
        """Take all blocks from the table; its last ones will be given up before its first ones."""
        self.pool.let_go(table.blocks, table.room)
        table.blocks = []
        table.room = 0

    def complete(self, table: BlockTable, tokens: int, begin: bytes, rest: Tokens) -> bool:
        """As `extend` by the tokens of `begin` and `rest`, up to so many in all, `store` and `release`.

        What is stored is only promised. Promises must be kept in the order of all that is stored, which is
        known only of the table that was last given blocks. False, and nothing happens, where that cannot be.
        """
        pool, size, blocks = self.pool, self.block_size, table.blocks
        stored, room = len(blocks), table.room
        full = tokens // size - stored
        missing = -(-tokens // size) - stored - room
        chain = blocks[-1].chain if blocks else table.content.root
        if (
            table is not self._latest
            or self.announces
            or table.content.media
            or not full
            or missing > pool.total - pool.used
            or len(pool.promised.get(chain, ())) >= self._most_promises
        ):
            return False
        if missing > 0:
            room += missing
            given_up = pool.reserve(missing)
            if given_up:
                self._note_removed(given_up)
        self.missed = True
        pool.promise(Promise(chain, begin, rest, full))
        pool.let_go(blocks, room - full)
        return True

    def keep_promises(self) -> Iterator[None]:
        """Make the blocks that are promised, those that follow one chain in a step."""
        for chain in list(self.pool.promised):
            self._keep_promises(chain)
            yield

    def _keep_promises(self, chain: Hashable) -> None:
        """Make those that are promised behind `chain`."""
        under_way = [self._made(chain)]
        while under_way:
            first = next(under_way[-1], None)
            if first is None:
                under_way.pop()
            else:
                under_way.append(self._made(first))

    def _made(self, chain: Hashable) -> Iterator[Hashable]:
        """Make those behind one chain; behind those that it gives others were promised before them."""
        width, promised = self._width, self.pool.promised
        for promise in promised.pop(chain, ()):
            tokens = promise.begin + promise.rest.packed(0, promise.left * self.block_size)
            last = chain
            for start in range(0, promise.left * width, width):
                if last in promised:
                    yield last
                last = self.pool.keep(promise, (last, tokens[start : start + width])).chain

    def clear(self) -> bool:
        """Forget what blocks held; not while any are held."""
        if self.pool.used:
            return False
        self.pool.clear()
        if self.host is not None:
            self.host.clear()
        if self.announces:
            self.records.append(Cleared())
        else:
            self.missed = True
        return True

    def _note_removed(self, blocks: Sequence[Block]) -> None:
        for block in blocks:
            if block.hash is not None:
                self.records.append(Removed(block.hash))
                block.hash = None

    def _copy(self, host: HostTier, table: BlockTable) -> None:
        known, kept, given_up = host.keep(table.blocks)
        self.records += [Removed(each, CPU) for each in given_up]
        if self.announces and kept > known:
            self._note(table, known, kept, CPU)

    def _key(self, chain: Hashable, tokens: bytes, content: Content, index: int) -> Key:
        media = self._media(content, index)
        return (chain, tokens, media) if media else (chain, tokens)

    def _media(self, content: Content, index: int) -> tuple[tuple[str, int], ...]:
        return content.media_of(index * self.block_size, (index + 1) * self.block_size)

    def _extra(self, content: Content, index: int) -> Extra | None:
        if content is PLAIN:
            return None
        return content.extra(index * self.block_size, (index + 1) * self.block_size)

    def _name(self, table: BlockTable) -> None:
        """Give those of its last blocks hashes that have none, and tell of them."""
        content, blocks, hasher = table.content, table.blocks, self._hasher
        assert hasher is not None
        before = len(blocks)
        while before and blocks[before - 1].hash is None:
            before -= 1
        if before:
            parent = blocks[before - 1].hash
            assert parent is not None
        else:
            parent = hasher.root(content.adapter[0] if content.adapter is not None else None)
        cached = self.pool.cached
        for index in range(before, len(blocks)):
            block = blocks[index]
            known = cached[block.key].hash  # where others had that content first
            if known is None:
                known = hasher.block(parent, array("I", _tokens(block.key)), self._extra(content, index))
            block.hash = parent = known
        self._note(table, before, len(blocks))

    def _note(self, table: BlockTable, before: int, after: int, medium: str = GPU) -> None:
        """Tell of its blocks from one to another."""
        content, blocks = table.content, table.blocks[before:after]
        extras = None
        if content is not PLAIN:
            extras = [_shown(self._extra(content, index)) for index in range(before, after)]
            extras = extras if any(extras) else None
        self.records.append(
            Stored(
                [block.hash for block in blocks if block.hash is not None],
                table.blocks[before - 1].hash if before else None,
                array("I", b"".join([_tokens(block.key) for block in blocks])),
                self.block_size,
                content.lora_id,
                content.adapter[0] if content.adapter is not None else None,
                extras,
                medium,
            )
        )


def _tokens(key: Key) -> bytes:
    tokens = key[1]
    assert isinstance(tokens, bytes)
    return tokens


def _shown(extra: Extra | None) -> tuple[ExtraKey, ...] | None:
    """A block's extra keys as events tell them (vLLM)."""
    if extra is None:
        return None
    keys: list[ExtraKey] = [] if extra.adapter is None else [extra.adapter[0]]
    keys += extra.media
    if extra.salt is not None:
        keys.append(extra.salt)
    return tuple(keys)
