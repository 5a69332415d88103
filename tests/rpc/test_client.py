"""The client of these tests, against the one method that there is no way to get wrong."""

from __future__ import annotations

from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.wire.grpc import Code
from tests.rpc.client import RpcClient
from tests.web.rig import RankRig


def test_a_unary_call_is_answered() -> None:
    client = RpcClient(RankRig())
    answer = client.unary("HealthCheck", pb.HealthCheckRequest(), pb.HealthCheckResponse)
    assert (answer.healthy, answer.message) == (True, "Health")


def test_a_call_that_fails_has_a_status_and_its_message() -> None:
    client = RpcClient(RankRig())
    call = client.call("NoSuchCall", pb.HealthCheckRequest(), pb.HealthCheckResponse)
    assert call.ended
    assert call.code is Code.UNIMPLEMENTED
    assert call.message == "there is no method /vllm.grpc.engine.VllmEngine/NoSuchCall"
    call = client.call("Näme", pb.HealthCheckRequest(), pb.HealthCheckResponse)
    assert call.message == "there is no method /vllm.grpc.engine.VllmEngine/Näme"


def test_messages_may_be_sent_later() -> None:
    client = RpcClient(RankRig())
    call = client.call("HealthCheck", None, pb.HealthCheckResponse, end=False)
    assert not call.ended
    call.send(pb.HealthCheckRequest(), end=True)
    assert call.ok()[0].healthy


def test_a_call_can_be_cancelled() -> None:
    client = RpcClient(RankRig())
    call = client.call("HealthCheck", None, pb.HealthCheckResponse, end=False)
    call.cancel()
    assert client.unary("HealthCheck", pb.HealthCheckRequest(), pb.HealthCheckResponse).healthy
    assert not call.messages
