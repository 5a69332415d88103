"""What llm-d-router's subscriber makes of a payload, as strict as it is; written from its behaviour.

It refuses a whole message for one fault, and takes no hash that is an integer of less than full width.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, TypeAlias

Value: TypeAlias = "int | float | str | bytes | list[Value] | dict[str, Value] | None"


class Malformed(Exception):
    """The router drops the message, with all its events."""


class Full(int):
    """An integer that was written in eight bytes."""


class BlockStored(NamedTuple):
    hashes: list[int]
    parent: int | None
    tokens: list[int]
    block_size: int
    lora_name: str | None
    medium: str | None
    #: What taints the hash of each block.
    taints: list[list[str]]


class BlockRemoved(NamedTuple):
    hashes: list[int]
    medium: str | None


class AllBlocksCleared(NamedTuple):
    pass


Event: TypeAlias = BlockStored | BlockRemoved | AllBlocksCleared

_STORED = [
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
]
_REMOVED = ["block_hashes", "medium", "group_idx"]


def parse(payload: bytes) -> list[Event]:
    """The events of a batch. Raises Malformed where the router would."""
    batch, end = read(payload, 0)
    require(end == len(payload))
    require(isinstance(batch, list) and len(batch) == 3)
    assert isinstance(batch, list)
    timestamp, events, _ = batch
    require(timestamp is None or isinstance(timestamp, int | float))
    require(isinstance(events, list))
    assert isinstance(events, list)
    return [event(each) for each in events]


def event(data: Value) -> Event:
    if isinstance(data, list):
        require(len(data) > 0)
        tag, *values = data
        names = {"BlockStored": _STORED, "BlockRemoved": _REMOVED}.get(str(tag), [])
        fields: dict[str, Value] = dict(zip(names, values, strict=False))
    else:
        require(isinstance(data, dict))
        assert isinstance(data, dict)
        fields = data
        tag = fields.get("type")
    group = fields.get("group_idx")
    require(group is None or (isinstance(group, int) and group >= 0))
    match tag:
        case "BlockStored":
            return stored(fields)
        case "BlockRemoved":
            return BlockRemoved(hashes(fields["block_hashes"]), text(fields["medium"]))
        case "AllBlocksCleared":
            return AllBlocksCleared()
    raise Malformed


def stored(fields: dict[str, Value]) -> BlockStored:
    require({"block_hashes", "parent_block_hash", "token_ids", "block_size"} <= fields.keys())
    # With a group, blocks of other kinds are not indexed.
    require(fields.get("group_idx") is None or fields["kv_cache_spec_kind"] == "full_attention")
    parent = fields["parent_block_hash"]
    lora_id = fields.get("lora_id")
    require(lora_id is None or isinstance(lora_id, int))
    found = hashes(fields["block_hashes"])
    return BlockStored(
        found,
        (None if parent is None else block_hash(parent)) or None,
        [integer(token) % 2**32 for token in listed(fields["token_ids"])],
        integer(fields["block_size"]),
        text(fields.get("lora_name")),
        text(fields.get("medium")),
        taints(fields.get("extra_keys"), len(found)),
    )


def taints(data: Value, blocks: int) -> list[list[str]]:
    if data is None:
        return [[] for _ in range(blocks)]
    require(len(listed(data)) == blocks)
    found = []
    for keys in listed(data):
        words = []
        for key in [] if keys is None else listed(keys):
            if isinstance(key, str):
                words.append(key)
            elif isinstance(key, list) and key and isinstance(key[0], str):
                words.append(key[0])
        found.append(words)
    return found


def hashes(data: Value) -> list[int]:
    return [block_hash(each) for each in listed(data)]


def block_hash(data: Value) -> int:
    if isinstance(data, bytes) and data:
        return int.from_bytes(data[-8:], "big")
    require(isinstance(data, Full))
    assert isinstance(data, Full)
    return int(data)


def listed(data: Value) -> list[Value]:
    require(isinstance(data, list))
    assert isinstance(data, list)
    return data


def integer(data: Value) -> int:
    require(isinstance(data, int))
    assert isinstance(data, int)
    return data


def text(data: Value) -> str | None:
    require(data is None or isinstance(data, str))
    assert data is None or isinstance(data, str)
    return data


def require(condition: bool) -> None:
    if not condition:
        raise Malformed


def read(data: bytes, at: int) -> tuple[Value, int]:
    """The MessagePack value at `at`, and where it ends."""
    code = data[at]
    at += 1
    if code < 0x80:
        return code, at
    if code >= 0xE0:
        return code - 0x100, at
    if code < 0x90:
        return pairs(data, at, code & 0x0F)
    if code < 0xA0:
        return several(data, at, code & 0x0F)
    if code < 0xC0:
        return data[at : at + (code & 0x1F)].decode(), at + (code & 0x1F)
    if code in _SIZED:
        what, form = _SIZED[code]
        (length,) = struct.unpack_from(form, data, at)
        at += struct.calcsize(form)
        if what == "list":
            return several(data, at, length)
        if what == "map":
            return pairs(data, at, length)
        part = data[at : at + length]
        require(len(part) == length)
        return (part.decode() if what == "text" else part), at + length
    if code in _FIXED:
        form = _FIXED[code]
        (number,) = struct.unpack_from(form, data, at)
        return Full(number) if form in (">Q", ">q") else number, at + struct.calcsize(form)
    require(code == 0xC0)
    return None, at


_SIZED = {
    0xC4: ("bytes", ">B"),
    0xC5: ("bytes", ">H"),
    0xC6: ("bytes", ">I"),
    0xD9: ("text", ">B"),
    0xDA: ("text", ">H"),
    0xDB: ("text", ">I"),
    0xDC: ("list", ">H"),
    0xDD: ("list", ">I"),
    0xDE: ("map", ">H"),
    0xDF: ("map", ">I"),
}
_FIXED = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}


def several(data: bytes, at: int, length: int) -> tuple[list[Value], int]:
    items = []
    for _ in range(length):
        item, at = read(data, at)
        items.append(item)
    return items, at


def pairs(data: bytes, at: int, length: int) -> tuple[dict[str, Value], int]:
    flat, at = several(data, at, 2 * length)
    return {str(key): value for key, value in zip(flat[::2], flat[1::2], strict=True)}, at
