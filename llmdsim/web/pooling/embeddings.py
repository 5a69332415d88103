"""`POST /v1/embeddings`."""

from __future__ import annotations

from klein import Klein
from twisted.internet.defer import Deferred

from llmdsim.reply.embedding import embedding
from llmdsim.web.chat_request import refuse_untrusted
from llmdsim.web.context import Context
from llmdsim.web.errors import ApiError
from llmdsim.web.pooling.admission import admitted
from llmdsim.web.pooling.bodies import BodyReader
from llmdsim.web.pooling.inputs import ids_of, prompts_of
from llmdsim.web.pooling.reply import PoolingReply, refuse_too_many
from llmdsim.web.pooling.vectors import VectorRequest, Vectors
from llmdsim.web.takes import takes
from llmdsim.web.turns import Steps
from llmdsim.wire.request import Request


class EmbeddingRequest(VectorRequest, kw_only=True):
    """A valid embeddings request."""


class Embeddings:
    """The embeddings route of one rank."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._bodies = BodyReader(EmbeddingRequest)

    def mount(self, app: Klein) -> None:
        """Add the route."""
        app.route("/v1/embeddings", methods=["POST"], endpoint="embeddings")(self.embeddings)

    @takes(EmbeddingRequest)
    def embeddings(self, request: Request) -> Deferred[None] | None:
        """Answer one embeddings request, now or later."""
        return self._context.turns.take(self._answer(request))

    def _answer(self, request: Request) -> Steps:
        context = self._context
        asked = yield from self._bodies.read(request)
        served = admitted(context, asked.model)
        refuse_untrusted(asked, context.config.trust_request_chat_template)
        size = dimensions(context, asked.dimensions, "dimensions")
        prompts = yield from prompts_of(context, asked)
        refuse_too_many(len(prompts) * size)
        reply = PoolingReply(context, request, served, "embd-", asked.request_id, prompts)
        vectors = Vectors(asked, "embedding", "embedding", shortest=True)
        for place, prompt in enumerate(prompts):
            if place:
                yield
            ids = yield from ids_of(prompt)
            made = yield from embedding(ids, size, normalized=asked.use_activation is not False)
            yield from vectors.add([made], nested=False)
        vectors.respond(reply)


def dimensions(context: Context, asked: int | None, field: str) -> int:
    """The length of a request's embeddings. Raises ApiError 400 for one out of range."""
    config = context.config
    if asked is None:
        return config.default_embedding_dimensions
    most = max(config.max_embedding_dimensions, config.default_embedding_dimensions)
    if not 1 <= asked <= most:
        raise ApiError.parameter(f"{field} must be in the range [1, {most}].", field, asked)
    return asked
