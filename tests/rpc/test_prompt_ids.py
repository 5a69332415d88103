"""Ids of prompts, taken out of messages."""

from __future__ import annotations

import pytest

from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.rpc.prompt_ids import IDS_AT_ONCE, prompt_ids
from llmdsim.tokenization.steps import at_once
from llmdsim.web.errors import ApiError
from llmdsim.web.limits import Limits

LIMITS = Limits(max_model_len=3 * IDS_AT_ONCE)


@pytest.mark.parametrize("count", [1, IDS_AT_ONCE, IDS_AT_ONCE + 1, 3 * IDS_AT_ONCE])
def test_all_come_in_their_order(count: int) -> None:
    ids = [2**32 - count + place for place in range(count)]
    steps = prompt_ids(pb.TokenizedInput(input_ids=ids), LIMITS)
    assert at_once(steps) == ids


def test_many_are_taken_in_steps() -> None:
    steps = prompt_ids(pb.TokenizedInput(input_ids=range(3 * IDS_AT_ONCE)), LIMITS)
    assert len(list(steps)) == 2


@pytest.mark.parametrize(("count", "told"), [(0, "cannot be empty"), (3 * IDS_AT_ONCE + 1, "input tokens")])
def test_what_is_no_prompt_is_refused_before_any_is_taken(count: int, told: str) -> None:
    steps = prompt_ids(pb.TokenizedInput(input_ids=range(count)), LIMITS)
    with pytest.raises(ApiError, match=told):
        next(steps)
