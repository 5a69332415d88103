"""What a reply carries besides its text."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from llmdsim.tokenization.prompt import Prompt
from llmdsim.web.logprobs import LogprobShape
from llmdsim.web.transfer import PrefillAnswer


class ChoiceWants(msgspec.Struct):
    """Of one choice. `lead` is text, as the inside of a JSON string, shown before the first token's own."""

    prompt: Prompt
    lead: bytes = b""
    logprobs: LogprobShape | None = None
    #: The prompt's ids as JSON, where they are wanted.
    prompt_ids: bytes = b"null"
    #: Show the prompt and nothing of what is generated (`echo` with `max_tokens` 0).
    prompt_only: bool = False
    #: Whether the reply may have other parts than text.
    parted: bool = False


class ReplyWants(msgspec.Struct, kw_only=True):
    """Of the whole reply, whose choices are `choices` in the order of their indexes.

    `prompt_tokens` counts each prompt once, however many choices it has. `cached` shows cached tokens.
    """

    choices: Sequence[ChoiceWants]
    prompt_tokens: int
    #: Tokens of one delta of a stream.
    interval: int = 1
    token_ids: bool = False
    usage: bool = False
    continuous_usage: bool = False
    cached: bool = True
    #: Tell how many tokens were reasoning.
    reasoning: bool = False
    #: `ec_transfer_params` as JSON.
    ec_transfer: bytes = b"null"
    #: Of a prefill whose blocks another server reads.
    prefill: PrefillAnswer | None = None
    #: Cached tokens to tell, where a prefill elsewhere told them.
    told_cached: int | None = None
    #: Alternatives listed for each token of the prompt; None for no `prompt_logprobs`.
    prompt_logprobs: int | None = None
    #: What the ids of these alternatives are below.
    vocab_size: int = 2**32

    def shown_cached(self, cached_tokens: int) -> int:
        """Cached tokens as told: `cached_tokens`, or what a prefill elsewhere told."""
        return cached_tokens if self.told_cached is None else self.told_cached
