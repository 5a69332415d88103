"""The `usage` object of messages."""

from __future__ import annotations

from llmdsim.web.wants import ReplyWants


def message_usage(
    wants: ReplyWants, completion_tokens: int, cached_tokens: int, created_tokens: int
) -> bytes:
    """What a message cost.

    Where cached tokens are told, neither they nor those computed for others to find are input (Anthropic).
    """
    if not wants.cached:
        return b'{"input_tokens":%d,"output_tokens":%d}' % (wants.prompt_tokens, completion_tokens)
    cached_tokens = wants.shown_cached(cached_tokens)
    return (
        b'{"input_tokens":%d,"output_tokens":%d,"cache_creation_input_tokens":%d,"cache_read_input_tokens":%d}'
        % (
            max(0, wants.prompt_tokens - cached_tokens - created_tokens),
            completion_tokens,
            created_tokens,
            cached_tokens,
        )
    )
