"""Random ids of what replies consist of, as vLLM forms them."""

from __future__ import annotations

import os
from random import Random

# Ids must not repeat, whatever seed replies are made from and however often the process forks.
_random = Random()
os.register_at_fork(after_in_child=_random.seed)


def hex_digits(count: int = 16) -> str:
    """So many random hex digits, an even number."""
    return _random.getrandbits(4 * count).to_bytes(count // 2).hex()


def call_id() -> bytes:
    """The id of a tool call."""
    return b"chatcmpl-tool-%016x" % _random.getrandbits(64)
