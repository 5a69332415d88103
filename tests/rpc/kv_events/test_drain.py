"""Subscribers as the daemon ends: they hear of everything, and hold up nothing."""

from __future__ import annotations

import pytest
from twisted.logger import capturedLogs

from llmdsim.engine.kvcache.records import Cleared
from llmdsim.services.drain import Drain
from llmdsim.services.exit_code import ExitCode
from llmdsim.wire.grpc import Code
from tests.rpc.client import RpcClient
from tests.rpc.kv_events.rig import ALONE, numbers, subscribe, tell
from tests.services.drain_rig import Reactor
from tests.services.events_rig import EventsRig
from tests.web.admin.operator import begin


class DrainingRig(EventsRig):
    """A rank that is ready, and is told to end in good order, which may take a minute."""

    def __init__(self, *flags: str) -> None:
        super().__init__(*ALONE, *flags)
        self.start()
        self.reactor = Reactor()
        self.rank.context.ready = True
        self.drain = Drain([self.rank], 60.0, self.clock, self.reactor, lambda: None, ExitCode())

    def end(self) -> None:
        with capturedLogs():
            self.drain.begin("SIGTERM")

    def wait(self, seconds: float) -> None:
        with capturedLogs():
            self.clock.pump([0.05] * round(seconds * 20))


def test_subscribers_hold_up_nothing_and_know_that_they_should_go_elsewhere() -> None:
    rig = DrainingRig()
    call = subscribe(rig)
    rig.end()
    call.client.read()
    assert call.code is Code.UNAVAILABLE
    rig.wait(0.3)
    assert rig.reactor.stops == 1


def test_not_even_one_that_does_not_read() -> None:
    rig = DrainingRig()
    call = subscribe(RpcClient(rig, acknowledges=False, window=10))
    tell(rig, Cleared())
    tell(rig, Cleared())
    rig.end()
    # As any slow reader it has the time for draining to take what it was sent, and the end.
    rig.wait(1.0)
    assert rig.reactor.stops == 0
    call.client.h2.acknowledges = True
    call.client.h2.open_window(1000, call.stream_id)
    assert call.code is Code.UNAVAILABLE
    rig.wait(0.3)
    assert rig.reactor.stops == 1


def test_they_hear_of_all_that_runs_yet() -> None:
    rig = DrainingRig("--inter-token-latency", "1s", "--event-flush-interval", "30s")
    call = subscribe(rig)
    body = {"model": "m", "prompt": [*range(20)], "max_tokens": 6, "ignore_eos": True}
    begin(rig, "POST", "/v1/completions", body)
    rig.wait(0.1)
    rig.end()
    late = subscribe(rig)
    assert late.code is Code.UNAVAILABLE
    rig.wait(3.0)
    assert (numbers(call), call.ended, rig.reactor.stops) == ([], False, 0)
    rig.wait(3.0)
    assert numbers(call) == [0]
    assert call.code is Code.UNAVAILABLE
    assert rig.reactor.stops == 1


@pytest.mark.parametrize("dies", [False, True])
def test_a_rank_that_is_broken_ends_them_too(dies: bool) -> None:
    rig = DrainingRig()
    call = subscribe(rig)
    if dies:
        rig.rank.context.suspension.die()
    with capturedLogs():
        rig.drain.begin("a rank is dead", exit_code=1)
    rig.wait(0.3)
    call.client.read()
    assert call.code is Code.UNAVAILABLE
    assert rig.reactor.stops == 1
