"""A rank whose events are subscribed to over gRPC, beside sockets in memory."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from typing import Any

from llmdsim.engine.kvcache.records import Record, Stored
from llmdsim.rpc.pb import common_pb2 as pb
from tests.rpc.client import Call, RpcClient
from tests.services.events_rig import EventsRig

#: A cache whose events go nowhere but to subscribers over gRPC.
ALONE = ("--enable-kvcache", "--zmq-endpoint=", "--block-size", "8", "--seed", "1")

Batches = Call[pb.KvEventBatch]


def subscribe(
    rig: EventsRig | RpcClient, start: int = 0, early: bool = False, timeout: str | None = None
) -> Batches:
    """Subscribe over a connection of its own, or over that one."""
    asked = pb.SubscribeKvEventsRequest(start_sequence_number=start, load_records_before_first_batch=early)
    client = rig if isinstance(rig, RpcClient) else RpcClient(rig)
    return client.call("SubscribeKvEvents", asked, pb.KvEventBatch, timeout=timeout)


def batches(call: Batches) -> list[pb.KvEventBatch]:
    """What it was told so far, without what is of the load alone."""
    call.client.read()
    return [message for message in call.messages if not message.load.load_only]


def loads(call: Batches) -> list[pb.EngineLoad]:
    """What it was told of the load alone."""
    call.client.read()
    return [message.load for message in call.messages if message.load.load_only]


def numbers(call: Batches) -> list[int]:
    return [message.sequence_number for message in batches(call)]


def only_event(call: Batches) -> pb.KvCacheEvent:
    ((event,),) = (message.events for message in batches(call))
    return event


def tell(rig: EventsRig, *records: Record) -> None:
    """Have the engine tell of these as one pass does."""
    assert rig.rank.driver.on_records is not None
    rig.rank.driver.on_records(list(records))


def stored(blocks: int = 1, first: int = 0, size: int = 4, **more: Any) -> Stored:
    """Blocks whose hashes count from `first`."""

    hashes: list[int | bytes] = [*range(first, first + blocks)]
    return Stored(hashes, more.pop("parent", None), array("I", range(blocks * size)), size, **more)


def generate(rig: EventsRig, prompt: Iterable[int], tokens: int = 1, **more: Any) -> None:
    """Have a prompt of these ids answered, whatever time that takes."""
    body = {"model": "m", "prompt": [*prompt], "max_tokens": tokens, "ignore_eos": True, **more}
    client = rig.post("/v1/completions", body)
    for _ in range(100):
        rig.clock.advance(0.001)
        if rig.rank.engine.idle and not rig.rank.context.turns.busy:
            break
    assert client.received.startswith(b"HTTP/1.1 200"), client.received


class Router:
    """A client that applies all that it is told: how many blocks of each hash there are in each tier."""

    def __init__(self) -> None:
        self.blocks: dict[int, Counter[int]] = {
            pb.KV_CACHE_TIER_DEVICE: Counter(),
            pb.KV_CACHE_TIER_HOST: Counter(),
        }
        self.tokens: dict[int, tuple[int, ...]] = {}

    def hear(self, message: pb.KvEventBatch) -> None:
        for event in message.events:
            match event.WhichOneof("data"):
                case "stored":
                    told = event.stored
                    known = self.blocks[told.tier]
                    assert not told.HasField("parent_block_hash") or known[told.parent_block_hash]
                    for block in told.blocks:
                        known[block.block_hash] += 1
                        tokens = tuple(block.token_ids)
                        assert self.tokens.setdefault(block.block_hash, tokens) == tokens
                case "removed":
                    known = self.blocks[event.removed.tier]
                    for block_hash in event.removed.block_hashes:
                        assert known[block_hash]
                        known[block_hash] -= 1
                case _:
                    for known in self.blocks.values():
                        known.clear()

    def known(self, tier: int = pb.KV_CACHE_TIER_DEVICE) -> dict[int, int]:
        return {**(+self.blocks[tier])}
