"""The token ids of a prompt, out of a message."""

from __future__ import annotations

from collections.abc import Generator

from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.web.context_length import over_context
from llmdsim.web.errors import ApiError
from llmdsim.web.limits import Limits
from llmdsim.web.prompt_forms import separate

#: Ids that are taken out in a third of a millisecond.
IDS_AT_ONCE = 1 << 14


def prompt_ids(prompt: pb.TokenizedInput, limits: Limits) -> Generator[None, None, list[int]]:
    """All of them, in steps. Raises ApiError 400, before the first, for none and for more than can fit."""
    found = prompt.input_ids
    if not found:
        raise ApiError(400, "The prompt cannot be empty.")
    if len(found) > limits.max_model_len:
        raise over_context(len(found), limits)
    # A slice is a list, and made several times as fast as one item by item.
    ids = found[:IDS_AT_ONCE]
    for start in range(IDS_AT_ONCE, len(found), IDS_AT_ONCE):
        yield
        ids += found[start : start + IDS_AT_ONCE]
    return ids


def check_ids(ids: list[int], limits: Limits) -> Generator[None, None, None]:
    """Find out, in steps, whether all are in the vocabulary. Raises ApiError 400 where one is not."""
    for start in range(0, len(ids), IDS_AT_ONCE):
        if start:
            yield
        separate(ids[start : start + IDS_AT_ONCE], "input_ids", limits)  # type: ignore[arg-type]
