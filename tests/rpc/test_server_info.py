"""GetServerInfo: each field, as configured and as things are."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from llmdsim.config import parse, rank_config
from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from tests.rpc.client import RpcClient
from tests.web.rig import RankRig


def info(rig: RankRig) -> pb.GetServerInfoResponse:
    return RpcClient(rig).unary("GetServerInfo", pb.GetServerInfoRequest(), pb.GetServerInfoResponse)


def complete(rig: RankRig, **more: Any) -> dict[str, Any]:
    body = {"prompt": "one two", "max_tokens": 3, "ignore_eos": True, **more}
    client = rig.post("/v1/completions", body)
    for _ in range(20):
        rig.clock.advance(0.1)
    (reply,) = client.replies(b"POST")
    found: dict[str, Any] = json.loads(reply.body)
    return found


def test_a_server_at_its_defaults() -> None:
    found = info(RankRig())
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert found.shm_namespace_id == f"{boot}:{os.stat('/dev/shm').st_dev}"
    found.ClearField("shm_namespace_id")
    assert found == pb.GetServerInfoResponse(
        server_type="vllm-grpc",
        data_parallel_size=1,
        kv_cache_dtype="auto",
        block_size=16,
        model_dtype="torch.bfloat16",
        max_num_seqs=5,
        multimodal_encoder_dtype="bfloat16",
        constrained_decoding_start="first_token",
    )


def test_what_is_configured() -> None:
    flags = ["--data-parallel-size", "3", "--block-size", "64", "--max-num-seqs", "99"]
    config = parse(["--model", "m", *flags, "--reasoning-parser", "deepseek_r1"], {})
    found = info(RankRig(config=rank_config(config, 1)))
    assert (found.data_parallel_size, found.block_size, found.max_num_seqs) == (3, 64, 99)
    assert found.engine_reasoning_parser == "deepseek_r1"
    assert found.constrained_decoding_start == "after_reasoning"


def test_requests_under_way_are_counted() -> None:
    rig = RankRig("--inter-token-latency", "1s", "--max-num-seqs", "1")
    for _ in range(3):
        rig.post("/v1/completions", {"prompt": "a", "max_tokens": 9, "ignore_eos": True})
    assert info(rig).active_requests == 3


def test_a_pause_is_told_and_sleep_is_one() -> None:
    rig = RankRig()
    suspension = rig.rank.context.suspension
    assert not info(rig).is_paused
    suspension.pause("keep", False)
    assert info(rig).is_paused
    suspension.resume()
    assert not info(rig).is_paused
    suspension.sleep(1, "abort")
    assert info(rig).is_paused


def test_the_time_since_the_start() -> None:
    rig = RankRig()
    rig.clock.advance(12.5)
    assert info(rig).uptime_seconds == 12.5


def test_the_time_of_the_last_request_for_generation() -> None:
    rig = RankRig("--max-num-seqs", "1", "--max-waiting-queue-length", "0", "--inter-token-latency", "1s")
    rig.clock.advance(50)
    assert not info(rig).last_receive_timestamp
    rig.post("/v1/completions", {"prompt": "a", "max_tokens": 900, "ignore_eos": True})
    rig.clock.advance(30)
    assert info(rig).last_receive_timestamp == pytest.approx(time.time() - 30, abs=5)
    # Refused, but it came.
    rig.post("/v1/completions", {"prompt": "a"})
    assert info(rig).last_receive_timestamp == pytest.approx(time.time(), abs=5)


def test_what_pairs_servers_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMG_PAIRING_PROTOCOL", "  v2 \n")
    assert info(RankRig()).pairing_protocol == "v2"


def connected(*, rank: int | None = None, **config: object) -> RankRig:
    flags = ["--model", "m", "--kv-transfer-config", json.dumps(config)]
    if rank is None:
        return RankRig(config=parse(flags, {}))
    return RankRig(config=rank_config(parse([*flags, "--data-parallel-size", "2"], {}), rank))


def test_the_connector_and_the_id_by_which_others_read_from_it() -> None:
    rig = connected(kv_connector="NixlConnector", kv_role="kv_producer")
    found = info(rig)
    assert (found.kv_connector, found.kv_role) == ("NixlConnector", "kv_producer")
    told = complete(rig, kv_transfer_params={"do_remote_decode": True})["kv_transfer_params"]
    assert told["remote_engine_id"] == found.kv_engine_id != ""


def test_the_id_that_is_configured_is_the_one_that_is_told() -> None:
    rig = connected(kv_connector="NixlConnector", kv_role="kv_both", engine_id="mine")
    assert info(rig).kv_engine_id == "mine"
    told = complete(rig, kv_transfer_params={"do_remote_decode": True})["kv_transfer_params"]
    assert told["remote_engine_id"] == "mine"


def test_ranks_have_their_number_behind_the_id_and_clients_put_it_there() -> None:
    rig = connected(rank=1, kv_connector="NixlConnector", kv_role="kv_both", engine_id="mine")
    assert info(rig).kv_engine_id == "mine"
    told = complete(rig, kv_transfer_params={"do_remote_decode": True})["kv_transfer_params"]
    assert told["remote_engine_id"] == "mine_dp1"


def test_without_a_connector_there_is_no_id() -> None:
    found = info(RankRig())
    assert (found.kv_connector, found.kv_role, found.kv_engine_id) == ("", "", "")


def test_numbers_that_messages_have_no_room_for() -> None:
    assert info(RankRig("--max-num-seqs", str(10**12))).max_num_seqs == 2**31 - 1


def test_a_dead_engine_tells_as_well() -> None:
    rig = RankRig()
    rig.rank.context.suspension.die()
    rig.rank.context.draining = True
    assert info(rig).server_type == "vllm-grpc"
