"""The hash of a prompt's tokens."""

from __future__ import annotations

import hashlib
import struct

from llmdsim.reply.dataset import digest, prompt_digest
from llmdsim.tokenization import Prompt
from tests.reply.dataset.files import TOKENIZER


def exhausted(prompt: Prompt) -> tuple[bytes, int]:
    steps = prompt_digest(prompt)
    number = 0
    while True:
        try:
            next(steps)
            number += 1
        except StopIteration as end:
            return end.value, number


def test_the_peers_vector() -> None:
    found = digest([9707, 1879, 0]).hex()
    assert (found[:8], found[-5:]) == ("90db35b4", "f8bec")


def test_ids_are_hashed_as_four_bytes_each_the_lowest_first() -> None:
    ids = [0, 1, 2**16, 2**32 - 1]
    assert digest(ids) == hashlib.sha256(struct.pack("<4I", *ids)).digest()


def test_a_prompt_has_the_digest_of_its_ids_however_long() -> None:
    text = "word and word, " * 20_000
    ids = TOKENIZER.encode(text)
    found, steps = exhausted(Prompt(TOKENIZER, text))
    assert found == digest(ids)
    assert steps > 10
    found, steps = exhausted(Prompt.of_ids(TOKENIZER, ids))
    assert found == digest(ids)
    assert steps > 3
    assert exhausted(Prompt(TOKENIZER, "short")) == (digest(TOKENIZER.encode("short")), 0)
