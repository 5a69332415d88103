"""`POST /classify`."""

from __future__ import annotations

from klein import Klein
from twisted.internet.defer import Deferred

from llmdsim.reply.embedding import LABELS, classification
from llmdsim.web.chat_request import refuse_untrusted
from llmdsim.web.context import Context
from llmdsim.web.pooling.admission import admitted
from llmdsim.web.pooling.bodies import BodyReader
from llmdsim.web.pooling.encoding import float32
from llmdsim.web.pooling.inputs import ids_of, prompts_of
from llmdsim.web.pooling.reply import PoolingReply, json
from llmdsim.web.pooling.request import InputRequest
from llmdsim.web.takes import takes
from llmdsim.web.turns import Steps
from llmdsim.wire.request import Request


class ClassifyRequest(InputRequest, kw_only=True):
    """A valid classification request."""


class Classify:
    """The classification route of one rank."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._bodies = BodyReader(ClassifyRequest)

    def mount(self, app: Klein) -> None:
        """Add the route."""
        app.route("/classify", methods=["POST"], endpoint="classify")(self.classify)

    @takes(ClassifyRequest)
    def classify(self, request: Request) -> Deferred[None] | None:
        """Answer one classification request, now or later."""
        return self._context.turns.take(self._answer(request))

    def _answer(self, request: Request) -> Steps:
        context = self._context
        asked = yield from self._bodies.read(request)
        served = admitted(context, asked.model)
        refuse_untrusted(asked, context.config.trust_request_chat_template)
        prompts = yield from prompts_of(context, asked)
        reply = PoolingReply(context, request, served, "classify-", asked.request_id, prompts)
        data: list[bytes] = []
        for index, prompt in enumerate(prompts):
            if index:
                yield
            ids = yield from ids_of(prompt)
            made = yield from classification(ids, activated=asked.use_activation is not False)
            probabilities = float32(made)
            label = LABELS[probabilities.index(max(probabilities))]
            data.append(
                b'{"index":%d,"label":%b,"probs":%b,"num_classes":%d}'
                % (index, json(label), json(probabilities), len(LABELS))
            )
        reply.respond_list(data)
