"""What the log and the metrics tell of calls."""

from __future__ import annotations

import json

import pytest

from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from tests.logs.rig import LoggedRank, of
from tests.rpc.client import Call, RpcClient
from tests.web.rig import RankRig
from tests.wire.channel import get

PATH = "/vllm.grpc.engine.VllmEngine/HealthCheck"


def health(client: RpcClient, **more: object) -> Call[pb.HealthCheckResponse]:
    return client.call("HealthCheck", pb.HealthCheckRequest(), pb.HealthCheckResponse, **more)  # type: ignore[arg-type]


def test_access_lines_tell_the_status_of_calls() -> None:
    with LoggedRank("--access-log") as rig:
        client = RpcClient(rig)
        health(client)
        client.call("Nothing", pb.HealthCheckRequest(), pb.HealthCheckResponse)
        client.h2.get(b"/v1/models")
        ended, unknown, models = [line.rpartition(" duration_ms=")[0] for line in rig.access_lines()]
    assert ended.endswith(f' - "POST {PATH} HTTP/2" 200 grpc_status=0')
    assert unknown.endswith('/Nothing HTTP/2" 200 grpc_status=12')
    assert models.endswith(' - "GET /v1/models HTTP/2" 200')


def test_a_call_whose_client_leaves_has_no_status() -> None:
    with LoggedRank("--access-log") as rig:
        call = health(RpcClient(rig), end=False)
        call.cancel()
        (line,) = rig.access_lines()
    assert f'"POST {PATH} HTTP/2" 499 duration_ms=' in line
    assert line.endswith(" aborted")


def test_objects_have_the_status_as_a_number() -> None:
    with LoggedRank("--access-log", "--log-format", "json") as rig:
        health(RpcClient(rig))
        rig.log.destination.flush()
        (line,) = [line for line in map(json.loads, rig.log.lines) if line["logger"].endswith("access")]
    assert (line["path"], line["status"], line["grpc_status"]) == (PATH, 200, 0)


def test_calls_in_full() -> None:
    with LoggedRank("--log-http") as rig:
        client = RpcClient(rig)
        asked = pb.AbortRequest(request_ids=["a", "\x1b[2J"])
        metadata = {b"authorization": b"Bearer sk-1", b"x-data-bin": b"3q2+7w"}
        client.call("Nothing", asked, pb.AbortResponse, metadata=metadata)
        request, response = of("http_dump", rig.log.lines)
    assert f"body {5 + asked.ByteSize()} bytes b'\\x00\\x00\\x00" in request
    assert "authorization: Bearer ********" in request
    assert response.startswith("response: 200 to POST /vllm.grpc.engine.VllmEngine/Nothing from ")
    assert "body a stream, trailers [grpc-status: 12, grpc-message: there is no method " in response
    assert "sk-1" not in rig.log.text


def test_calls_refused_by_the_protocol_are_told_too() -> None:
    with LoggedRank("--log-http", "--access-log") as rig:
        client = RpcClient(rig)
        health(client, metadata={b"content-length": b"999999999"}, end=False)
        request, response = of("http_dump", rig.log.lines)
        (line,) = rig.access_lines()
    assert request.endswith("refused unread")
    assert "grpc-status: 8" in response
    assert " 200 grpc_status=8 " in line


def page(rig: RankRig) -> str:
    return rig.connect().send(get(b"/metrics")).received.decode()


@pytest.mark.parametrize("kind", ["answered", "unknown", "taken back", "refused"])
def test_calls_are_no_http_requests(kind: str) -> None:
    """vLLM answers them in a server of its own."""
    rig = RankRig()
    before = page(rig)
    client = RpcClient(rig)
    match kind:
        case "answered":
            assert health(client).ended
        case "unknown":
            client.call("/a.B/c", b"", pb.AbortResponse)
        case "taken back":
            health(client, end=False).cancel()
        case "refused":
            health(client, metadata={b"content-length": b"999999999"}, end=False)
    assert [line for line in before.splitlines() if line.startswith("http_")] == [
        line for line in page(rig).splitlines() if line.startswith("http_")
    ]
    client.h2.get(b"/v1/models")
    assert 'handler="/v1/models"' in page(rig)
