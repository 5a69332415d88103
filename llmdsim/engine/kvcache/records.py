"""What happened to blocks, as plain records in the order in which it happened."""

from __future__ import annotations

from array import array
from typing import NamedTuple, TypeAlias

#: A digest as its algorithm gives it: bytes, or an unsigned integer of 64 bits.
BlockHash: TypeAlias = int | bytes

#: What besides tokens distinguishes a block: the name of its LoRA adapter, the cache salt of its request, or
#: an item of media with its offset from the block's first token (negative if it began before).
ExtraKey: TypeAlias = str | tuple[str, int]

GPU = "GPU"
CPU = "CPU"


class Stored(NamedTuple):
    """Blocks that can be found from now on: one run, each the child of the one before.

    `parent` is the hash of the block before the first, None at the start of a prompt. `tokens` are those of
    all blocks in order, `block_size` in each. `lora_id` is the adapter's number, from 1. `extra_keys` are
    those of each block, None for one without; all None is None.
    """

    hashes: list[BlockHash]
    parent: BlockHash | None
    tokens: array[int]
    block_size: int
    lora_id: int | None = None
    lora_name: str | None = None
    extra_keys: list[tuple[ExtraKey, ...] | None] | None = None
    medium: str = GPU


class Removed(NamedTuple):
    """A block that cannot be found there any more."""

    hash: BlockHash
    medium: str = GPU


class Cleared(NamedTuple):
    """All blocks were forgotten, those of every medium."""


Record: TypeAlias = Stored | Removed | Cleared
