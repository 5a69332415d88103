"""What echo mode says."""

from __future__ import annotations

from llmdsim.reply.ask import Ask
from llmdsim.tokenization import Layout, Tokenizer
from llmdsim.tokenization.special import shown


def echo(ask: Ask, tokenizer: Tokenizer) -> Layout:
    """The text asked for, to the letter; special tokens show nothing of it if the request has it so.

    Of ids they show nothing unless the request wants them to (vLLM's default): a text is what somebody wrote.
    """
    said = ask.echoed.layout
    if not tokenizer.added:
        return said
    skip = ask.skip_special_tokens
    if skip is None:
        skip = ask.echoed.text is None
    return shown(said, tokenizer, skip, ask.spaces_between_special_tokens)
