"""The tier below: copies of KV blocks in the host's memory, which outlive those they were made from."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from llmdsim.engine.kvcache.pool import Block, Key
from llmdsim.engine.kvcache.records import BlockHash


class Copy(NamedTuple):
    """What is known of a block: its chain, which blocks of that content have wherever they are, and hash."""

    chain: int
    hash: BlockHash | None


class HostTier:
    """Room for copies of `total` blocks (vLLM 0.33, v1/kv_offload/cpu).

    The one used least recently is given up first, and a block is used whenever one that follows it is: what
    is there of a prompt is its beginning.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._copies: OrderedDict[Key, Copy] = OrderedDict()

    def __len__(self) -> int:
        return len(self._copies)

    def find(self, key: Key) -> Copy | None:
        """The copy of that content."""
        return self._copies.get(key)

    def keep(self, blocks: Sequence[Block]) -> tuple[int, int, list[BlockHash]]:
        """Have copies of `blocks`, the first ones of a prompt, as far as there is room.

        Returns how many there were already, how many there are now, and the hashes of what was given up.
        """
        copies = self._copies
        keys = [block.key for block in blocks[: self.total]]
        known = 0
        while known < len(keys) and keys[known] in copies:
            known += 1
        given_up: list[BlockHash] = []
        over = len(copies) + len(keys) - known - self.total
        if known < len(keys) and over > 0:
            # Lest they are those that go.
            self._use(keys[:known])
            for _ in range(over):
                _, copy = copies.popitem(last=False)
                if copy.hash is not None:
                    given_up.append(copy.hash)
        for index in range(len(keys) - 1, known - 1, -1):
            copies[keys[index]] = Copy(blocks[index].chain, blocks[index].hash)
        self._use(keys[:known])
        return known, len(keys), given_up

    def clear(self) -> None:
        """Give up everything."""
        self._copies.clear()

    def _use(self, keys: Sequence[Key]) -> None:
        for key in reversed(keys):
            self._copies.move_to_end(key)
