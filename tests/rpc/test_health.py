"""`grpc.health.v1.Health`."""

from __future__ import annotations

import pytest
from twisted.logger import capturedLogs

from llmdsim.rpc.health import Health
from llmdsim.rpc.pb import grpc_health_v1_pb2 as pb
from llmdsim.rpc.services import ENGINE, HEALTH
from llmdsim.wire.grpc import Code
from tests.rpc.client import RpcClient
from tests.web.rig import RankRig

CHECK, LIST, WATCH = (f"/grpc.health.v1.Health/{name}" for name in ("Check", "List", "Watch"))


def asked(service: str) -> pb.HealthCheckRequest:
    return pb.HealthCheckRequest(service=service)


def rig_of() -> tuple[RankRig, RpcClient]:
    rig = RankRig()
    rig.rank.context.ready = True
    return rig, RpcClient(rig)


@pytest.mark.parametrize(
    "service", ["", ENGINE, "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"]
)
def test_what_is_there_serves(service: str) -> None:
    _, client = rig_of()
    assert (
        client.unary(CHECK, asked(service), pb.HealthCheckResponse).status == pb.HealthCheckResponse.SERVING
    )


def test_what_is_not_there_is_not_found() -> None:
    _, client = rig_of()
    call = client.call(CHECK, asked("none.such"), pb.HealthCheckResponse)
    assert (call.code, "none.such" in call.message) == (Code.NOT_FOUND, True)


def test_it_serves_from_the_end_of_the_start_to_the_beginning_of_the_end() -> None:
    rig, client = rig_of()
    context = rig.rank.context

    def status() -> int:
        return client.unary(CHECK, asked(""), pb.HealthCheckResponse).status

    context.ready = False
    assert status() == pb.HealthCheckResponse.NOT_SERVING
    context.ready = True
    context.suspension.sleep(1, "abort")
    assert status() == pb.HealthCheckResponse.SERVING
    context.suspension.wake_up([])
    context.draining = True
    assert status() == pb.HealthCheckResponse.NOT_SERVING
    context.draining = False
    context.suspension.die()
    assert status() == pb.HealthCheckResponse.NOT_SERVING


def test_all_are_listed() -> None:
    _, client = rig_of()
    statuses = client.unary(LIST, pb.HealthListRequest(), pb.HealthListResponse).statuses
    assert {"", ENGINE, HEALTH} <= set(statuses)
    assert {each.status for each in statuses.values()} == {pb.HealthCheckResponse.SERVING}


def test_who_watches_is_told_of_changes() -> None:
    rig, client = rig_of()
    known = client.call(WATCH, asked(ENGINE), pb.HealthCheckResponse)
    unknown = client.call(WATCH, asked("none.such"), pb.HealthCheckResponse)
    client.wait(1)
    assert [each.status for each in known.messages] == [pb.HealthCheckResponse.SERVING]
    rig.rank.context.draining = True
    client.wait(0.2)
    rig.rank.context.draining = False
    client.wait(0.2)
    told = [each.status for each in known.messages]
    assert told == [
        pb.HealthCheckResponse.SERVING,
        pb.HealthCheckResponse.NOT_SERVING,
        pb.HealthCheckResponse.SERVING,
    ]
    assert [each.status for each in unknown.messages] == [pb.HealthCheckResponse.SERVICE_UNKNOWN]
    assert not unknown.ended
    rig.rank.calls.end_endless()
    client.wait()
    assert (known.code, unknown.code) == (Code.UNAVAILABLE, Code.UNAVAILABLE)


def test_nobody_looks_when_nobody_watches() -> None:
    rig, client = rig_of()
    before = len(rig.clock.getDelayedCalls())
    calls = [client.call(WATCH, asked(""), pb.HealthCheckResponse) for _ in range(3)]
    assert len(rig.clock.getDelayedCalls()) == before + 1
    for call in calls:
        call.cancel()
    client.wait(0.2)
    assert len(rig.clock.getDelayedCalls()) == before


def test_a_watcher_that_does_not_read_is_told_when_it_does() -> None:
    rig, _ = rig_of()
    client = RpcClient(rig, acknowledges=False, window=2)
    call = client.call(WATCH, asked(""), pb.HealthCheckResponse)
    for draining in (True, False, True):
        rig.rank.context.draining = draining
        client.wait(0.2)
    client.h2.open_window(1000, call.stream_id)
    client.wait(0.2)
    assert [each.status for each in call.messages] == [
        pb.HealthCheckResponse.SERVING,
        pb.HealthCheckResponse.NOT_SERVING,
    ]


def test_a_fault_of_ours_ends_those_who_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    _, client = rig_of()
    calls = [client.call(WATCH, asked(""), pb.HealthCheckResponse) for _ in range(2)]
    monkeypatch.setattr(Health, "_status", property(lambda health: 1 // 0))
    with capturedLogs() as logged:
        client.wait(0.2)
    assert [(call.code, call.message) for call in calls] == [(Code.INTERNAL, "Internal server error")] * 2
    assert sum("log_failure" in event for event in logged) == 2
    monkeypatch.undo()
    assert client.call(WATCH, asked(""), pb.HealthCheckResponse).messages
