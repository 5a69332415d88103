"""Batches of KV events: vLLM's maps, llm-d-inference-sim's arrays, and what llm-d-router makes of them."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llmdsim.config import parse
from llmdsim.engine.kvcache import BlockHash, Cleared, ExtraKey, Record, Removed, Stored
from llmdsim.kvevents.wire import Encoder, Form, encoder
from tests.kvevents import router

FORMS: tuple[Form, ...] = ("map", "array")

#: A timestamp of frames that were captured.
WHEN = struct.unpack(">d", bytes.fromhex("41dac33c9d9edc28"))[0]

A1, A2, A3 = 3556222695259344277, 3413529535575050574, 10005875326527179124


def ids(numbers: Iterable[int]) -> array[int]:
    return array("I", numbers)


def decoded(payload: bytes) -> Any:
    return msgspec.msgpack.decode(payload)


# -- Arrays: frames that llm-d-inference-sim sent ----------------------------------------------------------


def test_an_array_is_llm_d_inference_sims_to_the_byte() -> None:
    payload = Encoder("array", True, 0).batch([Stored([A3], A2, ids(range(17, 25)), 8)], WHEN)
    tokens = "".join(f"ce000000{token:02x}" for token in range(0x11, 0x19))
    assert payload.hex() == (
        "93cb41dac33c9d9edc289199ab" + b"BlockStored".hex() + "91cf8adc0298987f8974cf2f5f4b06e641494e"
        "98" + tokens + "08c0a3" + b"GPU".hex() + "c0c000"
    )


@pytest.mark.parametrize(
    ("record", "size", "event"),
    [
        (
            Stored([A1, A2], None, ids(range(1, 17)), 8),
            144,
            ["BlockStored", [A1, A2], 0, [*range(1, 17)], 8, None, "GPU", None, None],
        ),
        (
            Stored(
                [7435113708181250351, 687032135042614087],
                None,
                ids(range(1, 17)),
                8,
                1,
                "lora1",
                [("lora1",), ("lora1",)],
            ),
            149,
            [
                "BlockStored",
                [7435113708181250351, 687032135042614087],
                0,
                [*range(1, 17)],
                8,
                1,
                "GPU",
                "lora1",
                None,
            ],
        ),
        (Removed(A3), 40, ["BlockRemoved", [A3], "GPU"]),
        (Cleared(), 30, ["AllBlocksCleared"]),
    ],
)
def test_arrays_have_the_size_of_llm_d_inference_sims(record: Record, size: int, event: list[Any]) -> None:
    payload = Encoder("array", True, 0).batch([record], WHEN)
    assert decoded(payload) == [WHEN, [event], 0]
    assert len(payload) == size


def test_r6_the_parent_of_a_first_block_is_a_zero_of_full_width_in_arrays() -> None:
    payload = Encoder("array", True, 0).batch([Stored([A1], None, ids(range(8)), 8)], WHEN)
    assert b"\xcf\0\0\0\0\0\0\0\0\x98" in payload


def test_arrays_have_no_parent_where_hashes_are_bytes() -> None:
    payload = Encoder("array", False, 0).batch([Stored([A1], None, ids(range(8)), 8)], WHEN)
    assert decoded(payload)[1][0][2] is None


# -- Maps: as vLLM's --------------------------------------------------------------------------------------


def test_a_store_has_vllms_fields_in_vllms_order() -> None:
    record = Stored([A1, A2], None, ids(range(1, 17)), 8)
    ((_, (event,), _),) = [decoded(Encoder("map", True, 0).batch([record], WHEN))]
    assert list(event.items()) == [
        ("type", "BlockStored"),
        ("block_hashes", [A1, A2]),
        ("parent_block_hash", None),
        ("token_ids", [*range(1, 17)]),
        ("block_size", 8),
        ("lora_id", None),
        ("medium", "GPU"),
        ("lora_name", None),
        ("extra_keys", [None, None]),
        ("group_idx", 0),
        ("kv_cache_spec_kind", "full_attention"),
    ]


def test_r6_the_parent_of_a_later_block_is_the_one_before() -> None:
    record = Stored([A3], A2, ids(range(17, 25)), 8)
    for form, key in (("map", "parent_block_hash"), ("array", 2)):
        (event,) = decoded(Encoder(form, True, 0).batch([record], WHEN))[1]
        assert event[key] == A2


def test_removals_and_clears_have_vllms_fields_in_vllms_order() -> None:
    payload = Encoder("map", True, 3).batch([Removed(A1, "CPU"), Cleared()], WHEN)
    timestamp, (removed, cleared), rank = decoded(payload)
    assert list(removed.items()) == [
        ("type", "BlockRemoved"),
        ("block_hashes", [A1]),
        ("medium", "CPU"),
        ("group_idx", 0),
    ]
    assert cleared == {"type": "AllBlocksCleared"}
    assert (timestamp, rank) == (WHEN, 3)


def test_r68_an_adapters_store_has_its_number_its_name_and_the_medium() -> None:
    record = Stored([A1], None, ids(range(8)), 8, 2, "a", [("a", ("i", -3), "s")], "CPU")
    (event,) = decoded(Encoder("map", True, 0).batch([record], WHEN))[1]
    assert (event["lora_id"], event["lora_name"], event["medium"]) == (2, "a", "CPU")


# -- Extra keys -------------------------------------------------------------------------------------------

KEYS: list[tuple[ExtraKey, ...] | None] = [("a", ("i", 3), "s"), ("a", ("i", -5)), ("a",)]


@pytest.mark.parametrize("form", FORMS)
def test_extra_keys_leave_the_adapter_out_unless_they_are_to_name_it(form: Form) -> None:
    record = Stored([1, 2, 3], None, ids(range(24)), 8, 1, "a", KEYS)
    key = "extra_keys" if form == "map" else 8
    (event,) = decoded(Encoder(form, True, 0).batch([record], WHEN))[1]
    assert event[key] == [[["i", 3], "s"], [["i", -5]], None]
    (event,) = decoded(Encoder(form, True, 0, lora_keys=True).batch([record], WHEN))[1]
    assert event[key] == [["a", ["i", 3], "s"], ["a", ["i", -5]], ["a"]]


def test_only_the_adapters_own_key_is_left_out() -> None:
    same = Stored([1], None, ids(range(8)), 8, 1, "a", [("a", "a")])
    base = Stored([1], None, ids(range(8)), 8, None, None, [("a",)])
    for record in (same, base):
        (event,) = decoded(Encoder("map", True, 0).batch([record], WHEN))[1]
        assert event["extra_keys"] == [["a"]]


def test_extra_keys_of_some_blocks_are_none_for_the_others() -> None:
    record = Stored([1, 2], None, ids(range(16)), 8, None, None, [None, (("i", 0),)])
    for form, key in (("map", "extra_keys"), ("array", 8)):
        (event,) = decoded(Encoder(form, True, 0).batch([record], WHEN))[1]
        assert event[key] == [None, [["i", 0]]]


# -- Integers and bytes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("number", [0, 1, 127, 255, 65535, 2**32 - 1, 2**32, 2**63, 2**64 - 1])
def test_hashes_are_integers_of_full_width_however_small(form: Form, number: int) -> None:
    payload = Encoder(form, True, 0).batch([Stored([number], number, ids([7] * 8), 8), Removed(number)], WHEN)
    assert payload.count(b"\xcf" + number.to_bytes(8, "big")) == 3


@pytest.mark.parametrize("form", FORMS)
def test_a_long_digest_is_its_last_64_bits_or_its_bytes(form: Form) -> None:
    digest = bytes(range(32))
    records = [Stored([digest], digest, ids([7] * 8), 8), Removed(digest)]
    payload = Encoder(form, True, 0).batch(records, WHEN)
    assert payload.count(b"\xcf" + digest[-8:]) == 3
    payload = Encoder(form, False, 0).batch(records, WHEN)
    assert payload.count(b"\xc4\x20" + digest) == 3


@pytest.mark.parametrize("form", FORMS)
def test_integers_as_bytes_are_eight(form: Form) -> None:
    payload = Encoder(form, False, 0).batch([Stored([5], 6, ids([7] * 8), 8), Removed(7)], WHEN)
    for number in (5, 6, 7):
        assert payload.count(b"\xc4\x08" + number.to_bytes(8, "big")) == 1


# -- Whatever the records ---------------------------------------------------------------------------------

SIZES = (8, 16)
mediums = st.sampled_from(["GPU", "CPU"])
media = st.tuples(st.text(), st.integers(-300, 300))
token = st.one_of(st.integers(0, 300), st.integers(0, 2**32 - 1))


@st.composite
def stores(draw: st.DrawFn, hashes: st.SearchStrategy[BlockHash]) -> Stored:
    names = draw(st.lists(hashes, min_size=1, max_size=20))
    size = draw(st.sampled_from(SIZES))
    count = len(names) * size
    start = draw(st.lists(token, min_size=1, max_size=8))
    adapter = draw(st.none() | st.text(min_size=1))
    lists = st.lists(st.lists(media, max_size=3), min_size=len(names), max_size=len(names))
    keys: list[list[ExtraKey]] = [[*each] for each in draw(lists)]
    if adapter is not None:
        keys = [[adapter, *each] for each in keys]
    if draw(st.booleans()):
        keys[0].append(draw(st.text(min_size=1)))
    extra_keys = [tuple(each) or None for each in keys]
    return Stored(
        names,
        draw(st.none() | hashes),
        ids((start * count)[:count]),
        size,
        None if adapter is None else draw(st.integers(1, 1000)),
        adapter,
        extra_keys if any(extra_keys) else None,
        draw(mediums),
    )


def record_lists(hashes: st.SearchStrategy[BlockHash]) -> st.SearchStrategy[list[Record]]:
    removals = st.builds(Removed, hashes, mediums)
    return st.lists(st.one_of(stores(hashes), removals, st.just(Cleared())), max_size=4)


batches = st.one_of(
    record_lists(st.integers(1, 2**64 - 1)),
    record_lists(st.integers(1, 300)),
    record_lists(st.binary(min_size=16, max_size=16)),
    record_lists(st.binary(min_size=32, max_size=32)),
)


def told(block_hash: BlockHash, int_hashes: bool) -> BlockHash:
    whole = block_hash.to_bytes(8, "big") if isinstance(block_hash, int) else block_hash
    return int.from_bytes(whole[-8:], "big") if int_hashes else whole


def shown_keys(record: Stored, lora_keys: bool) -> list[list[Any] | None]:
    blocks = record.extra_keys or [None] * len(record.hashes)
    named = record.lora_name is not None and not lora_keys
    shown = [list(each or ())[named:] for each in blocks]
    return [[list(key) if isinstance(key, tuple) else key for key in each] or None for each in shown]


def expected(record: Record, form: Form, int_hashes: bool, lora_keys: bool) -> list[Any]:
    """The event's values, in order, in Python's terms."""
    match record:
        case Stored():
            none = 0 if form == "array" and int_hashes else None
            keys = shown_keys(record, lora_keys)
            return [
                "BlockStored",
                [told(each, int_hashes) for each in record.hashes],
                none if record.parent is None else told(record.parent, int_hashes),
                list(record.tokens),
                record.block_size,
                record.lora_id,
                record.medium,
                record.lora_name,
                keys if form == "map" or any(keys) else None,
                *([0, "full_attention"] if form == "map" else []),
            ]
        case Removed():
            hashes = [told(record.hash, int_hashes)]
            return ["BlockRemoved", hashes, record.medium, *([0] if form == "map" else [])]
    return ["AllBlocksCleared"]


@given(batches, st.sampled_from(FORMS), st.booleans(), st.booleans(), st.integers(0, 300), st.floats(0, 4e9))
@example([Stored([1] * 70000, 2, ids([3] * 70000 * 8), 8)], "map", True, False, 0, 0.0)
@example([Stored([b"x" * 32] * 16, None, ids([3] * 256), 16)], "array", False, False, 0, 0.0)
def test_what_is_decoded_is_what_was_encoded(
    records: Sequence[Record], form: Form, int_hashes: bool, lora_keys: bool, rank: int, timestamp: float
) -> None:
    payload = Encoder(form, int_hashes, rank, lora_keys).batch(records, timestamp)
    when, events, of = decoded(payload)
    assert (when, of) == (timestamp, rank)
    values = [list(event.values()) if isinstance(event, dict) else event for event in events]
    assert values == [expected(record, form, int_hashes, lora_keys) for record in records]


@given(batches, st.sampled_from(FORMS), st.booleans())
def test_llm_d_router_takes_every_batch(records: Sequence[Record], form: Form, int_hashes: bool) -> None:
    def seen(record: Record) -> router.Event:
        match record:
            case Stored():
                keys = shown_keys(record, lora_keys=False)
                return router.BlockStored(
                    [int(told(each, True)) for each in record.hashes],
                    None if record.parent is None else (int(told(record.parent, True)) or None),
                    list(record.tokens),
                    record.block_size,
                    record.lora_name,
                    record.medium,
                    [[key if isinstance(key, str) else key[0] for key in each or ()] for each in keys],
                )
            case Removed():
                return router.BlockRemoved([int(told(record.hash, True))], record.medium)
        return router.AllBlocksCleared()

    payload = Encoder(form, int_hashes, 0).batch(records, WHEN)
    assert router.parse(payload) == [seen(record) for record in records]


@pytest.mark.parametrize(
    "payload",
    [
        [0.0, [], 0, 0],
        [0.0, [["BlockStored", [5], None, [1] * 8, 8]], 0],
        [0.0, [["BlockStored", [2**40], 0, [1] * 8, 8]], 0],
        [0.0, [["BlockRemoved", [""], "GPU"]], 0],
        [0.0, [["BlockMoved"]], 0],
    ],
)
def test_llm_d_router_would_not_take_what_is_packed_without_care(payload: list[Any]) -> None:
    with pytest.raises(router.Malformed):
        router.parse(msgspec.msgpack.encode(payload))


# -- Options ----------------------------------------------------------------------------------------------

RECORD = Stored([b"y" * 32], None, ids(range(8)), 8, 1, "a", [("a",)])


@pytest.mark.parametrize(
    ("flags", "environment", "form", "int_hashes", "lora_keys"),
    [
        ([], {}, "map", True, False),
        (["--kv-event-format", "array"], {}, "array", True, False),
        (["--use-vllm-map-event-format=false"], {}, "array", True, False),
        (["--no-use-vllm-map-event-format"], {}, "array", True, False),
        (["--use-vllm-map-event-format"], {}, "map", True, False),
        (["--use-vllm-map-event-format=false", "--kv-event-format", "map"], {}, "map", True, False),
        (["--use-vllm-map-event-format", "--kv-event-format", "array"], {}, "array", True, False),
        (["--kv-event-hashes", "bytes"], {}, "map", False, False),
        ([], {"VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES": "0"}, "map", False, False),
        ([], {"VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES": "1"}, "map", True, False),
        (["--kv-event-hashes=int"], {"VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES": "0"}, "map", True, False),
        (["--kv-event-lora-keys"], {}, "map", True, True),
    ],
)
def test_options(
    flags: list[str], environment: dict[str, str], form: Form, int_hashes: bool, lora_keys: bool
) -> None:
    config = parse(["--model", "m", *flags], environment)
    wanted = Encoder(form, int_hashes, 2, lora_keys).batch([RECORD], WHEN)
    assert encoder(config, 2).batch([RECORD], WHEN) == wanted
