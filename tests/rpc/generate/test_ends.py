"""How calls end before their time: by clients, deadlines, a full queue, or the end of the server."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.logger import capturedLogs

from llmdsim.wire.grpc import Code
from tests.rpc.client import RpcClient
from tests.rpc.generate.asking import IDS, ask, begin, chunks, completes, joined, only, request
from tests.web.rig import RankRig

PACED = ("--time-to-first-token", "1s", "--inter-token-latency", "1s")
LONG = {"max_tokens": 9, "ignore_eos": True, "seed": 5}
STREAMED = pytest.mark.parametrize("streamed", [False, True])


def free(rig: RankRig) -> bool:
    """Whether nothing is left of any call."""
    (connection,) = rig.site.connections
    stats = rig.rank.stats
    return (
        rig.rank.engine.idle
        and not rig.rank.context.turns.busy
        and not connection.streams  # type: ignore[attr-defined]
        and (stats.running, stats.waiting) == (0, 0)
    )


@STREAMED
@pytest.mark.parametrize("after", [0.0, 0.5, 3.5])
def test_cancelling_ends_all_choices_at_once(streamed: bool, after: float) -> None:
    rig = RankRig(*PACED, "--max-num-seqs", "2")
    client = RpcClient(rig)
    calls = [begin(client, request({**LONG, "n": 2}, stream=streamed)) for _ in range(2)]
    client.wait(after)
    assert (rig.rank.stats.running, rig.rank.stats.waiting) == (2, 2)
    for call in calls:
        call.cancel()
    assert free(rig)
    client.wait(20.0)
    assert len(calls[0].messages) == (2 * int(after) if streamed else 0)
    assert only(rig, LONG).prompt_tokens == 5


@STREAMED
def test_a_lost_connection_does_too(streamed: bool) -> None:
    rig = RankRig(*PACED)
    client = RpcClient(rig)
    begin(client, request({**LONG, "n": 2}, stream=streamed))
    client.h2.client.rst()
    rig.settle()
    assert rig.rank.engine.idle
    assert rig.rank.stats.running == 0


@STREAMED
def test_a_deadline_ends_the_call_and_frees_what_it_held(streamed: bool) -> None:
    rig = RankRig(*PACED)
    client = RpcClient(rig)
    call = begin(client, request(LONG, stream=streamed), timeout="3500m")
    client.wait(3.0)
    assert not call.ended
    assert len(call.messages) == (3 if streamed else 0)
    client.wait(0.5)
    assert call.ended
    assert call.code is Code.DEADLINE_EXCEEDED
    assert free(rig)
    client.wait(20.0)
    assert len(call.messages) == (3 if streamed else 0)


def test_a_call_that_ends_before_its_deadline_leaves_no_timer() -> None:
    rig = RankRig(*PACED)
    client = RpcClient(rig)
    call = begin(client, request(LONG), timeout="1H")
    client.finish(call, step=1.0).ok()
    assert all(delayed.getTime() < rig.clock.seconds() + 60 for delayed in rig.clock.getDelayedCalls())


@STREAMED
def test_what_is_cut_short_ends_well_with_what_there_is(streamed: bool) -> None:
    rig = RankRig(*PACED, "--max-num-seqs", "2")
    client = RpcClient(rig)
    running = begin(client, request({**LONG, "n": 2}, stream=streamed))
    waiting = begin(client, request(LONG, stream=streamed))
    client.wait(3.5)
    rig.rank.driver.cut_short(rig.rank.engine.sequences)
    client.read()
    ended = completes(running.ok())
    assert [last.finish_reason for last in ended] == ["abort", "abort"]
    assert [last.completion_tokens for last in ended] == ([0, 0] if streamed else [3, 3])
    assert [len(last.output_ids) for last in ended] == ([0, 0] if streamed else [3, 3])
    assert len(joined(running.messages)) == (3 if streamed else 0)
    (last,) = completes(waiting.ok())
    assert (last.finish_reason, last.completion_tokens, last.prompt_tokens) == ("abort", 0, 5)
    assert not chunks(waiting.messages)
    assert free(rig)


@STREAMED
@pytest.mark.parametrize(
    ("reason", "code", "message"),
    [
        ("abort", Code.UNAVAILABLE, "The server is shutting down."),
        ("error", Code.INTERNAL, "The engine failed, and this request with it."),
    ],
)
def test_what_is_given_up_ends_with_a_status(streamed: bool, reason: str, code: Code, message: str) -> None:
    rig = RankRig(*PACED)
    client = RpcClient(rig)
    call = begin(client, request({**LONG, "n": 2}, stream=streamed))
    client.wait(2.5)
    rig.rank.driver.give_up(reason)
    client.read()
    assert (call.code, call.message) == (code, message)
    assert len(call.messages) == (4 if streamed else 0)
    assert free(rig)


def test_nothing_new_is_taken_while_draining() -> None:
    rig = RankRig()
    rig.rank.context.draining = True
    call = ask(rig)
    assert (call.code, call.message) == (Code.UNAVAILABLE, "The server is shutting down.")


@STREAMED
def test_a_full_queue_is_told(streamed: bool) -> None:
    rig = RankRig(*PACED, "--max-num-seqs", "1", "--max-waiting-queue-length", "1")
    client = RpcClient(rig)
    calls = [begin(client, request(LONG, stream=streamed)) for _ in range(3)]
    assert [call.ended for call in calls] == [False, False, True]
    assert calls[2].code is Code.RESOURCE_EXHAUSTED
    assert calls[2].trailers[b"retry-after"]
    both = begin(client, request({**LONG, "n": 3}, stream=streamed))
    assert both.code is Code.RESOURCE_EXHAUSTED
    for call in calls[:2]:
        client.finish(call, step=1.0).ok()
    assert free(rig)


def test_vllms_limit_is_told_as_vllm_does() -> None:
    rig = RankRig(*PACED, "--max-num-queued-reqs", "1")
    client = RpcClient(rig)
    calls = [begin(client, request(LONG)) for _ in range(2)]
    assert calls[1].code is Code.UNAVAILABLE
    client.finish(calls[0], step=1.0).ok()


def test_a_paused_engine_refuses_and_a_dead_one_fails() -> None:
    rig = RankRig()
    suspension = rig.rank.context.suspension
    suspension.pause("abort", clear_cache=False)
    assert ask(rig).code is Code.UNAVAILABLE
    suspension.resume()
    assert only(rig).prompt_tokens == 5
    suspension.die()
    assert ask(rig).code is Code.INTERNAL


def test_too_little_cached_ends_it_before_it_begins() -> None:
    rig = RankRig("--enable-kvcache", "--global-cache-hit-threshold", "0.5")
    for streamed in (False, True):
        (message,) = ask(rig, LONG, stream=streamed).ok()
        last = message.complete
        assert (last.finish_reason, last.completion_tokens) == ("cache_threshold", 0)
        assert (list(last.output_ids), last.prompt_tokens) == ([], 5)


@STREAMED
def test_a_fault_of_ours_is_logged_and_internal(streamed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("a fault")

    rig = RankRig(*PACED)
    client = RpcClient(rig)
    call = begin(client, request(LONG, stream=streamed))
    other = begin(client, request(LONG, stream=streamed))
    client.wait(1.0)
    monkeypatch.setattr("llmdsim.rpc.generate.complete.pb.GenerateComplete", fail)
    with capturedLogs() as logs:
        client.finish(call, step=1.0)
    assert logs
    assert call.code is Code.INTERNAL
    assert other.code is Code.INTERNAL
    assert free(rig)


# --- clients that do not read


def test_a_client_that_does_not_read_is_kept_waiting_and_gets_everything() -> None:
    rig = RankRig(*PACED)
    client = RpcClient(rig, acknowledges=False, window=40)
    sampling = {"max_tokens": 60, "ignore_eos": True, "seed": 5}
    call = begin(client, request(sampling, stream=True))
    other = begin(RpcClient(rig), request({**sampling}, stream=True))
    for _ in range(70):
        client.wait(1.0)
    (connection,) = [found for found in rig.site.connections if found.kept]  # type: ignore[attr-defined]
    assert connection.kept < 40  # type: ignore[attr-defined]
    assert not call.ended
    assert rig.rank.engine.idle
    other.client.read()
    assert len(other.ok()) == 61
    client.h2.acknowledges = True
    while not call.ended:
        client.h2.open_window(50, call.stream_id)
        client.wait()
    assert call.ok() == other.ok()


def test_one_that_leaves_instead_leaves_nothing() -> None:
    rig = RankRig()
    client = RpcClient(rig, acknowledges=False, window=40)
    call = begin(client, request({"max_tokens": 5000, "ignore_eos": True}, stream=True))
    client.wait(1.0)
    assert not call.ended
    call.cancel()
    assert free(rig)
    assert only(rig, tokenized={"input_ids": IDS}).prompt_tokens == 5
