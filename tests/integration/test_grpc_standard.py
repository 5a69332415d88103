"""Health and reflection of the real daemon, by the clients that grpcio has for them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from tests.integration.daemon import Daemon

pytestmark = pytest.mark.integration

ENGINE = "vllm.grpc.engine.VllmEngine"
SECONDS = 20.0
STATUS = health_pb2.HealthCheckResponse


def asked(service: str) -> Any:
    return health_pb2.HealthCheckRequest(service=service)


@pytest.fixture
def channel(daemon: Daemon) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{daemon.port}") as channel:
        yield channel


def test_health_is_checked_listed_and_watched(channel: grpc.Channel) -> None:
    health = health_pb2_grpc.HealthStub(channel)
    for service in ("", ENGINE):
        assert health.Check(asked(service), timeout=SECONDS).status == STATUS.SERVING
    with pytest.raises(grpc.RpcError) as failure:
        health.Check(asked("none.such"), timeout=SECONDS)
    assert failure.value.code() is grpc.StatusCode.NOT_FOUND
    assert "none.such" in failure.value.details()
    statuses = health.List(health_pb2.HealthListRequest(), timeout=SECONDS).statuses
    assert statuses[ENGINE].status == statuses[""].status == STATUS.SERVING
    for service, status in ((ENGINE, STATUS.SERVING), ("none.such", STATUS.SERVICE_UNKNOWN)):
        watch = health.Watch(asked(service), timeout=SECONDS)
        assert next(watch).status == status
        assert watch.is_active()
        watch.cancel()


def test_who_watches_sees_the_start_and_a_pause_makes_no_difference() -> None:
    async def scenario(daemon: Daemon) -> None:
        # The start may be over before a client tries again that waits longer.
        often = [(f"grpc.{which}_reconnect_backoff_ms", 100) for which in ("initial", "min", "max")]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{daemon.port}", options=often) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            watch = health.Watch(asked(""), wait_for_ready=True)
            assert (await watch.read()).status == STATUS.NOT_SERVING
            assert (await health.Check(asked(ENGINE))).status == STATUS.NOT_SERVING
            assert (await watch.read()).status == STATUS.SERVING
            await asyncio.to_thread(daemon.wait_until_ready)
            assert (await asyncio.to_thread(daemon.client.post, "/pause", {})).status == 200
            assert (await health.Check(asked(ENGINE))).status == STATUS.SERVING
            watch.cancel()

    daemon = Daemon("--startup-duration", "2s", "--vllm-server-dev-mode")
    try:
        asyncio.run(asyncio.wait_for(scenario(daemon), 30))
    finally:
        daemon.end()


def test_calls_can_be_made_by_what_reflection_tells(channel: grpc.Channel) -> None:
    database = ProtoReflectionDescriptorDatabase(channel)
    assert {ENGINE, "grpc.health.v1.Health"} < set(database.get_services())
    pool = DescriptorPool(database)
    service: Any = pool.FindServiceByName(ENGINE)
    generate = service.methods_by_name["Generate"]
    assert generate.server_streaming
    asks, answers = GetMessageClass(generate.input_type), GetMessageClass(generate.output_type)
    method = channel.unary_stream(
        f"/{ENGINE}/Generate",
        request_serializer=asks.SerializeToString,
        response_deserializer=answers.FromString,
    )
    question = asks(tokenized={"input_ids": [1, 2, 3]}, sampling_params={"max_tokens": 4, "ignore_eos": True})
    (answer,) = method(question, timeout=SECONDS)
    assert (len(answer.complete.output_ids), answer.complete.prompt_tokens) == (4, 3)
    with pytest.raises(KeyError):
        pool.FindMessageTypeByName("none.Such")
    assert list(database.FindAllExtensionNumbers(f"{ENGINE.rpartition('.')[0]}.GenerateRequest")) == []
