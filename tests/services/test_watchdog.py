"""A dead engine ends the daemon: after the first failed call or a few seconds, with exit code 1."""

from __future__ import annotations

import pytest
from twisted.logger import capturedLogs

from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.services.watchdog import Watchdog
from llmdsim.wire.grpc import Code
from tests.rpc.client import RpcClient
from tests.services.test_drain import DrainRig
from tests.web.access.rig import ask
from tests.web.admin.operator import PACED, told
from tests.web.clients import CHAT, post, reply_of
from tests.wire.channel import get, read_replies

CRASHES = (*PACED, "--max-num-seqs", "2", "--vllm-server-dev-mode")


class WatchdogRig(DrainRig):
    def __init__(self, monkeypatch: pytest.MonkeyPatch, *flags: str) -> None:
        super().__init__(monkeypatch, *CRASHES, *flags)
        self.watchdog = Watchdog(self.rank, self.drain, self.clock)

    def crash(self) -> None:
        with capturedLogs():
            told(self, "POST", "/admin/crash")

    @property
    def end(self) -> tuple[int, int]:
        """How often the reactor was stopped, and the exit code."""
        return self.reactor.stops, self.exit_code.code


def test_a_call_that_fails_with_the_engine_ends_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = WatchdogRig(monkeypatch)
    stream, whole, queued = (post(rig, CHAT, stream=stream) for stream in (True, False, True))
    assert (rig.rank.stats.running, rig.rank.stats.waiting) == (2, 1)
    rig.crash()
    rig.wait(0.25)
    assert rig.end == (1, 1)
    assert reply_of(whole).status == 500
    for client in (stream, whole, queued):
        assert reply_of(client).complete
        assert client.fate == "closed"


def test_a_call_that_comes_later_and_fails_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = WatchdogRig(monkeypatch)
    rig.crash()
    rig.wait(1)
    assert [ask(rig, path).status for path in (b"/health", b"/ready", b"/metrics")] == [503, 503, 200]
    rig.wait(0.25)
    assert rig.end == (0, 0), "probes are no calls"
    assert reply_of(post(rig, CHAT)).status == 500
    assert rig.reactor.stops == 0, "not before it is answered"
    rig.wait(0.25)
    assert rig.end == (1, 1)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("stream", [True, False])
def test_a_call_of_grpc_that_fails_ends_it(
    monkeypatch: pytest.MonkeyPatch, stream: bool, before: bool
) -> None:
    rig = WatchdogRig(monkeypatch)
    caller = RpcClient(rig)
    if not before:
        rig.crash()
    call = caller.call("Generate", pb.GenerateRequest(text="a", stream=stream), pb.GenerateResponse)
    if before:
        rig.crash()
    assert rig.reactor.stops == 0, "not before it is answered"
    rig.wait(0.25)
    caller.read()
    assert call.code is Code.INTERNAL
    assert rig.end == (1, 1)


def test_calls_of_grpc_that_are_answered_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = WatchdogRig(monkeypatch)
    rig.crash()
    call = RpcClient(rig).call("HealthCheck", pb.HealthCheckRequest(), pb.HealthCheckResponse)
    assert not call.ok()[0].healthy
    rig.wait(1)
    assert rig.end == (0, 0)


@pytest.mark.parametrize(("flags", "seconds"), [((), 5.0), (("--speed", "2"), 2.5)])
@pytest.mark.parametrize("streams", [0, 2])
def test_a_death_that_only_streams_notice_ends_it_after_a_while(
    monkeypatch: pytest.MonkeyPatch, streams: int, flags: tuple[str, ...], seconds: float
) -> None:
    rig = WatchdogRig(monkeypatch, *flags)
    clients = [post(rig, CHAT, stream=True) for _ in range(streams)]
    rig.crash()
    assert all(reply_of(client).complete for client in clients)
    rig.wait(seconds - 0.125)
    assert rig.end == (0, 0)
    rig.wait(0.375)
    assert rig.end == (1, 1)


def test_it_does_not_wait_for_those_who_do_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = WatchdogRig(monkeypatch)
    slow = rig.connect()
    slow.transport.stop_reading()
    slow.send(get(b"/metrics"))
    rig.crash()
    rig.wait(5.25)
    assert rig.end == (0, 1)
    rig.wait(1)
    assert rig.end == (1, 1)


def test_a_daemon_that_is_to_be_kept_alive_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = WatchdogRig(monkeypatch, "--keep-alive-on-engine-death")
    rig.crash()
    client = post(rig, CHAT)
    rig.wait(20)
    client.send(get(b"/health"), get(b"/v1/models"))
    replies = read_replies(client.received, [b"POST", b"GET", b"GET"], ended=False)
    assert [reply.status for reply in replies] == [500, 503, 200]
    assert rig.end == (0, 0)
    rig.kill()
    rig.wait(0.25)
    assert rig.end == (1, 0)


def test_an_engine_that_dies_in_a_drain_changes_nothing_about_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = WatchdogRig(monkeypatch)
    whole = post(rig, CHAT)
    rig.kill()
    rig.crash()
    rig.wait(0.25)
    assert reply_of(whole).status == 500
    assert rig.end == (1, 0)


def test_a_daemon_that_ends_forgets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = WatchdogRig(monkeypatch)
    rig.crash()
    rig.watchdog.stopService()
    assert rig.clock.getDelayedCalls() == []
