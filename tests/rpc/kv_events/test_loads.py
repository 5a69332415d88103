"""How busy the engine is, as subscribers are told."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from twisted.logger import capturedLogs

from llmdsim.engine.kvcache.records import Cleared
from llmdsim.rpc.kv_events import subscription
from llmdsim.rpc.pb import common_pb2 as pb
from llmdsim.wire.grpc import Code
from tests.rpc.client import RpcClient
from tests.rpc.kv_events.rig import ALONE, Batches, batches, loads, subscribe, tell
from tests.services.events_rig import EventsRig

#: One request at a time, whose second token never comes.
SLOW = (*ALONE, "--max-num-seqs", "1", "--inter-token-latency", "1h", "--kv-cache-size", "100")

#: Tenths of a second between records that tell nothing new.
PAUSES = (10, 10, 50, 50)


def begin(rig: EventsRig, prompt: list[int]) -> None:
    body = {"model": "m", "prompt": prompt, "max_tokens": 9, "ignore_eos": True}
    rig.post("/v1/completions", body)
    rig.settle()


def wait(call: Batches, seconds: float) -> None:
    """In steps of the clock that all can follow."""
    for _ in range(round(seconds / 0.1)):
        call.client.wait(0.1)


def test_the_first_record_is_whole_and_later_ones_have_what_changes_fast() -> None:
    rig = EventsRig(*SLOW).start()
    call = subscribe(rig)
    begin(rig, [*range(40)])
    begin(rig, [*range(100, 120)])
    tell(rig, Cleared())
    first, second = batches(call)[:2]
    assert first.load == pb.EngineLoad(
        running_requests=1,
        waiting_requests=0,
        waiting_uncached_tokens=0,
        token_usage=0.05,
        gen_throughput=first.load.gen_throughput,
        max_running_requests=1,
        sample=1,
        cache_hit_rate=0.0,
        num_used_tokens=40,
        max_total_num_tokens=800,
    )
    assert second.load == pb.EngineLoad(
        running_requests=1,
        waiting_requests=1,
        waiting_uncached_tokens=20,
        token_usage=0.06,
        gen_throughput=second.load.gen_throughput,
        max_running_requests=1,
        sample=2,
    )


def test_nothing_is_told_of_it_before_the_first_batch() -> None:
    rig = EventsRig(*SLOW).start()
    call = subscribe(rig)
    wait(call, 3.0)
    assert not call.messages
    tell(rig, Cleared())
    wait(call, 1.2)
    assert len(loads(call)) == 1


def test_unless_that_is_asked_for() -> None:
    rig = EventsRig(*SLOW).start()
    subscribe(rig)
    tell(rig, Cleared())
    tell(rig, Cleared())
    call = subscribe(rig, early=True)
    (message,) = call.messages
    assert (message.sequence_number, message.dp_rank, len(message.events)) == (1, 0, 0)
    assert abs(message.timestamp - time.time()) < 60
    assert message.load.load_only
    assert message.load.HasField("max_total_num_tokens")
    assert message.load.sample == 1
    tell(rig, Cleared())
    batch = batches(call)[0]
    assert (batch.sequence_number, batch.load.load_only, batch.load.sample) == (2, False, 2)
    assert not batch.load.HasField("max_total_num_tokens")


def test_an_unchanged_load_is_told_after_one_second_twice_and_then_after_five() -> None:
    rig = EventsRig(*SLOW).start()
    call = subscribe(rig)
    tell(rig, Cleared())
    told = [0]
    for tenth in range(1, 140):
        wait(call, 0.1)
        told += [tenth] * (len(loads(call)) + 1 - len(told))
    # It is looked every tenth of a second, which may be a moment too early.
    assert [later - before for before, later in pairwise(told)] == [
        pytest.approx(pause, abs=1) for pause in PAUSES
    ]
    assert {message.sequence_number for message in call.messages} == {0}
    assert [record.sample for record in loads(call)] == [2, 3, 4, 5]
    assert all(record.load_only and record.HasField("cache_hit_rate") for record in loads(call))
    # A batch begins it anew.
    tell(rig, Cleared())
    wait(call, 1.1)
    assert len(loads(call)) == 5
    assert call.messages[-1].sequence_number == 1


def test_a_change_is_told_in_a_tenth_of_a_second() -> None:
    rig = EventsRig(*SLOW).start()
    call = subscribe(rig)
    begin(rig, [*range(40)])
    wait(call, 5.0)
    before = len(loads(call))
    begin(rig, [*range(100, 120)])
    wait(call, 0.1)
    assert len(loads(call)) == before + 1
    assert loads(call)[-1].waiting_requests == 1
    assert loads(call)[-1].waiting_uncached_tokens == 20
    wait(call, 0.8)
    assert len(loads(call)) == before + 1


def test_none_is_kept_for_who_does_not_read() -> None:
    rig = EventsRig(*SLOW).start()
    call = subscribe(RpcClient(rig, acknowledges=False, window=10))
    tell(rig, Cleared())
    for _ in range(30):
        rig.clock.advance(0.1)
    call.client.h2.acknowledges = True
    call.client.h2.open_window(10_000, call.stream_id)
    assert len(call.messages) == 1
    wait(call, 0.2)
    assert len(loads(call)) == 1


def test_a_late_record_has_nothing_of_one_for_others() -> None:
    rig = EventsRig(*SLOW).start()
    slow = subscribe(RpcClient(rig, acknowledges=False, window=10))
    tell(rig, Cleared())
    tell(rig, Cleared())
    new = subscribe(rig)
    tell(rig, Cleared())
    slow.client.h2.acknowledges = True
    slow.client.h2.open_window(10_000, slow.stream_id)
    assert batches(new)[0].load.HasField("cache_hit_rate")
    assert [message.load.HasField("cache_hit_rate") for message in batches(slow)] == [True, False, False]


def test_a_fault_of_ours_ends_the_calls_it_concerns(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = EventsRig(*SLOW).start()
    told, quiet = subscribe(rig, early=True), subscribe(rig)
    with monkeypatch.context() as patched, capturedLogs() as logged:
        patched.setattr(subscription, "engine_load", lambda context: 1 // 0)
        wait(told, 0.2)
        late = subscribe(rig, early=True)
    assert [(call.code, call.message) for call in (told, late)] == [
        (Code.INTERNAL, "Internal server error")
    ] * 2
    assert sum("log_failure" in event for event in logged) == 2
    tell(rig, Cleared())
    assert len(batches(quiet)) == 1
    wait(quiet, 1.2)
    assert len(loads(quiet)) == 1
    quiet.cancel()
    assert not rig.rank.event_feed._publisher.listener  # type: ignore[union-attr]
