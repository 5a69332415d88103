"""The events of a streamed message, with vLLM 0.33's keys."""

from __future__ import annotations

import msgspec

from llmdsim.engine.sequence import Sequence as EngineSequence
from llmdsim.web.anthropic.blocks import Blocks
from llmdsim.web.anthropic.finish import stop_reason
from llmdsim.web.anthropic.usage import message_usage
from llmdsim.web.deltas import deltas, pieces
from llmdsim.web.errors import ANTHROPIC, ApiError
from llmdsim.web.frames import Frames
from llmdsim.web.reply_head import ReplyHead
from llmdsim.web.wants import ReplyWants

json = msgspec.json.encode


class MessageFrames(Frames):
    """The events of one message, which is one choice."""

    def __init__(self, head: ReplyHead, wants: ReplyWants) -> None:
        self.wants = wants
        self._head = head
        self._parted = wants.choices[0].parted
        self._blocks = Blocks()

    def render(self, index: int, sequence: EngineSequence, start: int, stop: int, ends: bool) -> bytes:
        events = b""
        if start < 0:
            start = 0
            events = self._start()
        reply = sequence.reply
        assert reply is not None
        if not self._parted:
            return events + self._blocks.text(pieces(reply, start, stop, self.wants.interval))
        add, parts = self._blocks.add, reply.parts
        joined = deltas(reply, start, stop, self.wants.interval)
        added = [add(parts[delta.part], delta) for step in joined for delta in step]
        return events + b"".join(added)

    def end(self, sequence: EngineSequence, completion_tokens: int, cached_tokens: int) -> bytes:
        calls: list[str] = []
        if self._parted:
            reply = sequence.reply
            assert reply is not None
            texts = zip(reply.parts, reply.part_texts(), strict=True)
            calls = [text for part, text in texts if part.kind == "call"]
        reason, matched = stop_reason(sequence, calls, self.wants.prefill)
        return (
            b'%bevent: message_delta\ndata: {"type":"message_delta",'
            b'"delta":{"stop_reason":%b,"stop_sequence":%b},"usage":%b}\n\n'
            b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
            % (
                self._blocks.close(),
                json(reason),
                json(matched),
                message_usage(self.wants, completion_tokens, cached_tokens, sequence.created_tokens),
            )
        )

    def error(self, error: ApiError) -> bytes:
        return b"%bevent: error\ndata: %b\n\n" % (self._blocks.close(), error.body_for(ANTHROPIC))

    def _start(self) -> bytes:
        return (
            b'event: message_start\ndata: {"type":"message_start","message":{"id":%b,"type":"message",'
            b'"role":"assistant","content":[],"model":%b,"stop_reason":null,"stop_sequence":null,'
            b'"usage":{"input_tokens":%d,"output_tokens":0}}}\n\n'
            % (json(self._head.id), self._head.model, self.wants.prompt_tokens)
        )
