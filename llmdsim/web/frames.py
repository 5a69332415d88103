"""The SSE frames of chat and text streams: constant bytes around a token's text, with vLLM 0.33's keys."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from llmdsim.engine.engine import COMPLETE
from llmdsim.engine.sequence import Sequence as EngineSequence
from llmdsim.reply.reply import Reply
from llmdsim.web.deltas import deltas, pieces, spans
from llmdsim.web.errors import ApiError
from llmdsim.web.finish import chat_finish_reason, finish_members
from llmdsim.web.images import IMAGE_PART
from llmdsim.web.parts import PartMembers
from llmdsim.web.reply_head import ReplyHead
from llmdsim.web.transfer import PrefillAnswer, transfer_members
from llmdsim.web.usage import completion_details, last_usage, usage
from llmdsim.web.wants import ChoiceWants, ReplyWants
from llmdsim.wire import sse

NULL = b"null"
json = msgspec.json.encode


#: The frames of steps of a reply, one each, from one to another.
PlainFrames = Callable[[Reply, int, int], bytes]


class Frames(ABC):
    """What one stream consists of, as bytes; `llmdsim.web.stream` decides when and how much.

    A choice's steps are rendered in order, each once, as many in a delta as `wants.interval` says.
    """

    wants: ReplyWants
    content_type = sse.CONTENT_TYPE

    def early(self) -> bytes:
        """What is sent as soon as the request is taken, the first time this is asked for.

        Most streams begin with their first token. Otherwise `render` takes it along where it comes sooner.
        """
        return b""

    def plain_frames(self, index: int) -> PlainFrames | None:
        """What makes frames between a choice's first and last, if there is nothing rare to them."""
        return None

    @abstractmethod
    def render(self, index: int, sequence: EngineSequence, start: int, stop: int, ends: bool) -> bytes:
        """The steps from `start` to `stop` of a choice; -1 is the start of what it has not yet begun.

        With `ends` they are its last, and `sequence.finish_reason` is set.
        """

    @abstractmethod
    def end(self, sequence: EngineSequence, completion_tokens: int, cached_tokens: int) -> bytes:
        """What follows the last choice, that of `sequence`; the counts are those of all choices."""

    @abstractmethod
    def error(self, error: ApiError) -> bytes:
        """The end of a stream that cannot be completed; where it is told otherwise, nothing."""


class Finish(NamedTuple):
    """What a choice's last frame says more: members with its reason, and `transfer_members`."""

    reason: bytes
    transfer: tuple[bytes, bytes]

    @classmethod
    def of(cls, sequence: EngineSequence, prefill: PrefillAnswer | None, reason: str | None = None) -> Finish:
        """Of a sequence that has ended; `reason`, where given, is told in place of the engine's."""
        return cls(finish_members(sequence, reason, prefill), transfer_members(prefill, sequence))


class ChunkFrames(Frames):
    """Frames of OpenAI's chunks, one a delta."""

    #: The member that holds a token's text, up to the text.
    text_member: bytes
    #: Tokens of the prompt that were computed for others to find, where they are told.
    created_tokens: int | None = None

    def __init__(self, head: ReplyHead, object_: bytes, wants: ReplyWants) -> None:
        self.wants = wants
        self._base = b'data: {"id":%b,"object":"%b","created":%d,"model":%b,"choices":[' % (
            json(head.id),
            object_,
            head.created,
            head.model,
        )
        self._fingerprint = b',"system_fingerprint":%b' % head.fingerprint
        # A frame with nothing but usage takes the fingerprint.
        self._finish_tail = b"" if wants.usage else self._fingerprint
        self._plain: dict[int, tuple[bytes, bytes] | None] = {}

    @abstractmethod
    def before(self, index: int) -> bytes:
        """A token's frame up to what the token adds."""

    @abstractmethod
    def after(
        self, finish: Finish | None, logprobs: bytes, ids: bytes, prompt_ids: bytes, usage: bytes
    ) -> bytes:
        """The rest of a token's frame.

        `finish` is what the last one says more; `usage` is a member with its leading comma, or empty; the
        others are JSON values.
        """

    @abstractmethod
    def begin(self, index: int) -> tuple[bytes, bytes, bytes]:
        """When a choice begins: frames before its first, what its text begins with, and its prompt's ids."""

    def finish(self, sequence: EngineSequence) -> Finish:
        """What a choice's last frame says more."""
        return Finish.of(sequence, self.wants.prefill)

    def added(self, index: int, sequence: EngineSequence, start: int, stop: int) -> list[bytes | None]:
        """What each delta adds, as members; None where it only shows in ids and log probabilities."""
        reply = sequence.reply
        assert reply is not None
        texts = pieces(reply, start, stop, self.wants.interval)
        if self.wants.choices[index].prompt_only:
            texts = [b""] * len(texts)
        return [b'%b%b"' % (self.text_member, text) for text in texts]

    def plain_frames(self, index: int) -> PlainFrames | None:
        plain = self.plain(index)
        if plain is None:
            return None
        before, after = plain

        def frames(reply: Reply, start: int, stop: int) -> bytes:
            pieces = reply.pieces(start, stop)
            if len(pieces) == 1:
                return before + pieces[0] + after
            return b"".join([before + piece + after for piece in pieces])

        return frames

    def plain(self, index: int) -> tuple[bytes, bytes] | None:
        """What goes before and after a token's text, if that is all there is to one within a choice."""
        if index not in self._plain:
            self._plain[index] = self._find_plain(index)
        return self._plain[index]

    def _find_plain(self, index: int) -> tuple[bytes, bytes] | None:
        wants = self.wants
        choice = wants.choices[index]
        if (
            wants.token_ids
            or wants.continuous_usage
            or choice.parted
            or choice.prompt_only
            or choice.logprobs is not None
        ):
            return None
        return self.before(index) + self.text_member, b'"' + self.after(None, NULL, NULL, NULL, b"")

    def render(self, index: int, sequence: EngineSequence, start: int, stop: int, ends: bool) -> bytes:
        frames, lead, prompt_ids = b"", b"", NULL
        if start < 0:
            start = 0
            frames, lead, prompt_ids = self.begin(index)
        finish = self.finish(sequence) if ends else None
        plain = self.plain(index)
        if plain is None or lead or prompt_ids is not NULL:
            return frames + self._detailed(index, sequence, start, stop, finish, lead, prompt_ids)
        reply = sequence.reply
        assert reply is not None
        before, after = plain
        texts = pieces(reply, start, stop, self.wants.interval)
        if finish is None:
            return frames + b"".join([before + text + after for text in texts])
        # The last frame carries the reason even where nothing was generated.
        last = texts[-1] if texts else b""
        ending = b'%b%b"%b' % (before, last, self.after(finish, NULL, NULL, NULL, b""))
        return frames + b"".join([before + text + after for text in texts[:-1]]) + ending

    def _detailed(
        self,
        index: int,
        sequence: EngineSequence,
        start: int,
        stop: int,
        finish: Finish | None,
        lead: bytes,
        prompt_ids: bytes,
    ) -> bytes:
        reply = sequence.reply
        assert reply is not None
        choice = self.wants.choices[index]
        added = self.added(index, sequence, start, stop)
        bounds = spans(start, stop, self.wants.interval)
        if finish is not None and not added:
            added, bounds = [None if choice.parted else b'%b"' % self.text_member], [(stop, stop)]
        if lead:
            added[0] = b"%b%b%b" % (self.text_member, lead, (added[0] or b"")[len(self.text_member) :])
        before = self.before(index)
        out = []
        for members, (first, end) in zip(added, bounds, strict=True):
            last = finish if end == stop else None
            if members is None and last is None and choice.logprobs is None and not self.wants.token_ids:
                continue
            ids = logprobs = NULL
            usage_member = self.usage_member(choice, end, reply)
            if self.wants.token_ids:
                ids = json(reply.ids(first, end))
            if choice.logprobs is not None:
                until = first if choice.prompt_only else end
                logprobs = choice.logprobs.render(
                    reply.ids(first, until), reply.token_texts(first, until), first
                )
            out += [before, members or b"", self.after(last, logprobs, ids, prompt_ids, usage_member)]
            prompt_ids = NULL
        return b"".join(out)

    def usage_member(self, choice: ChoiceWants, tokens: int, reply: Reply | None) -> bytes:
        """A choice's usage after so many tokens, as a member with its leading comma, where frames have it."""
        if not self.wants.continuous_usage:
            return b""
        return b',"usage":%b' % usage(len(choice.prompt), tokens, self.details_so_far(tokens, reply))

    def details_so_far(self, tokens: int, reply: Reply | None) -> bytes:
        """Further members of that usage, with their leading comma."""
        return b""

    def last_details(self) -> bytes:
        """Further members of the usage that comes last, with their leading comma."""
        return b""

    def end(self, sequence: EngineSequence, completion_tokens: int, cached_tokens: int) -> bytes:
        wants = self.wants
        if not wants.usage:
            return sse.DONE
        counts = last_usage(wants, completion_tokens, cached_tokens, self.last_details(), self.created_tokens)
        return b'%b],"usage":%b%b}\n\n%b' % (self._base, counts, self._fingerprint, sse.DONE)

    def error(self, error: ApiError) -> bytes:
        return sse.event(error.body) + sse.DONE


class ChatFrames(ChunkFrames):
    """Frames of `chat.completion.chunk`."""

    text_member = b'"content":"'

    def __init__(self, head: ReplyHead, role: str, wants: ReplyWants) -> None:
        super().__init__(head, b"chat.completion.chunk", wants)
        self._role = json(role)
        self._begun = False
        self._reasoning_tokens = 0
        self.created_tokens = 0
        self._parts: dict[int, PartMembers] = {}

    def begin(self, index: int) -> tuple[bytes, bytes, bytes]:
        """The roles of all choices, then what they echo, before the first of them."""
        if self._begun:
            return b"", b"", NULL
        self._begun = True
        choices = self.wants.choices
        roles = [
            b'%b{"index":%d,"delta":{"role":%b,"content":""},"logprobs":null,"finish_reason":null}]%b'
            b',"prompt_token_ids":%b,"prompt_text":null}\n\n'
            % (self._base, index, self._role, self.usage_member(choice, 0, None), choice.prompt_ids)
            for index, choice in enumerate(choices)
        ]
        echoes = [
            b'%b{"index":%d,"delta":{"content":"%b"},"logprobs":null,"finish_reason":null}]%b}\n\n'
            % (self._base, index, choice.lead, self.usage_member(choice, 0, None))
            for index, choice in enumerate(choices)
            if choice.lead
        ]
        return b"".join(roles + echoes), b"", NULL

    def finish(self, sequence: EngineSequence) -> Finish:
        if not sequence.index:
            self.created_tokens = sequence.created_tokens
        if self.wants.reasoning and sequence.reply is not None:
            self._reasoning_tokens += sequence.reply.reasoning_tokens(sequence.revealed)
        return Finish.of(sequence, self.wants.prefill, chat_finish_reason(sequence))

    def details_so_far(self, tokens: int, reply: Reply | None) -> bytes:
        if not self.wants.reasoning:
            return completion_details(None)
        return completion_details(0 if reply is None else reply.reasoning_tokens(tokens))

    def last_details(self) -> bytes:
        return completion_details(self._reasoning_tokens) if self.wants.reasoning else b""

    def added(self, index: int, sequence: EngineSequence, start: int, stop: int) -> list[bytes | None]:
        if not self.wants.choices[index].parted:
            return super().added(index, sequence, start, stop)
        reply = sequence.reply
        assert reply is not None
        members = self._parts.get(index)
        if members is None:
            plan = sequence.ask.plan
            members = self._parts[index] = PartMembers(reply.parts, plan is not None and plan.image)
        added = deltas(reply, start, stop, self.wants.interval)
        return [members.render(delta) if delta else None for delta in added]

    def before(self, index: int) -> bytes:
        return b'%b{"index":%d,"delta":{' % (self._base, index)

    def render(self, index: int, sequence: EngineSequence, start: int, stop: int, ends: bool) -> bytes:
        plan = sequence.ask.plan
        if not ends or plan is None or not plan.image or sequence.finish_reason not in COMPLETE:
            return super().render(index, sequence, start, stop, ends)
        # The image is due when all tokens have been revealed.
        image = (
            b'%b{"index":%d,"delta":{"content":[%b]},"logprobs":null,"finish_reason":null}],"modality":"image"}\n\n'
            % (self._base, index, IMAGE_PART)
        )
        before = super().render(index, sequence, start, stop, False) if start < stop else b""
        return before + image + super().render(index, sequence, stop, stop, True)

    def after(
        self, finish: Finish | None, logprobs: bytes, ids: bytes, prompt_ids: bytes, usage: bytes
    ) -> bytes:
        if finish is None:
            return (
                b'},"logprobs":%b,"finish_reason":null,"token_ids":%b}]%b,"kv_transfer_params":null}\n\n'
                % (logprobs, ids, usage)
            )
        return (
            b'},"logprobs":%b,%b,"token_ids":%b,"weight_versions":null}]%b%b,"kv_transfer_params":%b%b}\n\n'
            % (logprobs, finish.reason, ids, usage, self._finish_tail, *finish.transfer)
        )


class TextFrames(ChunkFrames):
    """Frames of `text_completion`; what is echoed, and the prompt's ids, are in a choice's first one."""

    text_member = b'"text":"'

    def __init__(self, head: ReplyHead, wants: ReplyWants) -> None:
        super().__init__(head, b"text_completion", wants)

    def begin(self, index: int) -> tuple[bytes, bytes, bytes]:
        choice = self.wants.choices[index]
        return b"", choice.lead, choice.prompt_ids

    def before(self, index: int) -> bytes:
        return b'%b{"index":%d,' % (self._base, index)

    def after(
        self, finish: Finish | None, logprobs: bytes, ids: bytes, prompt_ids: bytes, usage: bytes
    ) -> bytes:
        return (
            b',"logprobs":%b,%b,"prompt_token_ids":%b,"token_ids":%b,"weight_versions":null}]%b%b'
            b',"kv_transfer_params":%b%b}\n\n'
            % (
                logprobs,
                b'"finish_reason":null,"stop_reason":null' if finish is None else finish.reason,
                prompt_ids,
                ids,
                usage,
                b"" if finish is None else self._finish_tail,
                *((NULL, b"") if finish is None else finish.transfer),
            )
        )
