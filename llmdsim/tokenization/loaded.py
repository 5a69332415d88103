"""What comes with a model's tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from llmdsim.tokenization.tokenizer import Tokenizer


class Loaded(NamedTuple):
    """A tokenizer, and what a chat template needs besides.

    `templates` are the model's own by name, mostly one, `default`; none with the built-in tokenizer.
    `special_tokens` are the texts that templates name: `bos_token`, `eos_token`, `pad_token` and the like.
    """

    tokenizer: Tokenizer
    templates: Mapping[str, str]
    special_tokens: Mapping[str, str]
