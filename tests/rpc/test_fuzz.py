"""Whatever bytes a call of the engine service brings, the server does not fail, and nothing is left of it."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message
from hypothesis import example, given, settings
from hypothesis import strategies as st
from twisted.logger import capturedLogs

from llmdsim.rpc.pb import common_pb2 as common
from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.wire.grpc import Code
from tests.rpc.client import SERVICE, RpcClient
from tests.web.rig import RankRig

FLAGS = ("--enable-kvcache", "--max-model-len", "64", "--max-num-seqs", "2")
METHODS = RankRig(*FLAGS).rank.calls.methods
ASKED: dict[str, Any] = {
    name: METHODS[f"/{SERVICE}/{name}".encode()].asks
    for name in (
        *("Embed", "HealthCheck", "Abort", "GetModelInfo", "GetServerInfo", "GetLoads", "GetTokenizer"),
        *("FlushCache", "StartProfile", "StopProfile"),
    )
}

ids = st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 100), max_size=70)
texts = st.text(max_size=8) | st.just("cmpl-a")
MESSAGES: dict[str, st.SearchStrategy[Message]] = {
    "Embed": st.builds(
        pb.EmbedRequest,
        request_id=texts | st.text(min_size=1020, max_size=1030),
        tokenized=st.none() | st.builds(pb.TokenizedInput, original_text=texts, input_ids=ids),
    ),
    "Abort": st.builds(pb.AbortRequest, request_ids=st.lists(texts, max_size=5)),
    "GetLoads": st.builds(
        pb.GetLoadsRequest,
        dp_rank=st.none() | st.integers(-(2**31), 2**31 - 1),
        include=st.lists(texts, max_size=3),
    ),
    "FlushCache": st.builds(common.FlushCacheRequest, timeout_s=st.floats(width=32)),
    "StartProfile": st.builds(
        common.StartProfileRequest,
        output_dir=st.none() | texts,
        num_steps=st.none() | st.integers(-(2**31), 2**31 - 1),
        activities=st.lists(texts, max_size=2),
    ),
}

#: How any of them may end, besides well. What is no message at all is INTERNAL.
REFUSALS = {
    Code.INVALID_ARGUMENT,
    Code.DEADLINE_EXCEEDED,
    Code.FAILED_PRECONDITION,
    Code.RESOURCE_EXHAUSTED,
    Code.INTERNAL,
}


def called(name: str, data: Message | bytes) -> None:
    rig = RankRig(*FLAGS)
    rig.post("/v1/completions", {"prompt": "a b", "max_tokens": 5, "request_id": "a"})
    client = RpcClient(rig)
    with capturedLogs() as logged:
        call = client.call(name, data, ASKED[name], timeout="2S")
        for _ in range(50):
            if call.ended:
                break
            client.wait(0.05)
        assert call.ended
        assert call.code is Code.OK or call.code in REFUSALS
        assert call.message != "Internal server error"
    assert not [event for event in logged if "log_failure" in event]
    client.wait(0.1)
    assert not rig.rank.context.turns.busy
    (connection, *_) = [each for each in rig.site.connections if hasattr(each, "streams")]
    assert not connection.streams
    assert not connection.kept  # type: ignore[attr-defined]


named = st.sampled_from([*MESSAGES]).flatmap(lambda name: st.tuples(st.just(name), MESSAGES[name]))


@settings(max_examples=80, deadline=None)
@given(named)
def test_any_message(asked: tuple[str, Message]) -> None:
    called(*asked)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([*ASKED]), st.binary(max_size=40))
@example("Embed", b"\x12\x02\x12\x00")
@example("Abort", b"\x0a\xff\xff\xff\xff\x0f")
@example("FlushCache", b"\x0d\x00\x00\xc0\x7f")
def test_any_bytes(name: str, data: bytes) -> None:
    called(name, data)
