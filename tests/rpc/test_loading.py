"""Calls to a server that seems to load its model."""

from __future__ import annotations

import pytest

from llmdsim.rpc.pb import grpc_health_v1_pb2 as pb_health
from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.web.loading import Loading
from llmdsim.wire.grpc import Code
from tests.rpc.client import Call, RpcClient
from tests.web.rig import RankRig


def ask(client: RpcClient, method: str) -> Call[pb.AbortResponse]:
    return client.call(method, pb.AbortRequest(), pb.AbortResponse)


@pytest.mark.parametrize("method", ["Generate", "Embed", "GetModelInfo", "Nothing", "/no.Service/Call"])
def test_all_calls_but_those_about_health_are_unavailable(method: str) -> None:
    rig = RankRig()
    loading = Loading(rig.clock.seconds() + 10, rig.clock.seconds)
    rig.rank.calls.hold(loading.refusal)
    client = RpcClient(rig)
    call = ask(client, method)
    assert (call.code, call.message) == (
        Code.UNAVAILABLE,
        "The server is loading the model; try again later.",
    )
    assert call.trailers[b"retry-after"] == b"10"
    assert client.unary("HealthCheck", pb.HealthCheckRequest(), pb.HealthCheckResponse).healthy
    assert client.h2.goaways == [], "there is no other server at this address"
    for asked, health in (("Check", pb_health.HealthCheckRequest), ("List", pb_health.HealthListRequest)):
        assert client.call(f"/grpc.health.v1.Health/{asked}", health(), pb.AbortResponse).code is Code.OK
    watched = client.call("/grpc.health.v1.Health/Watch", pb_health.HealthCheckRequest(), pb.AbortResponse)
    assert watched.messages
    assert not watched.ended
    rig.rank.calls.release()
    assert ask(client, "Nothing").code is Code.UNIMPLEMENTED
