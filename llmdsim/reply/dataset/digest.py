"""What a dataset knows a prompt by: a hash of its tokens (the recipe is llm-d-inference-sim's)."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Generator, Sequence
from hashlib import sha256

from llmdsim.tokenization import Prompt
from llmdsim.tokenization.steps import Step

#: Ids that are hashed in half a millisecond.
IDS_AT_ONCE = 16384


def digest(ids: Sequence[int]) -> bytes:
    """SHA-256 over the ids, four bytes each, the lowest first: 32 bytes."""
    return sha256(_packed(ids)).digest()


def prompt_digest(prompt: Prompt) -> Generator[Step, None, bytes]:
    """The digest of a prompt, in steps where it is long."""
    if not prompt.long:
        return digest(prompt.ids)
    yield from prompt.tokenize()
    ids = prompt.tokens
    hashed = sha256()
    for start in range(0, len(ids), IDS_AT_ONCE):
        hashed.update(_packed(ids[start : start + IDS_AT_ONCE]))
        yield None
    return hashed.digest()


def _packed(ids: Sequence[int]) -> bytes:
    packed = array("I", ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()
