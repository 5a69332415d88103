"""Batches of KV events as MessagePack, in vLLM's layouts."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from llmdsim.config import Config
from llmdsim.engine.kvcache.records import BlockHash, Cleared, ExtraKey, Record, Removed, Stored

Form: TypeAlias = Literal["map", "array"]


class _Stored(Struct, gc=False):
    """Common to both forms. Hashes and tokens are packed beforehand, as integers of full width: the consumers
    in Go refuse hashes that are not."""

    block_hashes: Raw
    parent_block_hash: Raw | None
    token_ids: Raw
    block_size: int
    lora_id: int | None
    medium: str
    lora_name: str | None
    extra_keys: list[tuple[ExtraKey, ...] | None] | None


class BlockStored(_Stored, gc=False, tag=True):
    """What vLLM 0.33 sends for a model with one kind of attention; what it leaves out is left out."""

    group_idx: int = 0
    kv_cache_spec_kind: str = "full_attention"


class BlockRemoved(Struct, gc=False, tag=True):
    block_hashes: Raw
    medium: str
    group_idx: int = 0


class AllBlocksCleared(Struct, gc=False, tag=True):
    pass


class _BlockStoredArray(_Stored, gc=False, tag="BlockStored", array_like=True):
    """As vLLM sent it before it had groups, and llm-d-inference-sim does."""


class _BlockRemovedArray(Struct, gc=False, tag="BlockRemoved", array_like=True):
    block_hashes: Raw
    medium: str


class _AllBlocksClearedArray(Struct, gc=False, tag="AllBlocksCleared", array_like=True):
    pass


class Encoder:
    """Encodes the batches of one rank.

    Events are maps, or arrays; hashes are integers (the last 64 bits of a longer one), or bytes (eight for an
    algorithm of 64 bits). With `lora_keys` the extra keys of an adapter's blocks name it, too, as in vLLM.
    """

    __slots__ = ("_encode", "_int_hashes", "_lora_keys", "_maps", "_no_parent", "_rank")

    def __init__(self, form: Form, int_hashes: bool, rank: int, lora_keys: bool = False) -> None:
        self._maps = form == "map"
        self._int_hashes = int_hashes
        self._lora_keys = lora_keys
        self._rank = rank
        self._encode = msgspec.msgpack.Encoder().encode
        # llm-d-inference-sim's way to say that there is none, where there are integers.
        self._no_parent = Raw(b"\xcf" + bytes(8)) if int_hashes and not self._maps else None

    def batch(self, records: Sequence[Record], timestamp: float) -> bytes:
        """One message's payload; `timestamp` is wall-clock seconds."""
        return self._encode((timestamp, [self._event(record) for record in records], self._rank))

    def _event(self, record: Record) -> Struct:
        match record:
            case Stored():
                return self._stored(record)
            case Removed():
                hashes = Raw(b"\x91" + self._packed([record.hash]))
                kind = BlockRemoved if self._maps else _BlockRemovedArray
                return kind(hashes, record.medium)
            case Cleared():
                return AllBlocksCleared() if self._maps else _AllBlocksClearedArray()

    def _stored(self, record: Stored) -> Struct:
        kind = BlockStored if self._maps else _BlockStoredArray
        return kind(
            Raw(_array_head(len(record.hashes)) + self._packed(record.hashes)),
            self._no_parent if record.parent is None else Raw(self._packed([record.parent])),
            Raw(_array_head(len(record.tokens)) + _packed_tokens(record.tokens)),
            record.block_size,
            record.lora_id,
            record.medium,
            record.lora_name,
            self._extra_keys(record),
        )

    def _extra_keys(self, record: Stored) -> list[tuple[ExtraKey, ...] | None] | None:
        keys = record.extra_keys
        if keys is not None and record.lora_name is not None and not self._lora_keys:
            keys = [key[1:] or None if key else None for key in keys]
        if self._maps:
            return keys or [None] * len(record.hashes)
        return keys if keys and any(keys) else None

    def _packed(self, hashes: list[BlockHash]) -> bytes:
        """One item after the other, without the head of the array."""
        whole = [each.to_bytes(8, "big") if isinstance(each, int) else each for each in hashes]
        if self._int_hashes:
            return b"".join([b"\xcf" + each[-8:] for each in whole])
        return b"".join([b"\xc4%c" % len(each) + each for each in whole])


#: What an event is as an array, by its first item.
_ARRAYS = {
    kind.__struct_config__.tag: ("type", *kind.__struct_fields__)
    for kind in (_BlockStoredArray, _BlockRemovedArray, _AllBlocksClearedArray)
}


def decoded(payload: bytes) -> tuple[float, list[dict[str, Any]], int]:
    """What an `Encoder` was given, in the form of maps whichever it has: time, events, and rank."""
    moment, events, rank = msgspec.msgpack.decode(payload)
    for place, event in enumerate(events):
        if isinstance(event, list):
            events[place] = fields = dict(zip(_ARRAYS[event[0]], event, strict=True))
            if fields.get("parent_block_hash") == 0:
                fields["parent_block_hash"] = None
    return moment, events, rank


def encoder(config: Config, rank: int) -> Encoder:
    """The encoder that the options ask for."""
    if "kv_event_format" in config.given or config.use_vllm_map_event_format:
        form = config.kv_event_format
    else:
        form = "array"
    return Encoder(form, config.kv_event_hashes in ("int", "1"), rank, config.kv_event_lora_keys)


def _packed_tokens(tokens: array[int]) -> bytes:
    """As `_packed`, each an unsigned integer of 32 bits: a byte that says so, then four, big end first."""
    plain = array("I", tokens)
    if sys.byteorder == "little":
        plain.byteswap()
    data = plain.tobytes()
    packed = bytearray(b"\xce" * 5 * len(tokens))
    for place in range(4):
        packed[place + 1 :: 5] = data[place::4]
    return bytes(packed)


def _array_head(length: int) -> bytes:
    if length < 16:
        return bytes((0x90 | length,))
    if length < 1 << 16:
        return b"\xdc" + length.to_bytes(2, "big")
    return b"\xdd" + length.to_bytes(4, "big")
