"""The SSE frames of `POST /inference/v1/generate`: constant bytes around a token's id, vLLM 0.33's keys."""

from __future__ import annotations

import msgspec

from llmdsim.engine.sequence import Sequence as EngineSequence
from llmdsim.reply.reply import Reply
from llmdsim.web.deltas import spans
from llmdsim.web.errors import ApiError
from llmdsim.web.finish import finish_members
from llmdsim.web.frames import NULL, Frames
from llmdsim.web.usage import NO_DETAILS, last_usage, usage
from llmdsim.web.wants import ChoiceWants, ReplyWants
from llmdsim.wire import sse

json = msgspec.json.encode

_UNFINISHED = b'"finish_reason":null,"stop_reason":null'
_UNUSED = b'"routed_experts":null,"sampling_mask":null,"weight_versions":null'
_PLAIN_END = b'],%b,"logprobs":null}]}\n\n' % _UNUSED


class GenerateFrames(Frames):
    """One frame a delta, with its tokens' ids.

    `opening` are members of the first frame, each with a trailing comma. With `text` a frame has the text as
    well. Transfer parameters are in no frame (vLLM).
    """

    def __init__(self, reply_id: str, wants: ReplyWants, text: bool, opening: bytes) -> None:
        self.wants = wants
        self._text = text
        self._opening = opening
        self._base = b'data: {"request_id":%b,"usage":' % json(reply_id)
        self._mode = b'"output_mode":"text","choices":[' if text else b'"output_mode":"tokens","choices":['
        # Of each choice, what goes before a token's id where that is all there is to a frame.
        self._before: list[bytes] = []
        if not (text or wants.continuous_usage or wants.choices[0].logprobs is not None):
            self._before = [
                b'%bnull,%b{"index":%d,%b,"token_ids":[' % (self._base, self._mode, index, _UNFINISHED)
                for index in range(len(wants.choices))
            ]

    def render(self, index: int, sequence: EngineSequence, start: int, stop: int, ends: bool) -> bytes:
        reply = sequence.reply
        assert reply is not None
        start = max(start, 0)
        if self._before and not self._opening and not ends:
            before = self._before[index]
            if self.wants.interval == 1:
                return b"".join([b"%b%d%b" % (before, token, _PLAIN_END) for token in reply.ids(start, stop)])
            ids = [json(reply.ids(*span))[1:-1] for span in spans(start, stop, self.wants.interval)]
            return b"".join([before + members + _PLAIN_END for members in ids])
        # The last frame carries the reason even where nothing was generated.
        bounds = spans(start, stop, self.wants.interval) or [(start, stop)] * ends
        finish = finish_members(sequence, None, self.wants.prefill) if ends else _UNFINISHED
        frames = [self._frame(index, reply, *span, _UNFINISHED) for span in bounds[:-1]]
        frames += [self._frame(index, reply, *span, finish) for span in bounds[-1:]]
        return b"".join(frames)

    def _frame(self, index: int, reply: Reply, start: int, stop: int, finish: bytes) -> bytes:
        """The frame of some steps, or of none."""
        choice = self.wants.choices[index]
        ids = reply.ids(start, stop)
        opening, self._opening = self._opening, b""
        logprobs = NULL
        if choice.logprobs is not None:
            logprobs = choice.logprobs.render(ids, reply.token_texts(start, stop), start)
        return b'%b%b,%b%b{"index":%d,%b,"token_ids":%b,%b,%b"logprobs":%b}]}\n\n' % (
            self._base,
            self._usage(choice, stop),
            opening,
            self._mode,
            index,
            finish,
            json(ids),
            _UNUSED,
            b'"text":"%b",' % b"".join(reply.pieces(start, stop)) if self._text else b"",
            logprobs,
        )

    def _usage(self, choice: ChoiceWants, tokens: int) -> bytes:
        """A choice's usage after so many tokens, where frames have it."""
        if not self.wants.continuous_usage:
            return NULL
        return usage(len(choice.prompt), tokens, NO_DETAILS)

    def end(self, sequence: EngineSequence, completion_tokens: int, cached_tokens: int) -> bytes:
        wants = self.wants
        if not wants.usage:
            return sse.DONE
        counts = last_usage(wants, completion_tokens, cached_tokens)
        return b"%b%b,%b]}\n\n%b" % (self._base, counts, self._mode, sse.DONE)

    def error(self, error: ApiError) -> bytes:
        return sse.event(error.body) + sse.DONE
