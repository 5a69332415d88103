"""What a reply carries besides its text."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from llmdsim.tokenization.prompt import Prompt
from llmdsim.web.logprobs import LogprobShape


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
    token_ids: bool = False
    usage: bool = False
    continuous_usage: bool = False
    cached: bool = True
    #: Alternatives listed for each token of the prompt; None for no `prompt_logprobs`.
    prompt_logprobs: int | None = None
