"""The `usage` object of replies and streams."""

from __future__ import annotations


def usage(prompt_tokens: int, completion_tokens: int, details: bytes = b"") -> bytes:
    """vLLM's key order; `details` are further members, each with its leading comma."""
    return b'{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d%b}' % (
        prompt_tokens,
        prompt_tokens + completion_tokens,
        completion_tokens,
        details,
    )


def completion_details(reasoning_tokens: int | None) -> bytes:
    """The member `completion_tokens_details`, an object where reasoning is told, else null."""
    if reasoning_tokens is None:
        return b',"completion_tokens_details":null'
    return b',"completion_tokens_details":{"reasoning_tokens":%d}' % reasoning_tokens


def prompt_details(cached_tokens: int | None) -> bytes:
    """The member `prompt_tokens_details`, an object where cached tokens are told, else null."""
    if cached_tokens is None:
        return b',"prompt_tokens_details":null'
    return b',"prompt_tokens_details":{"cached_tokens":%d}' % cached_tokens
