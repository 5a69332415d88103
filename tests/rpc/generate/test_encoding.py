"""What is encoded by hand is what protobuf makes of the same message."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llmdsim.rpc.generate.encoding import MOST_KEPT, Varints, delimited, number, packed, varint
from llmdsim.rpc.pb import vllm_engine_pb2 as pb

UINT32 = st.integers(0, 2**32 - 1)


@given(UINT32)
def test_numbers(value: int) -> None:
    assert number(2, value) == pb.GenerateStreamChunk(prompt_tokens=value).SerializeToString()
    assert not value or number(2, value).endswith(varint(value))


@given(st.lists(UINT32, max_size=200))
def test_repeated_numbers(values: list[int]) -> None:
    assert packed(1, values) == pb.GenerateStreamChunk(token_ids=values).SerializeToString()


@given(st.text(max_size=300))
def test_texts(text: str) -> None:
    assert delimited(3, text.encode()) == pb.GenerateRequest(text=text).SerializeToString()


def test_only_so_many_are_kept() -> None:
    kept = Varints()
    for value in range(MOST_KEPT + 10):
        assert kept[value] == varint(value)
    assert len(kept) == MOST_KEPT
    assert kept[MOST_KEPT + 5] == varint(MOST_KEPT + 5)
