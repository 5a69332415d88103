"""Any request, and any bytes, to Generate: a proper answer or a refusal, and nothing is left."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import maybeDeferred
from twisted.logger import capturedLogs

from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.wire.grpc import Code
from tests.rpc.client import RpcClient
from tests.rpc.generate.asking import Generate, begin, chunks, completes
from tests.web.rig import RankRig

#: What a status of ours may be, whatever is asked.
REFUSALS = {Code.INVALID_ARGUMENT, Code.RESOURCE_EXHAUSTED}
#: Undecodable bytes are INTERNAL with every gRPC server.
UNDECODABLE = "the message is no vllm.grpc.engine.GenerateRequest"

_TEXTS = st.one_of(
    st.sampled_from(
        ("", "e", "{}", '{"do_remote_decode": true}', '{"type": "integer"}', "[ab]+", "x" * 2000)
    ),
    st.text(max_size=20),
)
_FLOATS = st.one_of(st.sampled_from((0.0, 0.5, 1.0, 2.0)), st.floats(width=32))
_RANGES = {
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
}


def _values(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_MESSAGE:
        return fields_of(field.message_type)
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return st.binary(max_size=30) if field.type == FieldDescriptor.TYPE_BYTES else _TEXTS
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return st.booleans()
    if kind in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return _FLOATS
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return st.integers(0, 5)
    low, high = _RANGES[kind]
    return st.one_of(st.integers(max(low, -1), 5), st.integers(low, high))


def _of_field(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        entry = field.message_type.fields_by_name
        return st.dictionaries(_values(entry["key"]), _values(entry["value"]), max_size=3)
    return st.lists(_values(field), max_size=5) if field.is_repeated else _values(field)


@st.composite
def fields_of(draw: st.DrawFn, message: Descriptor) -> dict[str, Any]:
    """What a message may be made from, any of its fields left out."""
    return {field.name: draw(_of_field(field)) for field in message.fields if draw(st.booleans())}


GOOD = st.fixed_dictionaries(
    {"tokenized": st.fixed_dictionaries({"input_ids": st.lists(st.integers(0, 99), min_size=1, max_size=5)})},
    optional={
        "stream": st.booleans(),
        "sampling_params": st.fixed_dictionaries(
            {"max_tokens": st.integers(1, 20)},
            optional={
                "n": st.integers(0, 4),
                "seed": st.integers(-5, 5),
                "logprobs": st.integers(0, 3),
                "prompt_logprobs": st.integers(0, 3),
                "ignore_eos": st.booleans(),
                "stop": st.lists(st.sampled_from(("e", "the", "zz")), max_size=2),
                "regex": st.just("[ab]{9}"),
            },
        ),
        "kv_transfer_params_json": st.just('{"do_remote_decode": true}'),
    },
)
ANY = st.one_of(GOOD, fields_of(pb.GenerateRequest.DESCRIPTOR))


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no reactor to wait for a thread."""
    monkeypatch.setattr("llmdsim.web.whole.deferToThread", maybeDeferred)


class Asked:
    """One server and client for many requests."""

    def __init__(self, *flags: str) -> None:
        self.rig = RankRig("--max-model-len", "60", "--max-n", "8", *flags)
        self.client = RpcClient(self.rig)
        self.client.h2.open_window(2**30)
        self.answered = self.refused = 0

    def ask(self, message: pb.GenerateRequest | bytes, streamed: bool | None = None) -> None:
        """Send one, and look at what becomes of it."""
        stats = self.rig.rank.stats
        before = stats.generation_tokens
        with capturedLogs() as logs:
            call = self.client.finish(begin(self.client, message))  # type: ignore[arg-type]
        assert not [event for event in logs if "log_failure" in event]
        made = stats.generation_tokens - before
        if call.code is Code.OK:
            self.answered += 1
            assert told(call, streamed) == made
        else:
            self.refused += 1
            assert not call.messages
            assert made == 0
            assert call.code in REFUSALS or call.message == UNDECODABLE, (call.code, call.message)
            assert 0 < len(call.message) < 5000
        assert self.rig.rank.engine.idle
        assert not self.rig.rank.context.turns.busy
        (connection,) = self.rig.site.connections
        assert not connection.streams  # type: ignore[attr-defined]


def told(call: Generate, streamed: bool | None) -> int:
    """How many tokens an answer has; an AssertionError if it is not a proper one."""
    messages = call.messages
    ended = completes(messages)
    order = sorted(last.index for last in ended)
    assert order == list(range(len(ended)))
    assert ended
    if not any(message.HasField("chunk") for message in messages):
        assert not streamed or all(not last.output_ids for last in ended)
        assert [last.index for last in ended] == order
        assert all(last.completion_tokens == len(last.output_ids) for last in ended)
        return sum(last.completion_tokens for last in ended)
    assert streamed is not False
    total = 0
    for last in ended:
        found = chunks(messages, last.index)
        assert all(chunk.completion_tokens == len(chunk.token_ids) > 0 for chunk in found)
        assert (list(found[-1].token_ids) if found else []) == list(last.output_ids)
        total += sum(chunk.completion_tokens for chunk in found)
    assert messages[-1].HasField("complete")
    return total


@pytest.mark.parametrize("flags", [(), ("--mode", "echo", "--enable-kvcache", "--block-size", "8")])
def test_whatever_is_asked_is_answered_or_refused(flags: tuple[str, ...]) -> None:
    asked = Asked(*flags)

    @settings(max_examples=150, deadline=None, database=None)
    @given(ANY)
    def ask(fields: dict[str, Any]) -> None:
        message = pb.GenerateRequest(**fields)
        asked.ask(message, message.stream)

    ask()
    # A fuzz whose requests are all refused, or all accepted, finds little.
    assert asked.answered > 20
    assert asked.refused > 20


def test_whatever_bytes_come_are_answered_or_refused() -> None:
    asked = Asked()

    @settings(max_examples=150, deadline=None, database=None)
    @given(ANY, st.data())
    def ask(fields: dict[str, Any], data: st.DataObject) -> None:
        message = bytearray(pb.GenerateRequest(**fields).SerializeToString())
        for _ in range(data.draw(st.integers(0, 3))):
            at = data.draw(st.integers(0, len(message)))
            message[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
        asked.ask(bytes(message))

    ask()
    assert asked.answered > 20
    assert asked.refused > 20
