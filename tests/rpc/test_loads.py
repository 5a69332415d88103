"""GetLoads: what the engine counts, told of one rank."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from llmdsim.config import parse, rank_config
from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.web.context import VLLM_VERSION
from tests.rpc.client import RpcClient
from tests.web.rig import RankRig

PACED = ("--inter-token-latency", "100ms", "--max-num-seqs", "2")
CACHE = ("--enable-kvcache", "--kv-cache-size", "50", "--block-size", "8")
#: Ids that fill so many blocks of 8.
BLOCK = list(range(1, 9))


def loads(rig: RankRig, **fields: Any) -> pb.GetLoadsResponse:
    return RpcClient(rig).unary("GetLoads", pb.GetLoadsRequest(**fields), pb.GetLoadsResponse)


def load(rig: RankRig) -> pb.SchedulerLoad:
    (found,) = loads(rig).loads
    return found


def begin(rig: RankRig, ids: list[int], tokens: int = 100) -> None:
    rig.post("/v1/completions", {"prompt": ids, "max_tokens": tokens, "ignore_eos": True})


def pass_time(rig: RankRig, seconds: float) -> None:
    for _ in range(round(seconds / 0.05)):
        rig.clock.advance(0.05)


def test_an_idle_rank() -> None:
    rig = RankRig("--max-num-seqs", "7", "--kv-cache-size", "100", "--block-size", "32")
    answer = loads(rig)
    told = datetime.fromisoformat(answer.timestamp)
    assert told.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - told) < timedelta(seconds=60)
    assert (answer.version, answer.dp_rank_count) == (VLLM_VERSION, 1)
    assert list(answer.loads) == [pb.SchedulerLoad(max_total_num_tokens=3200, max_running_requests=7)]


def test_what_runs_and_what_waits() -> None:
    rig = RankRig(*PACED)
    for _ in range(5):
        begin(rig, BLOCK)
    found = load(rig)
    assert (found.num_running_reqs, found.num_waiting_reqs, found.num_total_reqs) == (2, 3, 5)
    assert found.max_running_requests == 2


def test_the_kv_cache() -> None:
    rig = RankRig(*PACED, *CACHE)
    begin(rig, BLOCK * 2 + [1, 2])
    rig.settle()
    found = load(rig)
    assert (found.num_used_tokens, found.max_total_num_tokens) == (24, 400)
    assert found.token_usage == found.utilization == rig.rank.stats.kv_cache_usage == 0.06


def test_throughput_is_that_of_the_last_seconds() -> None:
    rig = RankRig(*PACED)
    rig.rank.startService()
    begin(rig, BLOCK)
    begin(rig, BLOCK)
    pass_time(rig, 5.0)
    assert load(rig).gen_throughput == pytest.approx(20, rel=0.1)
    pass_time(rig, 10.0)
    assert not load(rig).gen_throughput
    rig.rank.stopService()
    pass_time(rig, 5.0)  # connections linger
    assert not rig.clock.getDelayedCalls()


def test_the_hit_rate_and_what_waits_without_being_cached() -> None:
    rig = RankRig(*PACED, *CACHE, "--time-to-first-token", "100ms")
    begin(rig, BLOCK * 4, tokens=1)
    pass_time(rig, 1.0)
    assert load(rig).cache_hit_rate == 0.0
    begin(rig, BLOCK * 4, tokens=1)
    pass_time(rig, 1.0)
    # All but the last block, one token of which has to be computed.
    assert load(rig).cache_hit_rate == 24 / 64
    for _ in range(4):
        begin(rig, BLOCK * 4)
    found = load(rig)
    assert found.num_waiting_reqs == 2
    assert found.num_waiting_uncached_tokens == 64 * (64 - 24) / 64, "those that run are not among them"
    pass_time(rig, 0.2)
    assert load(rig).num_waiting_uncached_tokens == round(64 * (1 - load(rig).cache_hit_rate))


def test_other_ranks_tell_of_themselves() -> None:
    config = rank_config(parse(["--model", "m", "--data-parallel-size", "4"], {}), 2)
    rig = RankRig(config=config)
    for asked in ({}, {"dp_rank": 2}, {"dp_rank": 0}, {"include": ["core", "nothing"]}):
        answer = loads(rig, **asked)
        assert (answer.dp_rank_count, [each.dp_rank for each in answer.loads]) == (1, [2])


def test_numbers_that_messages_have_no_room_for_are_the_most_that_they_have() -> None:
    rig = RankRig("--max-num-seqs", str(10**12), "--kv-cache-size", str(10**12))
    found = load(rig)
    assert found.max_running_requests == found.max_total_num_tokens == 2**31 - 1


def test_it_is_told_whatever_is_the_matter() -> None:
    rig = RankRig(*PACED)
    begin(rig, BLOCK)
    rig.rank.context.suspension.pause("keep", False)
    rig.rank.context.draining = True
    assert load(rig).num_running_reqs == 1
    rig.rank.context.suspension.die()
    assert not load(rig).num_running_reqs
