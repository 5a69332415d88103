"""`POST /pooling`: what the model makes of prompts, or of each of their tokens."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Literal

from klein import Klein
from twisted.internet.defer import Deferred

from llmdsim.reply.embedding import LABELS, classification, embedding
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


class PoolRequest(VectorRequest, kw_only=True):
    """A valid pooling request."""

    task: (
        Literal["embed", "classify", "token_embed", "token_classify", "plugin", "embed&token_classify"] | None
    ) = None
    #: what plugins take, of which there are none
    data: Any = None

    @staticmethod
    def apply_raw_rules(data: dict[str, Any]) -> None:
        if data.get("data") is not None and data.get("input") is None and data.get("messages") is None:
            raise _no_plugin()
        VectorRequest.apply_raw_rules(data)


class Pooling:
    """The pooling route of one rank."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._bodies = BodyReader(PoolRequest)

    def mount(self, app: Klein) -> None:
        """Add the route."""
        app.route("/pooling", methods=["POST"], endpoint="pooling")(self.pooling)

    @takes(PoolRequest)
    def pooling(self, request: Request) -> Deferred[None] | None:
        """Answer one pooling request, now or later."""
        return self._context.turns.take(self._answer(request))

    def _answer(self, request: Request) -> Steps:
        context = self._context
        asked = yield from self._bodies.read(request)
        task = _task(asked)
        served = admitted(context, asked.model)
        refuse_untrusted(asked, context.config.trust_request_chat_template)
        prompts = yield from prompts_of(context, asked)
        of_tokens = task.startswith("token_")
        classifies = task.endswith("classify")
        size = len(LABELS) if classifies else context.config.default_embedding_dimensions
        refuse_too_many(size * (sum(map(len, prompts)) if of_tokens else len(prompts)))
        reply = PoolingReply(context, request, served, "pooling-", asked.request_id, prompts)
        vectors = Vectors(asked, "pooling", "data", shortest=False)
        activated = asked.use_activation is not False
        for place, prompt in enumerate(prompts):
            if place:
                yield
            ids = yield from ids_of(prompt)
            rows = []
            for number, pooled in enumerate([[token] for token in ids] if of_tokens else [ids]):
                if number:
                    yield
                rows.append((yield from _vector(pooled, size, classifies, activated)))
            yield from vectors.add(rows, nested=of_tokens)
        vectors.respond(reply)


def _vector(
    ids: Sequence[int], size: int, classifies: bool, activated: bool
) -> Generator[None, None, list[float]]:
    if classifies:
        return (yield from classification(ids, activated=activated))
    return (yield from embedding(ids, size, normalized=activated))


def _task(asked: PoolRequest) -> str:
    if asked.dimensions is not None:
        raise ApiError.parameter("dimensions is not supported here.", "dimensions")
    if asked.task == "plugin":
        raise _no_plugin()
    if asked.task == "embed&token_classify":
        raise ApiError.parameter(f"Task {asked.task!r} is for plugins alone.", "task")
    return asked.task or "embed"


def _no_plugin() -> ApiError:
    return ApiError.parameter("No IOProcessor plugin is installed.", "task")
