"""What messages are made of events, by the way they take: encoded for ZeroMQ first."""

from __future__ import annotations

from array import array
from typing import Any, Literal

import pytest

from llmdsim.engine.kvcache.records import CPU, Cleared, Record, Removed, Stored
from llmdsim.kvevents.wire import Encoder
from llmdsim.rpc.kv_events.conversion import PORTION, Conversion
from llmdsim.rpc.pb import common_pb2 as pb
from tests.rpc.kv_events.rig import stored

LONG = b"\xaa" * 24 + b"\xff\xff\xff\xff\xff\xff\xff\xfe"


def steps_and_message(
    *records: Record, conversion: Conversion | None = None, encoder: Encoder | None = None, number: int = 7
) -> tuple[int, pb.KvEventBatch]:
    payload = (encoder or Encoder("map", True, 3)).batch(records, 12.5)
    steps = (conversion or Conversion()).message((number, payload))
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            message: pb.KvEventBatch = end.value
            return count, message
        count += 1


def converted(*records: Record, **more: Any) -> pb.KvEventBatch:
    return steps_and_message(*records, **more)[1]


def test_a_whole_batch() -> None:
    message = converted(
        Stored([LONG, 5], 2**63 + 1, array("I", [1, 2, 3, 2**32 - 1]), 2), Removed(2**64 - 1), Cleared()
    )
    expected = pb.KvEventBatch(sequence_number=7, timestamp=12.5, dp_rank=3)
    told = expected.events.add().stored
    told.blocks.add(block_hash=-2, token_ids=[1, 2], block_size=2)
    told.blocks.add(block_hash=5, token_ids=[3, 2**32 - 1], block_size=2)
    told.parent_block_hash = -(2**63) + 1
    told.tier, told.medium, told.locality = pb.KV_CACHE_TIER_DEVICE, "GPU", pb.KV_CACHE_LOCALITY_LOCAL
    told.group_idx, told.kv_cache_spec_kind = 0, "full_attention"
    gone = expected.events.add().removed
    gone.block_hashes.append(-1)
    gone.tier, gone.medium, gone.locality = pb.KV_CACHE_TIER_DEVICE, "GPU", pb.KV_CACHE_LOCALITY_LOCAL
    gone.group_idx = 0
    expected.events.add().cleared.SetInParent()
    assert message == expected


def test_copies_in_the_host() -> None:
    message = converted(stored(2, medium=CPU), Removed(0, CPU))
    told, gone = message.events[0].stored, message.events[1].removed
    assert (told.tier, told.medium) == (pb.KV_CACHE_TIER_HOST, "CPU")
    assert [block.cache_level for block in told.blocks] == [1, 1]
    assert (gone.tier, gone.medium, gone.cache_level) == (pb.KV_CACHE_TIER_HOST, "CPU", 1)
    assert not converted(stored()).events[0].stored.blocks[0].HasField("cache_level")


def test_an_adapters_blocks() -> None:
    record = stored(2, lora_id=4, lora_name="one", extra_keys=[("one",), ("one",)])
    told = converted(record).events[0].stored
    assert told.lora_name == "one"
    assert [block.lora_id for block in told.blocks] == [4, 4]
    assert not any(block.extra_keys for block in told.blocks)
    # As vLLM has it, where that is asked for; which is no salt.
    told = converted(record, encoder=Encoder("map", True, 0, lora_keys=True)).events[0].stored
    assert [[key.text for key in block.extra_keys] for block in told.blocks] == [["one"], ["one"]]
    assert not told.HasField("cache_salt")


def test_media_and_a_salt_are_told_where_they_are() -> None:
    told = converted(stored(3, extra_keys=[(("image", 2), "salt"), (("image", -2),), None])).events[0].stored
    media, salt = told.blocks[0].extra_keys
    assert media.multimodal == pb.KvMultimodalKey(identifier="image", offset=2)
    assert (salt.WhichOneof("key"), salt.text) == ("text", "salt")
    assert [key.multimodal.offset for key in told.blocks[1].extra_keys] == [-2]
    assert not told.blocks[2].extra_keys
    assert told.cache_salt == "salt"


def test_what_follows_salted_blocks_has_their_salt_as_long_as_they_are_there() -> None:
    conversion = Conversion()

    def salt(*records: Record) -> str | None:
        told = converted(*records, conversion=conversion).events[-1].stored
        return told.cache_salt if told.HasField("cache_salt") else None

    assert salt(stored(2, extra_keys=[("s",), None])) == "s"
    assert salt(stored(1, 2, parent=1)) == "s"
    assert salt(stored(1, 3, parent=2)) == "s"
    # On another medium, or behind a block that nobody has heard of, it is not known.
    assert salt(stored(1, 9, parent=1, medium=CPU)) is None
    assert salt(stored(1, 9, parent=77)) is None
    assert salt(stored(1, 9)) is None
    assert salt(Removed(2), stored(1, 3, parent=2)) is None
    assert salt(stored(1, 2, parent=1)) == "s"
    assert salt(Cleared(), stored(1, 2, parent=1)) is None
    assert not conversion._salts, "what is gone takes no memory"


@pytest.mark.parametrize("int_hashes", [True, False])
@pytest.mark.parametrize("form", ["map", "array"])
def test_the_form_of_published_events_makes_no_other_difference(
    form: Literal["map", "array"], int_hashes: bool
) -> None:
    records = (
        Stored([LONG], None, array("I", [1, 2]), 2),
        Stored([LONG[::-1]], LONG, array("I", [3, 4]), 2, 1, "one", [("one", ("i", 0), "s")]),
        Removed(LONG),
        Cleared(),
    )
    expected = converted(*records)
    if form == "array":
        # What it has not cannot be told.
        for event in expected.events[:2]:
            event.stored.ClearField("group_idx")
            event.stored.ClearField("kv_cache_spec_kind")
        expected.events[2].removed.ClearField("group_idx")
    assert converted(*records, encoder=Encoder(form, int_hashes, 3)) == expected
    assert not expected.events[0].stored.HasField("parent_block_hash")
    assert expected.events[1].stored.parent_block_hash == -2


def test_long_prompts_are_converted_in_steps() -> None:
    conversion = Conversion()
    steps, message = steps_and_message(stored(3 * PORTION - 10), conversion=conversion)
    assert steps == 2
    assert len(message.events[0].stored.blocks) == 3 * PORTION - 10
    # It goes on counting.
    assert steps_and_message(*[stored(1)] * 11, conversion=conversion)[0] == 1
