"""The end of the daemon as gRPC's clients, and those of HTTP/2, live through it."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import grpc
import httpx2
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.wire.http2.frames import PREFACE
from tests.integration.client import eventually
from tests.integration.daemon import Daemon, free_port

pytestmark = pytest.mark.integration

#: A reply of 20 tokens takes about a second.
PACE = ("--inter-token-latency", "50ms")
SERVICE = "/vllm.grpc.engine.VllmEngine"


def generate(channel: grpc.aio.Channel, tokens: int = 20) -> grpc.aio.UnaryStreamCall[Any, Any]:
    method = channel.unary_stream(
        f"{SERVICE}/Generate",
        request_serializer=pb.GenerateRequest.SerializeToString,
        response_deserializer=pb.GenerateResponse.FromString,
    )
    params = pb.SamplingParams(max_tokens=tokens, ignore_eos=True)
    return method(pb.GenerateRequest(text="hi", stream=True, sampling_params=params))


def channel_to(*daemons: Daemon) -> grpc.aio.Channel:
    target = ",".join(f"127.0.0.1:{daemon.port}" for daemon in daemons)
    # Channels of one process share connections unless they differ.
    return grpc.aio.insecure_channel(f"ipv4:{target}", options=[("grpc.use_local_subchannel_pool", 1)])


async def messages_of(call: grpc.aio.UnaryStreamCall[Any, Any]) -> list[Any]:
    """Those that come from now on."""
    found = []
    while (message := await call.read()) is not grpc.aio.EOF:
        found.append(message)
    return found


async def code_of(call: grpc.aio.UnaryStreamCall[Any, Any]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await messages_of(call)
    return caught.value.code(), caught.value.details() or ""


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 30))


UNAVAILABLE = grpc.StatusCode.UNAVAILABLE, "The server is shutting down."


def test_streams_finish_new_calls_are_unavailable_and_health_is_told_at_once() -> None:
    async def scenario(daemon: Daemon) -> None:
        async with channel_to(daemon) as channel, channel_to(daemon) as other, channel_to(daemon) as watching:
            running = [generate(channel) for _ in range(5)]
            begun = [await call.read() for call in running]
            assert all(message.HasField("chunk") for message in begun)
            health = health_pb2_grpc.HealthStub(watching)
            watch = health.Watch(health_pb2.HealthCheckRequest(service="vllm.grpc.engine.VllmEngine"))
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
            daemon.signal(signal.SIGTERM)
            began = time.monotonic()
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            assert time.monotonic() - began < 0.5
            assert await code_of(generate(other)) == UNAVAILABLE
            # On the connection of those that run, too, which then go on.
            assert await code_of(generate(channel)) == UNAVAILABLE
            for call in running:
                rest = await messages_of(call)
                assert len(rest) == 20
                assert rest[-1].complete.finish_reason == "length"
                assert await call.code() is grpc.StatusCode.OK
            # What would go on for ever ends when all else is done.
            assert await code_of(watch) == UNAVAILABLE

    with Daemon(*PACE) as daemon:
        run(scenario(daemon))
        began = time.monotonic()
        assert daemon.wait() == 0
        assert time.monotonic() - began < 2


def test_when_the_time_is_over_calls_are_told() -> None:
    async def scenario(daemon: Daemon) -> None:
        async with channel_to(daemon) as channel:
            call = generate(channel, 1000)
            await call.read()
            daemon.signal(signal.SIGTERM)
            assert await code_of(call) == UNAVAILABLE

    with Daemon(*PACE, "--shutdown-timeout", "0.5s") as daemon:
        run(scenario(daemon))
        assert daemon.wait() == 0


async def questions() -> AsyncIterator[Any]:
    yield reflection_pb2.ServerReflectionRequest(list_services="")
    await asyncio.sleep(60)


def test_nobody_who_is_only_there_holds_up_the_end() -> None:
    async def scenario(daemon: Daemon) -> None:
        async with (
            channel_to(daemon) as idle,
            channel_to(daemon) as other,
            channel_to(daemon) as watching,
        ):
            assert len(await messages_of(generate(idle, 1))) == 2
            asked = reflection_pb2_grpc.ServerReflectionStub(other).ServerReflectionInfo(questions())
            assert (await asked.read()).list_services_response.service
            watch = health_pb2_grpc.HealthStub(watching).Watch(health_pb2.HealthCheckRequest())
            await watch.read()
            daemon.signal(signal.SIGTERM)
            began = time.monotonic()
            await asyncio.to_thread(daemon.wait)
            assert time.monotonic() - began < 2  # about 0.2 s where nothing else runs

    with Daemon() as daemon:
        with socket.create_connection(("127.0.0.1", daemon.port)) as half, daemon.client.connect() as begun:
            half.sendall(PREFACE[:10])
            begun.socket.sendall(PREFACE + b"\0\0\0\4\0\0\0\0\0")
            run(scenario(daemon))
        assert daemon.wait() == 0


def test_a_client_that_never_reads_has_the_time_there_is() -> None:
    async def scenario(daemon: Daemon) -> None:
        async with channel_to(daemon) as channel:
            call = generate(channel, 20_000)
            await call.read()
            # The client's own buffers are full some time after that.
            await asyncio.sleep(1)
            daemon.signal(signal.SIGTERM)
            began = time.monotonic()
            await asyncio.to_thread(daemon.wait)
            assert time.monotonic() - began < 4
            call.cancel()

    with Daemon("--max-model-len", "30000", "--shutdown-timeout", "1s") as daemon:
        run(scenario(daemon))
        assert daemon.wait() == 0


def test_clients_go_on_at_another_server() -> None:
    async def scenario(first: Daemon, second: Daemon) -> None:
        # It takes the first that answers, and stays there.
        async with channel_to(first, second) as channel:
            assert len(await messages_of(generate(channel, 1))) == 2
            assert first.client.metrics().value("vllm:request_success_total", finished_reason="length") == 1
            first.signal(signal.SIGTERM)
            assert await asyncio.to_thread(first.wait) == 0
            for _ in range(5):
                assert len(await messages_of(generate(channel, 1))) == 2
            assert second.client.metrics().value("vllm:request_success_total", finished_reason="length") == 5

    with Daemon(*PACE) as first, Daemon(*PACE) as second:
        run(scenario(first, second))


def test_streams_over_http2_outlast_a_refusal_on_their_connection() -> None:
    body = {"prompt": "a", "max_tokens": 20, "ignore_eos": True, "stream": True}

    async def scenario(daemon: Daemon) -> None:
        url = f"{daemon.base_url}/v1/completions"
        limits = httpx2.Limits(max_connections=1)
        async with (
            httpx2.AsyncClient(http1=False, http2=True, limits=limits, trust_env=False) as client,
            client.stream("POST", url, json=body) as response,
        ):
            lines = response.aiter_lines()
            assert (await anext(lines)).startswith("data: ")
            daemon.signal(signal.SIGTERM)
            while (await client.get(f"{daemon.base_url}/ready")).status_code == 200:
                await asyncio.sleep(0.01)
            refused = await client.post(url, json=body)
            assert (refused.status_code, refused.http_version) == (503, "HTTP/2")
            rest = [line async for line in lines if line]
            assert rest[-1] == "data: [DONE]"

    with Daemon(*PACE) as daemon:
        run(scenario(daemon))
        assert daemon.wait() == 0


def test_a_further_port_serves_the_same(tmp_path: Any) -> None:
    port = free_port()

    async def scenario(daemon: Daemon) -> None:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            assert len(await messages_of(generate(channel, 2))) == 3
        async with httpx2.AsyncClient(trust_env=False) as client:
            assert (await client.get(f"http://127.0.0.1:{port}/v1/models")).status_code == 200

    with Daemon("--grpc-port", str(port)) as daemon:
        run(scenario(daemon))
        # Both are announced.
        eventually(lambda: f":{port} - try" in daemon.stderr)
