"""HealthCheck: alive, whatever else is the matter, until the engine is dead."""

from __future__ import annotations

from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from tests.rpc.client import RpcClient
from tests.web.rig import RankRig


def health(rig: RankRig) -> tuple[bool, str]:
    answer = RpcClient(rig).unary("HealthCheck", pb.HealthCheckRequest(), pb.HealthCheckResponse)
    return answer.healthy, answer.message


def test_an_engine_is_healthy_until_it_is_dead() -> None:
    rig = RankRig()
    context = rig.rank.context
    assert health(rig) == (True, "Health")
    context.suspension.pause("abort", False)
    assert health(rig) == (True, "Health")
    context.suspension.sleep(2, "abort")
    assert health(rig) == (True, "Health")
    context.draining = True
    assert health(rig) == (True, "Health")
    context.suspension.die()
    assert health(rig) == (False, "Engine is not alive")
