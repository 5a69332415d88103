"""Long messages read in steps are what they are read at once."""

from __future__ import annotations

import contextlib
import gzip
from typing import Any

import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred

from llmdsim.rpc import long_message
from llmdsim.rpc.generate.encoding import delimited, number, packed
from llmdsim.rpc.long_message import MOST_FIELDS, PIECE, read_long
from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.tokenization.steps import at_once
from llmdsim.web.errors import ApiError
from llmdsim.web.limits import Limits
from llmdsim.web.turns import LONG_BODY, Steps, Turns
from llmdsim.wire.grpc import Code, RpcError, frame
from tests.rpc.client import Call, RpcClient
from tests.web.rig import PassRig, RankRig

LIMITS = Limits(max_model_len=1 << 20)
GENERATE = "Generate"

some_part = st.tuples(st.lists(st.integers(0, 2**32 - 1), max_size=60), st.booleans())


def read(asks: type[Message], data: bytes, limits: Limits = LIMITS) -> Any:
    return at_once(read_long(asks, memoryview(data), limits))


def tokenized(text: str, *parts: tuple[list[int], bool]) -> bytes:
    """A prompt with its text, and ids, some packed and some not."""
    within = delimited(1, text.encode()) if text else b""
    for ids, are_packed in parts:
        within += (
            packed(2, ids) if are_packed else b"".join(b"\x10" + number(1, id_)[1:] for id_ in ids if id_)
        )
    return delimited(2, within)


@given(
    parts=st.lists(
        st.one_of(
            st.builds(tokenized, st.text(max_size=9), some_part),
            st.builds(tokenized, st.text(max_size=9), some_part, some_part, some_part),
            st.builds(delimited, st.sampled_from([1, 3, 30]), st.text(max_size=9).map(str.encode)),
            st.builds(lambda most: delimited(4, number(10, most)), st.integers(1, 9)),
            st.sampled_from([number(5, 1), b"\xf5\x01abcd", b"\xf1\x01abcdefgh", b"\xf8\x01\x80\x01"]),
            st.binary(max_size=3),
        ),
        max_size=5,
    ),
    asks=st.sampled_from([pb.GenerateRequest, pb.EmbedRequest]),
    piece=st.integers(1, 40),
)
def test_it_is_read_as_at_once(parts: list[bytes], asks: type[Message], piece: int) -> None:
    data = b"".join(parts)
    try:
        expected = asks.FromString(data)
    except DecodeError:
        expected = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_message, "PIECE", piece)
        if expected is None or any(byte & 7 in (3, 4) for byte in data):
            # Groups, which nobody has in such messages, are not read in steps.
            with contextlib.suppress(RpcError):
                assert read(asks, data) == expected
            return
        found = read(asks, data)
    assert found == expected
    assert found.SerializeToString(deterministic=True) == expected.SerializeToString(deterministic=True)


def test_each_step_is_short() -> None:
    data = pb.GenerateRequest(tokenized={"input_ids": [300] * 500_000}).SerializeToString()
    assert len(list(read_long(pb.GenerateRequest, memoryview(data), LIMITS))) >= 2 * len(data) // PIECE


def test_more_ids_than_fit_are_counted_and_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pb.GenerateRequest(tokenized={"input_ids": [1, 300, 2**32 - 1] * 5}).SerializeToString()
    assert len(read(pb.GenerateRequest, data, Limits(max_model_len=15)).tokenized.input_ids) == 15
    monkeypatch.setattr(pb.GenerateRequest, "MergeFromString", None)
    with pytest.raises(ApiError, match="15 input tokens"):
        read(pb.GenerateRequest, data, Limits(max_model_len=14))


def test_fields_are_counted() -> None:
    field = number(30, 1)
    read(pb.GenerateRequest, field * MOST_FIELDS)
    for data in (field * (MOST_FIELDS + 1), tokenized("", ([1] * (MOST_FIELDS + 1), False))):
        with pytest.raises(RpcError) as raised:
            read(pb.GenerateRequest, data)
        assert raised.value.code is Code.RESOURCE_EXHAUSTED


# --- in calls


def long_request(ids: int, **more: Any) -> pb.GenerateRequest:
    sampling = {"max_tokens": 1, "ignore_eos": True}
    return pb.GenerateRequest(tokenized={"input_ids": [300] * ids}, sampling_params=sampling, **more)


def begin(
    rig: RankRig, data: bytes, *headers: tuple[bytes, bytes]
) -> tuple[RpcClient, Call[pb.GenerateResponse]]:
    client = RpcClient(rig)
    given = [(b"content-type", b"application/grpc"), (b"te", b"trailers"), *headers]
    stream = client.h2.begin(b"/vllm.grpc.engine.VllmEngine/Generate", b"POST", given, end=False)
    client.h2.send(stream, data)
    client.h2.flush()
    return client, Call(client, stream, pb.GenerateResponse)


def in_turns(rig: RankRig, call: Call[pb.GenerateResponse]) -> int:
    turns = 0
    while not call.answer.ended:
        turns += 1
        assert turns < 10_000
        rig.clock.advance(0)
        call.client.h2.flush()
    return turns


@pytest.mark.parametrize("compressed", [False, True])
def test_a_long_call_is_answered_in_turns(compressed: bool) -> None:
    rig = PassRig("--max-model-len", "200k", "--mode", "echo")
    data = long_request(150_000, request_id="long").SerializeToString()
    assert len(data) > LONG_BODY
    headers = [(b"grpc-encoding", b"gzip")] if compressed else []
    sent = b"\x01" + frame(gzip.compress(data))[1:] if compressed else frame(data)
    _, call = begin(rig, sent, *headers)
    # The client's own sending takes some.
    assert in_turns(rig, call) >= len(data) // PIECE - 5
    ((message,), code) = call.messages, call.code
    assert (code, message.complete.prompt_tokens) == (Code.OK, 150_000)


def test_one_that_is_too_long_is_refused_as_a_short_one() -> None:
    rig = RankRig("--max-model-len", "100")
    refusals = []
    for ids in (101, 150_000):
        _, call = begin(rig, frame(long_request(ids).SerializeToString()))
        if not call.answer.ended:
            in_turns(rig, call)
        refusals.append((call.code, call.message.replace(str(ids), "N")))
    assert refusals[0] == refusals[1]
    assert refusals[0][0] is Code.INVALID_ARGUMENT


@pytest.mark.parametrize("end", ["cancel", "disconnect", "deadline", "drain"])
def test_nothing_is_left_of_one_that_ends_while_it_is_read(end: str) -> None:
    rig = PassRig("--max-model-len", "200k")
    headers = [(b"grpc-timeout", b"1S")] if end == "deadline" else []
    client, call = begin(rig, frame(long_request(150_000).SerializeToString()), *headers)
    assert rig.rank.context.turns.busy
    match end:
        case "cancel":
            call.cancel()
        case "disconnect":
            client.h2.client.rst()
        case "deadline":
            rig.clock.advance(1.0)
            client.h2.flush()
            assert call.code is Code.DEADLINE_EXCEEDED
        case "drain":
            rig.rank.context.turns.give_up()
            client.h2.flush()
            assert call.code is Code.UNAVAILABLE
    assert not rig.rank.context.turns.busy
    rig.clock.pump([0] * 20)
    assert rig.rank.engine.idle
    assert sum(rig.rank.stats.finished.values()) == 0


def test_what_is_no_message_is_told_so_however_long() -> None:
    _, call = begin(RankRig(), frame(b"\x07" * (LONG_BODY + 1)))
    assert (call.code, call.message) == (Code.INTERNAL, "the message is no vllm.grpc.engine.GenerateRequest")


def test_a_short_compressed_one_takes_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[object] = []
    take = Turns.take

    def noted(turns: Turns, steps: Steps) -> Deferred[None] | None:
        taken.append(take(turns, steps))
        return taken[-1]  # type: ignore[return-value]

    monkeypatch.setattr(Turns, "take", noted)
    data = b"\x01" + frame(gzip.compress(long_request(3).SerializeToString()))[1:]
    begin(RankRig(), data, (b"grpc-encoding", b"gzip"))
    assert taken == [None, None]
