"""All pooling routes of one rank."""

from __future__ import annotations

from klein import Klein

from llmdsim.web.context import Context
from llmdsim.web.pooling.classify import Classify
from llmdsim.web.pooling.cohere import Cohere
from llmdsim.web.pooling.embeddings import Embeddings
from llmdsim.web.pooling.pooling import Pooling
from llmdsim.web.pooling.scoring import Scoring


class PoolingRoutes:
    """They are there whatever the model is; but an encoder of images and the like alone embeds no text."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def mount(self, app: Klein) -> None:
        """Add the routes."""
        context = self._context
        Pooling(context).mount(app)
        Scoring(context).mount(app)
        Classify(context).mount(app)
        if not context.config.mm_encoder_only:
            Embeddings(context).mount(app)
            Cohere(context).mount(app)
