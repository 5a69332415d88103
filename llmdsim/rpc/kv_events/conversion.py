"""Makes gRPC's messages of batches of KV events."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from llmdsim.engine.kvcache.records import CPU, GPU
from llmdsim.kvevents.window import Batch
from llmdsim.kvevents.wire import decoded
from llmdsim.rpc.pb import common_pb2 as pb

#: Blocks made in one step: half a millisecond.
PORTION = 256

_TIERS = {GPU: pb.KV_CACHE_TIER_DEVICE, CPU: pb.KV_CACHE_TIER_HOST}

#: What the levels below the device's own memory are called.
_LEVELS = {CPU: 1}


class Conversion:
    """Takes the batches of one publisher in their order; blocks of salted prompts inherit the salt."""

    def __init__(self) -> None:
        self._salts: dict[tuple[str, int], str] = {}
        self._room = PORTION

    def message(self, batch: Batch) -> Generator[None, None, pb.KvEventBatch]:
        """Make the message of a batch, in steps; `event_id` and `load` are the receiver's own."""
        number, payload = batch
        moment, events, rank = decoded(payload)
        message = pb.KvEventBatch(sequence_number=number, timestamp=moment, dp_rank=rank)
        for event in events:
            into = message.events.add()
            match event["type"]:
                case "BlockStored":
                    yield from self._store(event, into.stored)
                case "BlockRemoved":
                    self._remove(event, into.removed)
                case _:
                    self._salts.clear()
                    into.cleared.SetInParent()
        return message

    def _store(self, event: dict[str, Any], stored: pb.KvBlocksStored) -> Generator[None, None, None]:
        medium, size, lora_id = event["medium"], event["block_size"], event["lora_id"]
        level = _LEVELS.get(medium)
        tokens = event["token_ids"]
        hashes = [_signed(each) for each in event["block_hashes"]]
        extra_keys = event["extra_keys"] or [None] * len(hashes)
        add = stored.blocks.add
        start = 0
        for block_hash, keys in zip(hashes, extra_keys, strict=True):
            block = add()
            block.block_hash = block_hash
            block.block_size = size
            block.token_ids.extend(tokens[start : start + size])
            start += size
            if lora_id is not None:
                block.lora_id = lora_id
            if level is not None:
                block.cache_level = level
            for key in keys or ():
                _add_key(block, key)
            self._room -= 1
            if not self._room:
                self._room = PORTION
                yield
        parent = event["parent_block_hash"]
        if parent is not None:
            stored.parent_block_hash = parent = _signed(parent)
        lora_name = event["lora_name"]
        if lora_name is not None:
            stored.lora_name = lora_name
        _say_where(event, stored)
        if "kv_cache_spec_kind" in event:
            stored.kv_cache_spec_kind = event["kv_cache_spec_kind"]
        texts = (key for key in extra_keys[0] or () if isinstance(key, str) and key != lora_name)
        salt = next(texts, self._salts.get((medium, parent)))
        if salt is not None:
            stored.cache_salt = salt
            self._salts |= dict.fromkeys([(medium, each) for each in hashes], salt)

    def _remove(self, event: dict[str, Any], removed: pb.KvBlocksRemoved) -> None:
        medium = event["medium"]
        hashes = [_signed(each) for each in event["block_hashes"]]
        removed.block_hashes.extend(hashes)
        if medium in _LEVELS:
            removed.cache_level = _LEVELS[medium]
        _say_where(event, removed)
        if self._salts:
            for each in hashes:
                self._salts.pop((medium, each), None)


def _say_where(event: dict[str, Any], told: pb.KvBlocksStored | pb.KvBlocksRemoved) -> None:
    told.medium = event["medium"]
    told.tier = _TIERS[event["medium"]]
    told.locality = pb.KV_CACHE_LOCALITY_LOCAL
    if "group_idx" in event:
        told.group_idx = event["group_idx"]


def _signed(block_hash: int | bytes) -> int:
    """The last 64 bits, as a signed number."""
    data = block_hash.to_bytes(8, "big") if isinstance(block_hash, int) else block_hash[-8:]
    return int.from_bytes(data, "big", signed=True)


def _add_key(block: pb.KvBlock, key: str | list[Any]) -> None:
    if isinstance(key, str):
        block.extra_keys.add(text=key)
    else:
        identifier, offset = key
        block.extra_keys.add().multimodal.MergeFrom(pb.KvMultimodalKey(identifier=identifier, offset=offset))
