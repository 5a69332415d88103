"""StartProfile and StopProfile: one session, the same as over HTTP."""

from __future__ import annotations

import pytest

from llmdsim.rpc.pb import common_pb2 as pb
from llmdsim.wire.grpc import Code
from tests.rpc.client import Call, RpcClient
from tests.web.rig import RankRig


def start(rig: RankRig, asked: pb.StartProfileRequest | None = None) -> Call[pb.ProfileResponse]:
    return RpcClient(rig).call("StartProfile", asked or pb.StartProfileRequest(), pb.ProfileResponse)


def stop(rig: RankRig) -> pb.ProfileResponse:
    return RpcClient(rig).unary("StopProfile", pb.StopProfileRequest(), pb.ProfileResponse)


def http(rig: RankRig, path: str) -> int:
    (reply,) = rig.post(path, {}).replies(b"POST")
    return reply.status


def test_a_session_begins_once_and_ends() -> None:
    rig = RankRig()
    (answer,) = start(rig).ok()
    assert answer.success
    assert answer.message
    again = start(rig)
    assert again.code is Code.INTERNAL
    assert "runs already" in again.message
    ended = stop(rig)
    assert ended.success
    assert ended.message
    start(rig).ok()


def test_to_end_none_is_no_error() -> None:
    assert stop(RankRig()).success


def test_it_is_the_session_of_http() -> None:
    rig = RankRig()
    assert http(rig, "/start_profile") == 200
    assert start(rig).code is Code.INTERNAL
    assert http(rig, "/stop_profile") == 200
    start(rig).ok()
    assert http(rig, "/start_profile") == 409


@pytest.mark.parametrize(
    "option",
    [
        {"output_dir": ""},
        {"output_dir": "/tmp/x"},
        {"start_step": 0},
        {"num_steps": 3},
        {"activities": ["CPU"]},
        {"with_stack": False},
        {"record_shapes": True},
        {"profile_by_stage": True},
    ],
    ids=repr,
)
def test_options_are_for_the_start_of_the_server(option: dict[str, object]) -> None:
    rig = RankRig()
    call = start(rig, pb.StartProfileRequest(**option))  # type: ignore[arg-type]
    assert call.code is Code.INVALID_ARGUMENT
    (name,) = option
    assert call.message.endswith(f": {name}")
    start(rig).ok()


def test_what_says_nothing_is_no_option() -> None:
    start(RankRig(), pb.StartProfileRequest(activities=[], profile_by_stage=False)).ok()
