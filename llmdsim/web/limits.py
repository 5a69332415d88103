"""What the server allows any one request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that come from the server's configuration.

    `max_model_len` is the context in tokens, `max_logprobs` a count or -1 for the whole vocabulary; `max_n`
    and `max_prompts` bound the choices for one prompt and the prompts of one request, and the larger of
    them the choices of one request. With `strict_context` a request whose prompt and `max_tokens` together
    exceed the context is refused, as llm-d-inference-sim does, not clamped.
    """

    max_model_len: int
    max_logprobs: int = 20
    max_n: int = 16384
    max_prompts: int = 1024
    vocab_size: int = 2**32
    strict_context: bool = False
