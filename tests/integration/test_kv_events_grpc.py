"""What grpcio's subscribers to KV events get from a real daemon, beside pyzmq's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import grpc
import pytest

from llmdsim.rpc.pb import common_pb2 as pb
from tests.integration.client import Client
from tests.integration.daemon import Daemon
from tests.integration.test_kv_events import CACHE, POD, Addresses, complete, fresh, join

pytestmark = pytest.mark.integration

PATH = "/vllm.grpc.engine.VllmEngine/SubscribeKvEvents"
PATIENCE = 30.0

T = TypeVar("T")


@asynccontextmanager
async def subscribed(port: int, start: int = 0, early: bool = False) -> Any:
    """A call whose client knows that it has subscribed."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        method = channel.unary_stream(
            PATH,
            request_serializer=pb.SubscribeKvEventsRequest.SerializeToString,
            response_deserializer=pb.KvEventBatch.FromString,
        )
        asked = pb.SubscribeKvEventsRequest(
            start_sequence_number=start, load_records_before_first_batch=early
        )
        call = method(asked, timeout=PATIENCE)
        await call.initial_metadata()
        yield call
        call.cancel()


async def take(call: Any, number: int) -> list[pb.KvEventBatch]:
    """So many batches, without what is of the load alone."""
    found: list[pb.KvEventBatch] = []
    while len(found) < number:
        message = await call.read()
        assert message is not grpc.aio.EOF, await call.code()
        if not message.load.load_only:
            found.append(message)
    return found


async def end_of(call: Any) -> grpc.StatusCode:
    """How it ends, whatever is told before."""
    try:
        while await call.read() is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def run(main: Callable[[], Awaitable[T]]) -> T:
    return asyncio.run(asyncio.wait_for(main(), PATIENCE))


@pytest.fixture(scope="module")
def addresses() -> Addresses:
    return Addresses()


@pytest.fixture(scope="module")
def publishing(addresses: Addresses) -> Iterator[Daemon]:
    flags = ("--lora-modules", "one=/one", "--seed", "3", "--vllm-server-dev-mode")
    with Daemon(*CACHE, *addresses.flags, *flags, environ=POD) as daemon:
        yield daemon


def test_r64_numbers_hashes_and_times_are_those_of_zeromq(publishing: Daemon, addresses: Addresses) -> None:
    client = publishing.client

    async def side_by_side() -> None:
        with addresses.subscriber() as subscriber:
            join(subscriber, client)
            async with subscribed(publishing.port) as call:
                prompt = complete(client, fresh(20))
                complete(client, [*prompt, *range(9000, 9016)])
                complete(client, prompt, model="one")
                complete(client, fresh(), cache_salt="secret")
                assert client.post("/reset_prefix_cache", {}).status == 200
                sent = subscriber.take(5)
                told = await take(call, 5)
            async with subscribed(publishing.port, start=sent[1].number) as call:
                again = await take(call, 4)
        for batch, message in zip(sent, told, strict=True):
            moment, (event,), rank = batch.document
            assert message.sequence_number == batch.number
            assert (message.timestamp, message.dp_rank) == (moment, rank)
            (converted,) = message.events
            if event["type"] == "AllBlocksCleared":
                assert converted.HasField("cleared")
                continue
            blocks = converted.stored.blocks
            assert [block.block_hash % 2**64 for block in blocks] == event["block_hashes"]
            assert [token for block in blocks for token in block.token_ids] == event["token_ids"]
            assert (converted.stored.lora_name or None) == event["lora_name"]
            parent = event["parent_block_hash"]
            assert converted.stored.HasField("parent_block_hash") is (parent is not None)
            assert parent is None or converted.stored.parent_block_hash % 2**64 == parent
        assert told[3].events[0].stored.cache_salt == "secret"
        assert told[0].load.max_total_num_tokens == 80_000
        for first, second in zip(told[1:], again, strict=True):
            first.ClearField("load")
            second.ClearField("load")
            for event in [*first.events, *second.events]:
                event.event_id = 0
            assert first == second

    run(side_by_side)


def test_who_cannot_be_told_all_is_told_so(publishing: Daemon) -> None:
    client = publishing.client

    async def lose() -> None:
        async with subscribed(publishing.port) as call:
            complete(client)
            await take(call, 1)
            changes = {"kv-event-fault-rate": 100, "kv-event-faults": ["gap; times=1"]}
            assert client.post("/admin/config", changes).status == 200
            complete(client)
            assert await end_of(call) is grpc.StatusCode.DATA_LOSS
        async with subscribed(publishing.port) as call:
            complete(client)
            await take(call, 1)
        async with subscribed(publishing.port, start=10**6) as call:
            assert await end_of(call) is grpc.StatusCode.OUT_OF_RANGE

    try:
        run(lose)
    finally:
        client.post("/admin/config", {"kv-event-faults": []})


def test_the_load_is_told_while_there_are_no_events(publishing: Daemon) -> None:
    async def listen() -> None:
        async with subscribed(publishing.port, early=True) as call:
            began = time.monotonic()
            records = [(await call.read()).load for _ in range(3)]
            assert 1.5 < time.monotonic() - began < 10
        assert [record.sample for record in records] == [1, 2, 3]
        assert all(record.load_only for record in records)
        assert all(record.max_running_requests == 5 for record in records)

    run(listen)


#: Each prompt takes half of the cache: what is given up for it makes some sixty batches.
LONG = ("--enable-kvcache", "--zmq-endpoint=", "--max-model-len", "20000", "--kv-cache-size", "2000")


async def give_up_much(client: Client, call: Any) -> None:
    """Have a long prompt answered, and read until that is told."""
    complete(client, fresh(16_000))
    while not any(event.HasField("stored") for event in (await take(call, 1))[0].events):
        pass


def test_r92_who_does_not_read_is_cut_off_and_the_others_are_not() -> None:
    with Daemon(*LONG) as daemon:
        client = daemon.client

        async def read_slowly() -> None:
            async with subscribed(daemon.port) as slow, subscribed(daemon.port) as fast:
                for _ in range(100):
                    await give_up_much(client, fast)
                    overflows = client.metrics().value("llmdsim:kv_event_subscriber_overflows_total")
                    if overflows:
                        break
                assert overflows == 1
                assert await end_of(slow) is grpc.StatusCode.DATA_LOSS
                await give_up_much(client, fast)

        run(read_slowly)


def test_subscribers_do_not_hold_up_the_end() -> None:
    with Daemon(*LONG, "--shutdown-timeout", "60") as daemon:

        async def stay() -> None:
            async with subscribed(daemon.port) as call:
                complete(daemon.client)
                await take(call, 1)
                began = time.monotonic()
                end = asyncio.create_task(end_of(call))
                await asyncio.to_thread(daemon.end)
                assert await end is grpc.StatusCode.UNAVAILABLE
                assert time.monotonic() - began < 10

        run(stay)


def test_without_a_cache_there_is_no_such_method(daemon: Daemon) -> None:
    async def refused() -> None:
        async with subscribed(daemon.port) as call:
            assert await end_of(call) is grpc.StatusCode.UNIMPLEMENTED

    run(refused)


def test_r5_each_rank_tells_of_itself() -> None:
    flags = ("--data-parallel-mode", "process", "--enable-kvcache", "--zmq-endpoint=")
    with Daemon(*flags, "--data-parallel-size", "2", ranks=2) as daemon:

        async def listen() -> None:
            for rank, client in enumerate(daemon.clients):
                async with subscribed(daemon.port + rank) as call:
                    prompt = complete(client)
                    (message,) = await take(call, 1)
                    assert message.dp_rank == rank
                    assert [*message.events[0].stored.blocks[0].token_ids] == prompt

        run(listen)
