"""Who may subscribe, what they are told, and that nothing is left of it when they go."""

from __future__ import annotations

import pytest
from twisted.logger import capturedLogs

from llmdsim.engine.kvcache.records import Cleared, Removed
from llmdsim.kvevents.wire import decoded
from llmdsim.rpc.kv_events.conversion import PORTION, Conversion
from llmdsim.rpc.kv_events.relay import MOST_SUBSCRIPTIONS
from llmdsim.rpc.kv_events.subscription import MOST_BATCHES, MOST_BYTES, SLICE
from llmdsim.web.turns import Turns
from llmdsim.wire.grpc import Code
from tests.rpc.client import RpcClient
from tests.rpc.kv_events.rig import (
    ALONE,
    batches,
    generate,
    loads,
    numbers,
    only_event,
    stored,
    subscribe,
    tell,
)
from tests.services.events_rig import ON, EventsRig
from tests.web.admin.operator import call as ask

REPLAY = (*ON, "--kv-events-replay-endpoint", "tcp://*:6100", "--seed", "1")
PROMPT = range(100, 113)


def fault(rig: EventsRig, *kinds: str) -> None:
    rig.admin(kv_event_fault_rate=100, kv_event_faults=[f"{kind}; times=1" for kind in kinds])


def test_r66_who_subscribes_knows_at_once_and_is_told_what_zeromq_carries() -> None:
    rig = EventsRig(*ON).start()
    tell(rig, Cleared())
    call = subscribe(rig)
    assert call.headers[b":status"] == b"200"
    assert call.headers[b"content-type"] == b"application/grpc"
    assert not call.data
    tell(rig, stored(2, 2**63), Removed(5))
    tell(rig, Cleared())
    sent = rig.transport.publishing.sent[1:]
    assert numbers(call) == [int.from_bytes(number, "big") for _, number, _ in sent] == [1, 2]
    for message, (_, _, payload) in zip(batches(call), sent, strict=True):
        moment, events, rank = decoded(payload)
        assert (message.timestamp, message.dp_rank) == (moment, rank)
        assert len(message.events) == len(events)
    first, second = batches(call)
    assert [event.event_id for event in first.events] == [1, 2]
    assert [event.event_id for event in second.events] == [3]
    assert [block.block_hash for block in first.events[0].stored.blocks] == [-(2**63), -(2**63) + 1]


def test_each_call_counts_for_itself() -> None:
    rig = EventsRig(*ON).start()
    first = subscribe(rig)
    tell(rig, Cleared())
    second = subscribe(first.client)
    third = subscribe(rig)
    tell(rig, Removed(1), Cleared())
    assert numbers(first) == [0, 1]
    assert numbers(second) == numbers(third) == [1]
    assert [event.event_id for event in batches(first)[1].events] == [2, 3]
    for call in (second, third):
        (message,) = batches(call)
        assert [event.event_id for event in message.events] == [1, 2]
        assert message.load.sample == 1
    assert batches(first)[1].load.sample == 2


@pytest.mark.parametrize(
    ("flags", "document"),
    [
        ((), None),
        (("--enable-kvcache",), {"enable_kv_cache_events": False}),
        ((), {"enable_kv_cache_events": True, "publisher": "null"}),
    ],
)
def test_where_there_are_no_events_the_method_is_not_there(
    flags: tuple[str, ...], document: dict[str, object] | None
) -> None:
    rig = EventsRig(*flags, document=document).start()
    call = subscribe(rig)
    assert call.ended
    assert call.code is Code.UNIMPLEMENTED
    assert "--enable-kvcache" in call.message
    assert rig.rank.driver.on_records is None


def test_without_zeromq_a_cache_is_enough_and_nothing_is_made_for_nobody() -> None:
    rig = EventsRig(*ALONE).start()
    cache = rig.rank.engine.cache
    assert cache is not None
    generate(rig, PROMPT)
    assert (rig.made, rig.rank.driver.on_records, cache.announces) == (0, None, False)
    assert all(block.hash is None for block in cache.pool.blocks())
    call = subscribe(rig)
    assert cache.announces
    # What was stored before is told of as something is built on it, and that a number is left out says so.
    generate(rig, [*PROMPT, *range(200, 207)])
    (message,) = batches(call)
    assert message.sequence_number == 1
    told = message.events[0].stored
    assert [block.token_ids[0] for block in told.blocks] == [100, 108]
    assert not told.HasField("parent_block_hash")
    assert rig.metric("llmdsim:kv_event_batches_total") == 1
    call.cancel()
    assert not cache.announces


@pytest.mark.parametrize("how", ["cancel", "disconnect", "deadline"])
def test_who_goes_leaves_nothing_behind(how: str) -> None:
    rig = EventsRig(*ALONE).start()
    cache = rig.rank.engine.cache
    assert cache is not None
    before = len(rig.clock.getDelayedCalls())
    calls = [subscribe(rig, timeout="50m" if how == "deadline" else None) for _ in range(2)]
    tell(rig, Cleared())
    for number, call in enumerate(calls):
        assert cache.announces
        assert len(batches(call)) == 1
        match how:
            case "cancel":
                call.cancel()
            case "disconnect":
                call.client.h2.client.rst()
            case _ if number == 0:
                call.client.wait(0.06)
                assert call.code is Code.DEADLINE_EXCEEDED
                break
    rig.settle()
    assert not cache.announces
    assert rig.rank.event_feed._publisher is not None
    assert rig.rank.event_feed._publisher.listener is None
    assert len(rig.clock.getDelayedCalls()) == before
    # Nobody minds what is told to nobody.
    tell(rig, Cleared())


def test_while_zeromq_is_listened_to_blocks_are_told_of_whoever_leaves() -> None:
    rig = EventsRig(*ON).start()
    cache = rig.rank.engine.cache
    assert cache is not None
    call = subscribe(rig)
    rig.transport.publishing.told(False)
    assert cache.announces
    call.cancel()
    assert not cache.announces
    rig.transport.publishing.told(True)
    call = subscribe(rig)
    call.cancel()
    assert cache.announces


def test_with_replay_blocks_are_told_of_always() -> None:
    rig = EventsRig(*REPLAY).start()
    cache = rig.rank.engine.cache
    assert cache is not None
    subscribe(rig).cancel()
    assert cache.announces


def test_there_is_an_end_to_subscriptions() -> None:
    rig = EventsRig(*ALONE).start()
    client = RpcClient(rig)
    calls = [subscribe(client) for _ in range(MOST_SUBSCRIPTIONS)]
    refused = subscribe(client)
    assert refused.code is Code.RESOURCE_EXHAUSTED
    calls[0].cancel()
    assert not subscribe(client).ended


def test_each_rank_tells_its_own_number() -> None:
    rig = EventsRig(*ON, "--data-parallel-size", "3", rank=2).start()
    call = subscribe(rig, early=True)
    tell(rig, Cleared())
    call.client.read()
    assert [message.dp_rank for message in call.messages] == [2, 2]


# --- from a number on


def test_r66_what_is_kept_for_replay_is_told_first() -> None:
    rig = EventsRig(*REPLAY).start()
    for each in range(5):
        tell(rig, Removed(each))
    call = subscribe(rig, start=2)
    tell(rig, Removed(5))
    assert numbers(call) == [2, 3, 4, 5]
    assert [message.events[0].removed.block_hashes[0] for message in batches(call)] == [2, 3, 4, 5]
    assert [message.events[0].event_id for message in batches(call)] == [1, 2, 3, 4]
    sent = [decoded(payload)[0] for _, _, payload in rig.transport.publishing.sent]
    assert [message.timestamp for message in batches(call)] == sent[2:]
    upcoming = subscribe(rig, start=6)
    assert not upcoming.ended
    tell(rig, Removed(6))
    assert numbers(upcoming) == [6]


@pytest.mark.parametrize(
    ("flags", "start"),
    [
        (ON, 2),
        (REPLAY, 6),
        ((*REPLAY, "--kv-events-replay-queue-size", "3"), 1),
        (REPLAY, 2**64 - 1),
    ],
)
def test_what_is_not_kept_cannot_be_asked_for(flags: tuple[str, ...], start: int) -> None:
    rig = EventsRig(*flags).start()
    for each in range(5):
        tell(rig, Removed(each))
    call = subscribe(rig, start=start)
    assert (call.ended, call.code) == (True, Code.OUT_OF_RANGE)
    assert "5 comes next" in call.message
    assert not subscribe(rig).ended


def test_many_batches_of_before_come_in_turns_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[Turns] = []
    turn = Turns._turn
    monkeypatch.setattr(Turns, "_turn", lambda self: [turns.append(self), turn(self)])
    rig = EventsRig(*REPLAY).start()
    for each in range(200):
        tell(rig, Removed(each))
    call = subscribe(rig, start=1)
    tell(rig, Removed(200))
    for _ in range(10):
        call.client.wait()
    assert numbers(call) == list(range(1, 201))
    assert len(turns) >= 199 // SLICE


def test_a_late_batch_is_not_told_twice() -> None:
    rig = EventsRig(*REPLAY).start()
    tell(rig, Removed(0))
    fault(rig, "delay; for=1s")
    tell(rig, Removed(1))
    tell(rig, Removed(2))
    call = subscribe(rig, start=1)
    assert numbers(call) == []
    call.client.wait(1.0)
    assert numbers(call) == [1, 2]


# --- faults of the publisher


@pytest.mark.parametrize(
    ("flags", "kind", "expected"),
    [
        (REPLAY, "drop", [0, 1, 2]),
        (ON, "drop", [0]),
        (REPLAY, "gap", [0]),
        (ON, "gap", [0]),
        (REPLAY, "restart", [0]),
        (ON, "restart", [0]),
        (ON, "duplicate", [0, 1, 2]),
        (REPLAY, "duplicate", [0, 1, 2]),
        (ON, "delay; for=1s", [0, 1, 2]),
    ],
)
def test_what_is_missing_is_had_from_replay_or_ends_the_call(
    flags: tuple[str, ...], kind: str, expected: list[int]
) -> None:
    rig = EventsRig(*flags, "--seed", "1").start()
    call = subscribe(rig)
    tell(rig, Removed(0))
    fault(rig, kind)
    tell(rig, Removed(1))
    tell(rig, Removed(2))
    call.client.wait(1.0)
    assert numbers(call) == expected
    assert [message.events[0].removed.block_hashes[0] for message in batches(call)] == expected
    if len(expected) == 3:
        assert not call.ended
        return
    assert call.code is Code.DATA_LOSS
    assert "subscribe from 0" in call.message
    anew = subscribe(rig)
    tell(rig, Removed(3))
    assert len(batches(anew)) == 1


# --- slow readers


def test_r92_who_does_not_read_is_told_of_the_loss_and_holds_up_nobody() -> None:
    rig = EventsRig(*ON).start()
    slow = subscribe(RpcClient(rig, acknowledges=False, window=1000))
    fast = subscribe(rig)
    for each in range(MOST_BATCHES + 100):
        tell(rig, Removed(each))
        fast.client.read()
    assert len(batches(fast)) == MOST_BATCHES + 100
    assert rig.metric("llmdsim:kv_event_subscriber_overflows_total") == 1
    slow.client.h2.acknowledges = True
    slow.client.h2.open_window(1 << 20, slow.stream_id)
    assert slow.code is Code.DATA_LOSS
    assert "does not read" in slow.message
    told = numbers(slow)
    assert told == list(range(len(told)))
    assert len(told) < 100


def test_so_is_who_would_have_too_much_kept_for_it() -> None:
    rig = EventsRig(*ON).start()
    slow = subscribe(RpcClient(rig, acknowledges=False, window=10))
    sent = rig.transport.publishing.sent
    while not rig.rank.event_counts.overflows and len(sent) < 100:
        tell(rig, stored(500, size=64))
        for _ in range(5):
            rig.settle()
    # All but the first one, which is on its way.
    assert len(sent) - 2 == MOST_BYTES // len(sent[0][2])
    assert not slow.ended
    assert not rig.clock.getDelayedCalls()


def test_who_reads_again_in_time_gets_everything_in_order() -> None:
    rig = EventsRig(*ON).start()
    slow = subscribe(RpcClient(rig, acknowledges=False, window=1000))
    for each in range(MOST_BATCHES - 100):
        tell(rig, Removed(each))
    rig.clock.advance(1.5)
    slow.client.read()
    slow.client.h2.acknowledges = True
    slow.client.h2.open_window(1 << 20, slow.stream_id)
    for _ in range(100):
        slow.client.wait()
    assert numbers(slow) == list(range(MOST_BATCHES - 100))
    assert not loads(slow), "none was kept for later"
    tell(rig, Removed(0))
    assert numbers(slow)[-1] == MOST_BATCHES - 100


def test_long_prompts_hold_nobody_up_and_overtake_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = EventsRig(*REPLAY).start()
    tell(rig, Cleared())
    call = subscribe(rig)
    turns = rig.rank.context.turns
    monkeypatch.setattr(turns, "_arm", lambda: None)
    tell(rig, stored(3 * PORTION))
    tell(rig, Cleared())
    # Both come while it is being converted, and so does what they are told.
    joined, replayed = subscribe(rig), subscribe(rig, start=1)
    assert numbers(call) == numbers(joined) == numbers(replayed) == []
    assert turns.busy
    monkeypatch.undo()
    turns._arm()
    for each in (call, joined, replayed):
        for _ in range(10):
            each.client.wait()
        assert numbers(each) == [1, 2]
        assert len(batches(each)[0].events[0].stored.blocks) == 3 * PORTION


def test_what_nobody_listened_to_is_not_known() -> None:
    rig = EventsRig(*ON).start()
    subscribe(rig).cancel()
    salts = []
    for again in (False, True):
        call = subscribe(rig)
        if not again:
            tell(rig, stored(1, extra_keys=[("salt",)]))
        tell(rig, stored(1, 1, parent=0))
        salts.append([event.stored.cache_salt for message in batches(call) for event in message.events])
        call.cancel()
    assert salts == [["salt", "salt"], [""]]


def test_where_there_is_much_else_to_do_order_is_kept() -> None:
    rig = EventsRig(*ON).start()
    call = subscribe(rig)
    for each in range(5):
        # Others have had all the time there is in this turn.
        rig.rank.context.turns._first = 1.0
        tell(rig, stored(2 * PORTION, each))
    assert numbers(call) == []
    for _ in range(10):
        call.client.wait()
    assert numbers(call) == [0, 1, 2, 3, 4]
    assert not rig.rank.context.turns.busy


def test_with_reset_prefix_cache_all_is_cleared() -> None:
    rig = EventsRig(*ALONE, "--vllm-server-dev-mode").start()
    call = subscribe(rig)
    assert ask(rig, "POST", "/reset_prefix_cache").status == 200
    assert only_event(call).WhichOneof("data") == "cleared"


@pytest.mark.parametrize("start", [0, 1])
def test_a_fault_of_ours_ends_the_call_and_the_next_is_served(
    start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = EventsRig(*REPLAY).start()
    tell(rig, Cleared())
    tell(rig, Cleared())
    calls = [subscribe(rig), subscribe(rig)] if not start else []
    monkeypatch.setattr(Conversion, "message", lambda conversion, batch: 1 // 0)
    with capturedLogs() as logged:
        # What is kept is converted for who asks, and what comes for all.
        if start:
            calls.append(subscribe(rig, start))
        else:
            tell(rig, Cleared())
        for call in calls:
            call.client.wait()
    assert [(call.code, call.message) for call in calls] == [(Code.INTERNAL, "Internal server error")] * len(
        calls
    )
    assert sum("log_failure" in event for event in logged) == len(calls)
    monkeypatch.undo()
    call = subscribe(rig)
    tell(rig, Cleared())
    assert len(numbers(call)) == 1
