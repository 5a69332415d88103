"""The messages of a streamed Generate: a `chunk` a delta, and a `complete` behind the last of each choice."""

from __future__ import annotations

from llmdsim.engine.sequence import Sequence as EngineSequence
from llmdsim.reply.reply import Reply
from llmdsim.rpc.call import fail
from llmdsim.rpc.generate.complete import complete
from llmdsim.rpc.generate.encoding import delimited, number, packed, varint
from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.web.deltas import spans
from llmdsim.web.errors import ApiError
from llmdsim.web.frames import Frames, PlainFrames
from llmdsim.web.wants import ReplyWants
from llmdsim.wire.grpc import CONTENT_TYPE, OK_LINES, frame
from llmdsim.wire.request import Request

_CHUNK = pb.GenerateResponse.CHUNK_FIELD_NUMBER
_IDS = pb.GenerateStreamChunk.TOKEN_IDS_FIELD_NUMBER
_PROMPT_TOKENS = pb.GenerateStreamChunk.PROMPT_TOKENS_FIELD_NUMBER
_COMPLETION_TOKENS = pb.GenerateStreamChunk.COMPLETION_TOKENS_FIELD_NUMBER
_CACHED_TOKENS = pb.GenerateStreamChunk.CACHED_TOKENS_FIELD_NUMBER
_OUTPUT = pb.GenerateStreamChunk.OUTPUT_LOGPROBS_FIELD_NUMBER
_INPUT = pb.GenerateStreamChunk.INPUT_LOGPROBS_FIELD_NUMBER
_INDEX = pb.GenerateStreamChunk.INDEX_FIELD_NUMBER


#: Chunks that are made together, those of tokens still to come too: one by one each costs five times as much.
AHEAD = 32

#: Tokens whose chunks' beginnings are kept, for each length of what is behind them.
MOST_KEPT = 1 << 14


class _Begun(dict[int, bytes]):
    """What is before and in the id of a chunk's one token, by that id; `behind` bytes follow."""

    def __init__(self, behind: int) -> None:
        self._behind = behind

    def __missing__(self, token_id: int) -> bytes:
        behind = self._behind
        whole = frame(delimited(_CHUNK, delimited(_IDS, varint(token_id)) + bytes(behind)))
        found = whole[:-behind]
        if len(self) >= MOST_KEPT:
            self.clear()
        self[token_id] = found
        return found


class _AllBegun(dict[int, _Begun]):
    """Those for each length of what is behind, of which there are few."""

    def __missing__(self, behind: int) -> _Begun:
        self[behind] = found = _Begun(behind)
        return found


_begun = _AllBegun()


class PlainChunks:
    """The chunks of a choice that are of one token each, with nothing rare."""

    __slots__ = ("_begun", "_from", "_made", "_tail")

    def __init__(self) -> None:
        self._tail: bytes
        self._begun: _Begun
        self._made: list[bytes] = []
        self._from = 0

    def prepare(self, tail: bytes) -> None:
        """`tail` is what each chunk has behind its token."""
        self._tail = tail
        self._begun = _begun[len(tail)]

    def frames(self, reply: Reply, start: int, stop: int) -> bytes:
        """Those of the steps from `start` to `stop`."""
        tail = self._tail
        if stop - start > 1:
            return tail.join(map(self._begun.__getitem__, reply.ids(start, stop))) + tail
        at = start - self._from
        if not 0 <= at < len(self._made):
            begun = self._begun
            self._made = [begun[token_id] + tail for token_id in reply.ids(start, start + AHEAD)]
            self._from, at = start, 0
        return self._made[at]


class GenerateFrames(Frames):
    """Of one call; `of_prompt` is the prompt's InputLogProbs, in each choice's first chunk, or empty.

    The last delta of a choice is in its `complete` once more (SMG's servicer, which vLLM is served by).
    """

    content_type = CONTENT_TYPE

    def __init__(self, request: Request, wants: ReplyWants, of_prompt: bytes) -> None:
        request.trailers = OK_LINES
        self.wants = wants
        self._request = request
        self._of_prompt = of_prompt
        self._plain: dict[int, PlainChunks] = {}

    def render(self, index: int, sequence: EngineSequence, start: int, stop: int, ends: bool) -> bytes:
        reply = sequence.reply
        assert reply is not None
        first, start = start < 0, max(start, 0)
        plain = self._plain.get(index)
        if plain is not None:
            if first:
                plain.prepare(self._counts(index, sequence, 1))
            data = plain.frames(reply, start, stop) if start < stop else b""
            last = max(start, stop - 1)
        else:
            data, last = b"", start
            of_prompt = self._of_prompt if first else b""
            for last, end in spans(start, stop, self.wants.interval):
                data += self._chunk(index, sequence, last, end, of_prompt)
                of_prompt = b""
        return data + complete(sequence, self.wants, last, stop) if ends else data

    def plain_frames(self, index: int) -> PlainFrames | None:
        if self.wants.choices[index].logprobs is not None or self._of_prompt:
            return None
        plain = self._plain[index] = PlainChunks()
        return plain.frames

    def _counts(self, index: int, sequence: EngineSequence, tokens: int) -> bytes:
        """What a chunk of so many tokens has behind their ids, without log probabilities."""
        cached = self.wants.shown_cached(sequence.cached_tokens)
        return (
            number(_PROMPT_TOKENS, sequence.prompt_tokens)
            + number(_COMPLETION_TOKENS, tokens)
            + number(_CACHED_TOKENS, cached)
            + number(_INDEX, index)
        )

    def _chunk(self, index: int, sequence: EngineSequence, start: int, stop: int, of_prompt: bytes) -> bytes:
        reply = sequence.reply
        assert reply is not None
        ids = reply.ids(start, stop)
        chunk = packed(_IDS, ids) + self._counts(index, sequence, len(ids))
        shape = self.wants.choices[index].logprobs
        if shape is not None:
            chunk += delimited(_OUTPUT, shape.render(ids, reply.token_texts(start, stop), start))
        if of_prompt:
            chunk += delimited(_INPUT, of_prompt)
        return frame(delimited(_CHUNK, chunk))

    def end(self, sequence: EngineSequence, completion_tokens: int, cached_tokens: int) -> bytes:
        return b""

    def error(self, error: ApiError) -> bytes:
        fail(self._request, error)
        return b""
