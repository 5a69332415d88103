"""A Generate that is not streamed: one `complete` a choice, when all are done."""

from __future__ import annotations

from collections.abc import Sequence

from llmdsim.engine.sequence import Sequence as EngineSequence
from llmdsim.rpc.call import fail
from llmdsim.rpc.generate.complete import complete
from llmdsim.web.errors import ApiError
from llmdsim.web.wants import ReplyWants
from llmdsim.web.whole import Body, WholeReply
from llmdsim.wire.grpc import CONTENT_TYPE, OK_LINES


class WholeGenerate(WholeReply):
    """The sink of all choices of one call."""

    def respond(self, body: bytes) -> None:
        self.request.trailers = OK_LINES
        self.request.start(200, CONTENT_TYPE, first=body, end=True)

    def refuse(self, error: ApiError) -> None:
        fail(self.request, error)


def whole_messages(wants: ReplyWants, of_prompt: bytes) -> Body:
    """Makes the messages, framed, in the order of the choices; `of_prompt` is in each of them."""

    def body(sequences: Sequence[EngineSequence], completion_tokens: int, cached_tokens: int) -> bytes:
        # It is the first choice's prompt whose blocks are read (vLLM).
        params = None if wants.prefill is None else wants.prefill.params(sequences[0])
        return b"".join(
            [complete(sequence, wants, 0, sequence.revealed, of_prompt, params) for sequence in sequences]
        )

    return body
