"""FlushCache: once or until nothing holds blocks, and what is refused."""

from __future__ import annotations

import pytest

from llmdsim.rpc.pb import common_pb2 as pb
from llmdsim.wire.grpc import Code
from tests.rpc.client import Call, RpcClient
from tests.web.rig import RankRig

CACHE = ("--enable-kvcache", "--kv-cache-size", "64", "--block-size", "8", "--max-num-seqs", "2")
LONG = {"prompt": "one two three four five six seven eight nine ten", "ignore_eos": True, "max_tokens": 20}


@pytest.fixture
def rig() -> RankRig:
    return RankRig(*CACHE, "--inter-token-latency", "100ms")


def flush(
    client: RpcClient, timeout_s: float = 0.0, timeout: str | None = None
) -> Call[pb.FlushCacheResponse]:
    asked = pb.FlushCacheRequest(timeout_s=timeout_s)
    return client.call("FlushCache", asked, pb.FlushCacheResponse, timeout=timeout)


def cached(rig: RankRig) -> int:
    cache = rig.rank.engine.cache
    assert cache is not None
    return cache.pool.findable


def test_what_finished_requests_left_is_forgotten(rig: RankRig) -> None:
    rig.post("/v1/completions", LONG)
    for _ in range(30):
        rig.clock.advance(0.1)
    assert cached(rig)
    (answer,) = flush(RpcClient(rig)).ok()
    assert answer.success
    assert answer.message
    assert not cached(rig)


def test_while_blocks_are_held_one_attempt_is_no_error_and_changes_nothing(rig: RankRig) -> None:
    rig.post("/v1/completions", LONG)
    before = cached(rig)
    (answer,) = flush(RpcClient(rig)).ok()
    assert not answer.success
    assert answer.message
    assert cached(rig) == before
    assert rig.rank.stats.running == 1


def test_it_is_tried_until_nothing_holds_blocks(rig: RankRig) -> None:
    rig.post("/v1/completions", LONG)
    client = RpcClient(rig)
    call = flush(client, 30.0)
    for _ in range(15):
        client.wait(0.1)
        assert not call.ended
    client.finish(call)
    assert call.ok()[0].success
    assert not rig.rank.stats.running
    assert rig.clock.seconds() < 2.2, "soon after the last token"


def test_its_time_may_be_up_before(rig: RankRig) -> None:
    rig.post("/v1/completions", LONG)
    client = RpcClient(rig)
    call = flush(client, 0.35)
    client.wait(0.3)
    assert not call.ended
    client.wait(0.06)
    assert call.code is Code.DEADLINE_EXCEEDED
    assert "0.35" in call.message


def test_the_deadline_of_the_call_comes_before_its_time(rig: RankRig) -> None:
    rig.post("/v1/completions", LONG)
    client = RpcClient(rig)
    call = flush(client, 30.0, timeout="250m")
    client.wait(0.2)
    assert not call.ended
    client.wait(0.06)
    assert call.code is Code.DEADLINE_EXCEEDED
    assert call.message == "the deadline of the call has passed"


def test_a_client_that_leaves_ends_the_attempts(rig: RankRig) -> None:
    rig.post("/v1/completions", LONG)
    client = RpcClient(rig)
    call = flush(client, 30.0)
    client.wait(0.1)
    call.cancel()
    for _ in range(40):
        client.wait(0.1)
    assert cached(rig), "nobody asked any more"


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf"), -1e-30])
def test_what_is_no_time_is_refused(rig: RankRig, seconds: float) -> None:
    call = flush(RpcClient(rig), seconds)
    assert call.code is Code.INVALID_ARGUMENT
    assert "timeout_s" in call.message


def test_without_a_cache_there_is_nothing_to_do() -> None:
    assert flush(RpcClient(RankRig())).ok()[0].success


@pytest.mark.parametrize("seconds", [0.0, 5.0])
def test_a_dead_engine_forgets_nothing(rig: RankRig, seconds: float) -> None:
    rig.rank.context.suspension.die()
    assert flush(RpcClient(rig), seconds).code is Code.INTERNAL


def test_an_engine_that_dies_meanwhile_ends_the_attempts(rig: RankRig) -> None:
    rig.post("/v1/completions", LONG)
    client = RpcClient(rig)
    call = flush(client, 5.0)
    client.wait(0.15)
    rig.rank.context.suspension.die()
    client.wait(0.1)
    assert call.code is Code.INTERNAL
