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


class PlainChunks:
    """The chunks of a choice behind its first, each of one token, with nothing rare; made a few at a time."""

    __slots__ = ("_from", "_heads", "_made", "_tail")

    def __init__(self) -> None:
        self._heads: list[bytes] = []
        self._tail = b""
        self._made: list[bytes] = []
        self._from = 0

    def prepare(self, tail: bytes) -> None:
        """`tail` is what each chunk has behind its token. What is before it depends on how long its id is."""
        self._tail = tail
        self._heads = [b""]
        for size in range(1, 6):
            whole = frame(delimited(_CHUNK, delimited(_IDS, bytes(size)) + tail))
            self._heads.append(whole[: -size - len(tail)])

    def frames(self, reply: Reply, start: int, stop: int) -> bytes:
        """Those of the steps from `start`, which is not the first, to `stop`."""
        at, end = start - self._from, stop - self._from
        if at < 0 or end > len(self._made):
            heads, tail = self._heads, self._tail
            ids = reply.ids(start, min(max(stop, start + AHEAD), reply.total))
            self._made = [heads[len(token)] + token + tail for token in map(varint, ids)]
            self._from, at, end = start, 0, stop - start
        made = self._made
        return made[at] if end - at == 1 else b"".join(made[at:end])


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
        self._plain: dict[int, PlainChunks | None] = {}

    def render(self, index: int, sequence: EngineSequence, start: int, stop: int, ends: bool) -> bytes:
        reply = sequence.reply
        assert reply is not None
        chunks = []
        plain = self._plain_of(index)
        bounds = spans(max(start, 0), stop, self.wants.interval)
        last = bounds[-1] if bounds else (max(start, 0), stop)
        if start < 0 and bounds:
            chunks.append(self._chunk(index, sequence, *bounds.pop(0), self._of_prompt))
            if plain is not None:
                plain.prepare(self._counts(index, sequence, 1))
        if plain is None:
            chunks += [self._chunk(index, sequence, *span) for span in bounds]
        elif bounds:
            chunks.append(plain.frames(reply, bounds[0][0], stop))
        if ends:
            chunks.append(complete(sequence, self.wants, *last))
        return b"".join(chunks)

    def plain_frames(self, index: int) -> PlainFrames | None:
        plain = self._plain_of(index)
        return None if plain is None else plain.frames

    def _plain_of(self, index: int) -> PlainChunks | None:
        if index not in self._plain:
            wants = self.wants
            is_plain = wants.interval == 1 and wants.choices[index].logprobs is None
            self._plain[index] = PlainChunks() if is_plain else None
        return self._plain[index]

    def _counts(self, index: int, sequence: EngineSequence, tokens: int) -> bytes:
        """What a chunk of so many tokens has behind their ids, without log probabilities."""
        cached = self.wants.shown_cached(sequence.cached_tokens)
        return (
            number(_PROMPT_TOKENS, sequence.prompt_tokens)
            + number(_COMPLETION_TOKENS, tokens)
            + number(_CACHED_TOKENS, cached)
            + number(_INDEX, index)
        )

    def _chunk(
        self, index: int, sequence: EngineSequence, start: int, stop: int, of_prompt: bytes = b""
    ) -> bytes:
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
