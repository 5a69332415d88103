"""`Embed`: the embedding of token ids, which is the one that `/v1/embeddings` has for them."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from llmdsim.reply.embedding import embedding
from llmdsim.rpc.call import reply
from llmdsim.rpc.message_form import MessageForm
from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.rpc.prompt_ids import prompt_ids
from llmdsim.web.context import Context
from llmdsim.web.errors import ApiError
from llmdsim.web.pooling.admission import admitted
from llmdsim.web.pooling.embeddings import EmbeddingRequest
from llmdsim.web.pooling.inputs import ids_of, prompts_of
from llmdsim.web.pooling.reply import PoolingReply
from llmdsim.web.turns import Steps
from llmdsim.wire.grpc import Code, RpcError
from llmdsim.wire.request import Request


class Embed:
    """The method of one rank."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def embed(self, request: Request, asked: pb.EmbedRequest) -> Deferred[None] | None:
        """Answer one call, now or later."""
        return self._context.turns.take(self._answer(request, asked))

    def _answer(self, request: Request, asked: pb.EmbedRequest) -> Steps:
        context = self._context
        if context.config.mm_encoder_only:
            raise RpcError(Code.UNIMPLEMENTED, "There are no embeddings with --mm-encoder-only")
        if not asked.tokenized.input_ids:
            told = "has no ids" if asked.HasField("tokenized") else "is missing"
            raise ApiError.parameter(f"An embedding is made of token ids: tokenized {told}.", "tokenized")
        ids = yield from prompt_ids(asked.tokenized, context.limits)
        # Unlike its routes: gRPC servers that end take no further calls.
        context.refuse_unavailable()
        served = admitted(context, None)
        context.failures.meet(request, MessageForm(streamed=False))
        (prompt,) = yield from prompts_of(context, EmbeddingRequest(input=ids))  # type: ignore[arg-type]
        pooled = PoolingReply(context, request, served, "", asked.request_id, [prompt])
        tokens = yield from ids_of(prompt)
        made = yield from embedding(tokens, context.config.default_embedding_dimensions)
        pooled.conclude()
        reply(
            request,
            pb.EmbedResponse(embedding=made, prompt_tokens=pooled.prompt_tokens, embedding_dim=len(made)),
        )
