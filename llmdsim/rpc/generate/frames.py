"""The messages of a streamed Generate: a `chunk` a delta, and a `complete` behind the last of each choice."""

from __future__ import annotations

from llmdsim.engine.sequence import Sequence as EngineSequence
from llmdsim.rpc.call import fail
from llmdsim.rpc.generate.complete import complete
from llmdsim.rpc.generate.encoding import delimited, number, packed, varint
from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.web.deltas import spans
from llmdsim.web.errors import ApiError
from llmdsim.web.frames import Frames
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
        #: Of each choice, where a chunk has one token and nothing rare: what goes before the token, by the
        #: length of its id, and after it.
        self._plain: list[tuple[list[bytes], bytes] | None] = [None] * len(wants.choices)

    def render(self, index: int, sequence: EngineSequence, start: int, stop: int, ends: bool) -> bytes:
        reply = sequence.reply
        assert reply is not None
        plain = self._plain[index]
        if plain is not None and not ends:
            heads, tail = plain
            ids = reply.ids(start, stop)
            if len(ids) == 1:
                token = varint(ids[0])
                return b"%b%b%b" % (heads[len(token)], token, tail)
            tokens = map(varint, ids)
            return b"".join([b"%b%b%b" % (heads[len(token)], token, tail) for token in tokens])
        chunks = []
        bounds = spans(max(start, 0), stop, self.wants.interval)
        if start < 0 and bounds:
            chunks.append(self._chunk(index, sequence, *bounds.pop(0), self._of_prompt))
            self._prepare(index, sequence)
        last = bounds[-1] if bounds else (max(start, 0), stop)
        chunks += [self._chunk(index, sequence, *span) for span in bounds]
        if ends:
            chunks.append(complete(sequence, self.wants, *last))
        return b"".join(chunks)

    def _prepare(self, index: int, sequence: EngineSequence) -> None:
        if self.wants.interval > 1 or self.wants.choices[index].logprobs is not None:
            return
        tail = self._counts(index, sequence, 1)
        heads = [b""]
        for size in range(1, 6):
            ids = varint(_IDS << 3 | 2) + varint(size)
            chunk = varint(_CHUNK << 3 | 2) + varint(len(ids) + size + len(tail))
            length = len(chunk) + len(ids) + size + len(tail)
            heads.append(b"\0" + length.to_bytes(4, "big") + chunk + ids)
        self._plain[index] = heads, tail

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
