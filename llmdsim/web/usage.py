"""The `usage` object of replies and streams."""

from __future__ import annotations

from llmdsim.web.wants import ReplyWants

_COUNTS = b'"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d'
_USAGE = b"{" + _COUNTS + b"%b}"
_CACHED = b',"prompt_tokens_details":{"cached_tokens":%d}'
_CACHED_AND_CREATED = b',"prompt_tokens_details":{"cached_tokens":%d,"created_cache_tokens":%d}'
_NO_REASONING = b',"completion_tokens_details":null'

#: That of a chat without reasoning: takes the tokens of its prompt, of all, of the answer, those that were
#: cached and those that were computed for others to find.
CHAT_USAGE = b"{" + _COUNTS + _CACHED_AND_CREATED + _NO_REASONING + b"}"


def usage(prompt_tokens: int, completion_tokens: int, details: bytes = b"") -> bytes:
    """vLLM's key order; `details` are further members, each with its leading comma."""
    return _USAGE % (prompt_tokens, prompt_tokens + completion_tokens, completion_tokens, details)


def reply_usage(
    wants: ReplyWants,
    completion_tokens: int,
    cached_tokens: int,
    reasoning_tokens: int | None = None,
    created_tokens: int | None = None,
) -> bytes:
    """That of a whole reply."""
    cached = wants.shown_cached(cached_tokens) if wants.cached else None
    details = prompt_details(cached, created_tokens) + completion_details(reasoning_tokens)
    return usage(wants.prompt_tokens, completion_tokens, details)


def last_usage(
    wants: ReplyWants,
    completion_tokens: int,
    cached_tokens: int,
    details: bytes = b"",
    created_tokens: int | None = None,
) -> bytes:
    """That of a stream's last frame, which has no choices, and therefore no nulls (vLLM)."""
    if wants.cached:
        details = prompt_details(wants.shown_cached(cached_tokens), created_tokens) + details
    return usage(wants.prompt_tokens, completion_tokens, details)


def completion_details(reasoning_tokens: int | None) -> bytes:
    """The member `completion_tokens_details`, an object where reasoning is told, else null."""
    if reasoning_tokens is None:
        return _NO_REASONING
    return b',"completion_tokens_details":{"reasoning_tokens":%d}' % reasoning_tokens


def prompt_details(cached_tokens: int | None, created_tokens: int | None = None) -> bytes:
    """The member `prompt_tokens_details`, an object where cached tokens are told, else null.

    Those that were computed for others to find are told of chats alone (vLLM).
    """
    if cached_tokens is None:
        return b',"prompt_tokens_details":null'
    if created_tokens is None:
        return _CACHED % cached_tokens
    return _CACHED_AND_CREATED % (cached_tokens, created_tokens)


#: Neither is told.
NO_DETAILS = prompt_details(None) + completion_details(None)
