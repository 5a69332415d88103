"""The SSE frames of chat and text streams: constant bytes around a token's text, with vLLM 0.33's keys."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from llmdsim.web.reply_head import ReplyHead
from llmdsim.web.usage import prompt_details, usage
from llmdsim.web.wants import ChoiceWants

NULL = b"null"
json = msgspec.json.encode


def finish_members(finish_reason: str, stop_reason: str | int | None) -> bytes:
    """`"finish_reason":…,"stop_reason":…`"""
    reason = NULL if stop_reason is None else json(stop_reason)
    return b'"finish_reason":"%b","stop_reason":%b' % (finish_reason.encode(), reason)


class Frames:
    """The frames of one stream; a choice's text goes between `before(index)` and what follows it.

    `usage_follows` says that a frame with nothing but usage comes last, and takes the fingerprint.
    """

    #: Whether what precedes a choice's first token goes in frames of its own (`heads`) or into its first.
    heads_apart: bool
    #: Further members of the usage that frames carry, with their leading comma.
    usage_details: bytes

    def __init__(self, head: ReplyHead, prefix: str, object_: bytes, usage_follows: bool) -> None:
        self._base = b'data: {"id":%b,"object":"%b","created":%d,"model":%b,"choices":[' % (
            json(prefix + head.id),
            object_,
            head.created,
            head.model,
        )
        self._fingerprint = b',"system_fingerprint":%b' % head.fingerprint
        self._finish_tail = b"" if usage_follows else self._fingerprint

    def heads(self, choices: Sequence[ChoiceWants], usages: Sequence[bytes]) -> bytes:
        """The frames before the first token of any choice; `usages` are members, as for `after`."""
        raise NotImplementedError

    def before(self, index: int) -> bytes:
        """A token's frame up to its text."""
        raise NotImplementedError

    def after(
        self, finish: bytes | None, logprobs: bytes, ids: bytes, prompt_ids: bytes, usage: bytes
    ) -> bytes:
        """The rest of a token's frame.

        `finish` are the finish members of the last one; `usage` is a member with its leading comma, or empty;
        the others are JSON values.
        """
        raise NotImplementedError

    def plain(self) -> bytes:
        """The rest of a token's frame when it carries nothing but text and is not the last."""
        return self.after(None, NULL, NULL, NULL, b"")

    def last(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int | None) -> bytes:
        """The frame with nothing but usage; without choices, a frame leaves nulls out."""
        details = b"" if cached_tokens is None else prompt_details(cached_tokens)
        counts = usage(prompt_tokens, completion_tokens, details)
        return b'%b],"usage":%b%b}\n\n' % (self._base, counts, self._fingerprint)


class ChatFrames(Frames):
    """Frames of `chat.completion.chunk`."""

    heads_apart = True
    usage_details = b',"completion_tokens_details":null'

    def __init__(self, head: ReplyHead, role: str, usage_follows: bool) -> None:
        super().__init__(head, "chatcmpl-", b"chat.completion.chunk", usage_follows)
        self._role = json(role)

    def heads(self, choices: Sequence[ChoiceWants], usages: Sequence[bytes]) -> bytes:
        """The roles of all choices, then what they echo."""
        roles = [
            b'%b{"index":%d,"delta":{"role":%b,"content":""},"logprobs":null,"finish_reason":null}]%b'
            b',"prompt_token_ids":%b,"prompt_text":null}\n\n'
            % (self._base, index, self._role, usages[index], choice.prompt_ids)
            for index, choice in enumerate(choices)
        ]
        echoes = [
            b'%b{"index":%d,"delta":{"content":"%b"},"logprobs":null,"finish_reason":null}]%b}\n\n'
            % (self._base, index, choice.lead, usages[index])
            for index, choice in enumerate(choices)
            if choice.lead
        ]
        return b"".join(roles + echoes)

    def before(self, index: int) -> bytes:
        return b'%b{"index":%d,"delta":{"content":"' % (self._base, index)

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


class TextFrames(Frames):
    """Frames of `text_completion`; what is echoed, and the prompt's ids, are in a choice's first one."""

    heads_apart = False
    usage_details = b""

    def __init__(self, head: ReplyHead, usage_follows: bool) -> None:
        super().__init__(head, "cmpl-", b"text_completion", usage_follows)

    def heads(self, choices: Sequence[ChoiceWants], usages: Sequence[bytes]) -> bytes:
        return b""

    def before(self, index: int) -> bytes:
        return b'%b{"index":%d,"text":"' % (self._base, index)

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
