"""Failures on purpose as grpcio meets them, and clients of HTTP over HTTP/2."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import grpc
import httpx2
import pytest
from grpc import StatusCode

from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from tests.integration.client import eventually
from tests.integration.daemon import Daemon, Pool

pytestmark = pytest.mark.integration

KINDS = pytest.mark.parametrize("stream", [True, False])


@pytest.fixture
def daemon(daemon_with: Pool) -> Daemon:
    """One whose tokens come one by one: a reset may destroy what comes with it."""
    return daemon_with("--inter-token-latency", "20ms")


@pytest.fixture
def channel(daemon: Daemon) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{daemon.port}") as channel:
        yield channel
    metrics = daemon.client.metrics
    eventually(lambda: not metrics().value("vllm:num_requests_running"))


def ask(
    channel: grpc.Channel, fault: str, stream: bool, timeout: float = 10
) -> tuple[list[Any], StatusCode, str, dict[str, str]]:
    """The messages that come, the status and its message, and the trailing metadata."""
    method = channel.unary_stream(
        "/vllm.grpc.engine.VllmEngine/Generate",
        request_serializer=pb.GenerateRequest.SerializeToString,
        response_deserializer=pb.GenerateResponse.FromString,
    )
    params = pb.SamplingParams(max_tokens=5, ignore_eos=True)
    asked = pb.GenerateRequest(text="hi", stream=stream, sampling_params=params)
    call = method(asked, metadata=(("x-fault", fault),) if fault else (), timeout=timeout)
    found: list[Any] = []
    with suppress(grpc.RpcError):
        found.extend(message.WhichOneof("response") for message in iter(call))
    return found, call.code(), call.details(), dict(call.trailing_metadata() or ())


@KINDS
@pytest.mark.parametrize(
    ("fault", "code", "tokens"),
    [
        ("reset", StatusCode.INTERNAL, 0),
        ("reset; after=2", StatusCode.INTERNAL, 2),
        ("truncate; after=2", StatusCode.INTERNAL, 2),
        ("garble; after=2", StatusCode.INTERNAL, 2),
        ("error; code=429", StatusCode.RESOURCE_EXHAUSTED, 0),
        ("error; after=2; code=503", StatusCode.UNAVAILABLE, 2),
        ("status; code=404", StatusCode.NOT_FOUND, 0),
        ("hang", StatusCode.DEADLINE_EXCEEDED, 0),
        ("stall; for=9s", StatusCode.DEADLINE_EXCEEDED, 0),
        ("stall; after=2; for=9s", StatusCode.DEADLINE_EXCEEDED, 2),
        ("slow-headers; for=9s", StatusCode.DEADLINE_EXCEEDED, 0),
        ("slow-body; after=2; for=9s", StatusCode.DEADLINE_EXCEEDED, 2),
    ],
)
def test_what_a_client_makes_of_each_fault(
    channel: grpc.Channel, fault: str, code: StatusCode, tokens: int, stream: bool
) -> None:
    waits = code is StatusCode.DEADLINE_EXCEEDED
    found, told, _, trailers = ask(channel, fault, stream, timeout=0.5 if waits else 10)
    assert told is code
    assert found == ["chunk"] * (tokens if stream else 0)
    assert trailers.get("retry-after") == ("1" if "429" in fault else None)
    assert ask(channel, "", stream)[1] is StatusCode.OK, "the next call is answered"


@pytest.mark.parametrize(
    "fault", ["no-done", "slow-headers; for=0.1s", "slow-body; for=0.1s", "stall; for=0.1s"]
)
def test_faults_that_end_well(channel: grpc.Channel, fault: str) -> None:
    found, code, _, _ = ask(channel, fault, stream=True)
    assert code is StatusCode.OK
    assert found == ["chunk"] * 5 + ([] if fault == "no-done" else ["complete"])


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("reset", httpx2.RemoteProtocolError),
        ("reset; after=2", httpx2.RemoteProtocolError),
        ("truncate; after=2", httpx2.RemoteProtocolError),
        ("hang", httpx2.ReadTimeout),
        ("stall; after=2", httpx2.ReadTimeout),
    ],
)
def test_what_becomes_of_requests_over_http2(daemon: Daemon, fault: str, error: type[Exception]) -> None:
    body = {"prompt": "hi", "max_tokens": 5, "ignore_eos": True, "stream": True}
    url = f"{daemon.base_url}/v1/completions"
    with httpx2.Client(http1=False, http2=True, trust_env=False, timeout=1) as client:
        with pytest.raises(error):
            client.post(url, json=body, headers={"X-Fault": fault})
        refused = client.post(url, json=body, headers={"X-Fault": "status; code=503"})
        assert (refused.status_code, refused.content) == (503, b"")
        again = client.post(url, json=body)
        assert (again.status_code, again.http_version) == (200, "HTTP/2")
        assert again.text.endswith("data: [DONE]\n\n")
