"""The SSE frames of chat and text streams: constant bytes around a token's text, with vLLM 0.33's keys."""

from __future__ import annotations

from typing import Protocol

import msgspec

from llmdsim.web.usage import prompt_details, usage

NULL = b"null"
json = msgspec.json.encode


def finish_members(finish_reason: str, stop_reason: str | int | None) -> bytes:
    """`"finish_reason":…,"stop_reason":…`"""
    return b'"finish_reason":"%b","stop_reason":%b' % (finish_reason.encode(), json(stop_reason))


class Frames(Protocol):
    """The frames of one stream; a choice's text goes between `before(index)` and what follows it."""

    #: Whether what precedes a choice's first token goes in frames of its own, before any choice's token.
    heads_apart: bool
    #: Further members of the usage that frames carry, with their leading comma.
    usage_details: bytes

    def role(self, index: int, prompt_ids: bytes, usage: bytes) -> bytes:
        """The frame that opens a choice, where heads are apart."""

    def echo(self, index: int, text: bytes, usage: bytes) -> bytes:
        """The frame with what a choice echoes, where heads are apart."""

    def before(self, index: int) -> bytes:
        """A token's frame up to its text."""

    def plain(self) -> bytes:
        """The rest of a token's frame when it carries nothing but text and is not the last."""

    def after(
        self, finish: bytes | None, logprobs: bytes, ids: bytes, prompt_ids: bytes, usage: bytes
    ) -> bytes:
        """The rest of any token's frame. `finish` are the finish members of the last one; `usage` is a member
        with its leading comma, or empty; the others are JSON values."""

    def last(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int | None) -> bytes:
        """The frame with nothing but usage."""


class ChatFrames:
    """Frames of `chat.completion.chunk`; `model` and `fingerprint` are JSON."""

    def __init__(
        self, reply_id: str, created: int, model: bytes, role: str, fingerprint: bytes, usage_follows: bool
    ) -> None:
        self._base = (
            b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,"choices":['
            % (json("chatcmpl-" + reply_id), created, model)
        )
        self._role = json(role)
        fingerprint_member = b',"system_fingerprint":%b' % fingerprint
        self._finish_tail = b"" if usage_follows else fingerprint_member
        self._usage_tail = fingerprint_member

    heads_apart = True
    usage_details = b',"completion_tokens_details":null'

    def role(self, index: int, prompt_ids: bytes, usage: bytes) -> bytes:
        return (
            b'%b{"index":%d,"delta":{"role":%b,"content":""},"logprobs":null,"finish_reason":null}]%b'
            b',"prompt_token_ids":%b,"prompt_text":null}\n\n'
            % (self._base, index, self._role, usage, prompt_ids)
        )

    def echo(self, index: int, text: bytes, usage: bytes) -> bytes:
        return b'%b{"index":%d,"delta":{"content":"%b"},"logprobs":null,"finish_reason":null}]%b}\n\n' % (
            self._base,
            index,
            text,
            usage,
        )

    def before(self, index: int) -> bytes:
        return b'%b{"index":%d,"delta":{"content":"' % (self._base, index)

    def plain(self) -> bytes:
        return b'"},"logprobs":null,"finish_reason":null,"token_ids":null}],"kv_transfer_params":null}\n\n'

    def after(
        self, finish: bytes | None, logprobs: bytes, ids: bytes, prompt_ids: bytes, usage: bytes
    ) -> bytes:
        if finish is None:
            return (
                b'"},"logprobs":%b,"finish_reason":null,"token_ids":%b}]%b,"kv_transfer_params":null}\n\n'
                % (logprobs, ids, usage)
            )
        return (
            b'"},"logprobs":%b,%b,"token_ids":%b,"weight_versions":null}]%b%b,"kv_transfer_params":null}\n\n'
            % (logprobs, finish, ids, usage, self._finish_tail)
        )

    def last(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int | None) -> bytes:
        # A frame without choices leaves nulls out.
        details = b"" if cached_tokens is None else prompt_details(cached_tokens)
        counts = usage(prompt_tokens, completion_tokens, details)
        return b'%b],"usage":%b%b}\n\n' % (self._base, counts, self._usage_tail)


class TextFrames:
    """Frames of `text_completion`; `model` and `fingerprint` are JSON."""

    def __init__(
        self, reply_id: str, created: int, model: bytes, fingerprint: bytes, usage_follows: bool
    ) -> None:
        self._base = b'data: {"id":%b,"object":"text_completion","created":%d,"model":%b,"choices":[' % (
            json("cmpl-" + reply_id),
            created,
            model,
        )
        fingerprint_member = b',"system_fingerprint":%b' % fingerprint
        self._finish_tail = b"" if usage_follows else fingerprint_member
        self._usage_tail = fingerprint_member

    heads_apart = False
    usage_details = b""

    def role(self, index: int, prompt_ids: bytes, usage: bytes) -> bytes:
        raise NotImplementedError

    def echo(self, index: int, text: bytes, usage: bytes) -> bytes:
        raise NotImplementedError

    def before(self, index: int) -> bytes:
        return b'%b{"index":%d,"text":"' % (self._base, index)

    def plain(self) -> bytes:
        return self.after(None, NULL, NULL, NULL, b"")

    def after(
        self, finish: bytes | None, logprobs: bytes, ids: bytes, prompt_ids: bytes, usage: bytes
    ) -> bytes:
        return (
            b'","logprobs":%b,%b,"prompt_token_ids":%b,"token_ids":%b,"weight_versions":null}]%b%b'
            b',"kv_transfer_params":null}\n\n'
            % (
                logprobs,
                b'"finish_reason":null,"stop_reason":null' if finish is None else finish,
                prompt_ids,
                ids,
                usage,
                b"" if finish is None else self._finish_tail,
            )
        )

    def last(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int | None) -> bytes:
        details = b"" if cached_tokens is None else prompt_details(cached_tokens)
        counts = usage(prompt_tokens, completion_tokens, details)
        return b'%b],"usage":%b%b}\n\n' % (self._base, counts, self._usage_tail)
