"""`POST /score`, and `POST /rerank` in its three places: how relevant documents are to queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

from klein import Klein
from twisted.internet.defer import Deferred

from llmdsim.reply.similarity import similarity, words
from llmdsim.tokenization.chat import last_text
from llmdsim.tokenization.prompt import Prompt
from llmdsim.tokenization.steps import Step
from llmdsim.web.context import Context
from llmdsim.web.errors import ApiError
from llmdsim.web.pooling.admission import admitted
from llmdsim.web.pooling.bodies import BodyReader
from llmdsim.web.pooling.encoding import float32
from llmdsim.web.pooling.inputs import tokenized
from llmdsim.web.pooling.reply import PoolingReply, json
from llmdsim.web.pooling.scoring_request import RerankRequest, ScoreRequest, ScoringRequest, Text, listed
from llmdsim.web.prompt_forms import check_count
from llmdsim.web.takes import takes
from llmdsim.web.turns import Steps
from llmdsim.wire.request import Request


class Scoring:
    """The score and rerank routes of one rank."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._score_bodies = BodyReader(ScoreRequest)
        self._rerank_bodies = BodyReader(RerankRequest)

    def mount(self, app: Klein) -> None:
        """Add the routes."""
        for path in ("/score", "/v1/score"):
            app.route(path, methods=["POST"], endpoint=path)(self.score)
        for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
            app.route(path, methods=["POST"], endpoint=path)(self.rerank)

    @takes(ScoreRequest)
    def score(self, request: Request) -> Deferred[None] | None:
        """Answer one score request, now or later."""
        return self._context.turns.take(self._answer_score(request))

    @takes(RerankRequest)
    def rerank(self, request: Request) -> Deferred[None] | None:
        """Answer one rerank request, now or later."""
        return self._context.turns.take(self._answer_rerank(request))

    def _answer_score(self, request: Request) -> Steps:
        asked = yield from self._score_bodies.read(request)
        reply, scores = yield from self._scores(request, asked)
        data = [
            b'{"index":%d,"object":"score","score":%b}' % (index, json(score))
            for index, score in enumerate(scores)
        ]
        reply.respond_list(data)

    def _answer_rerank(self, request: Request) -> Steps:
        asked = yield from self._rerank_bodies.read(request)
        reply, scores = yield from self._scores(request, asked)
        documents = listed(asked.documents)
        best = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)
        results: list[bytes] = []
        for index in best[: asked.top_n or None]:
            document = documents[index]
            results.append(
                b'{"index":%d,"document":{"text":%b,"multi_modal":%b},"relevance_score":%b}'
                % (
                    index,
                    json(document if isinstance(document, str) else None),
                    json(None if isinstance(document, str) else document["content"]),
                    json(scores[index]),
                )
            )
        reply.respond(
            b'{"id":%b,"model":%b,"usage":%b,"results":[%b]}'
            % (json(reply.head.id), reply.head.model, reply.short_usage(), b",".join(results))
        )

    def _scores(
        self, request: Request, asked: ScoringRequest
    ) -> Generator[Step, None, tuple[PoolingReply, list[float]]]:
        """The reply to a request, and the score of each pair."""
        context = self._context
        served = admitted(context, asked.model)
        queries, documents = map(listed, asked.sides.values())
        _check_lengths(len(queries), len(documents))
        check_count(len(documents), "documents", context.limits)
        most = context.limits.max_model_len
        for_query = _token_limit(asked.max_tokens_per_query, "max_tokens_per_query", most)
        for_document = _token_limit(asked.max_tokens_per_doc, "max_tokens_per_doc", most)
        texts = yield from self._cut(list(map(_text, queries)), for_query)
        texts += yield from self._cut(list(map(_text, documents)), for_document)
        prompts = yield from tokenized(context, asked, texts)
        reply = PoolingReply(context, request, served, "score-", asked.request_id, prompts)
        of_queries: list[Counter[str]] = []
        scores: list[float] = []
        for place, prompt in enumerate(prompts):
            if place:
                yield None
            counts = yield from words(prompt)
            if place < len(queries):
                of_queries.append(counts)
            else:
                query = of_queries[0 if len(queries) == 1 else place - len(queries)]
                scores.append((yield from similarity(query, counts)))
        return reply, float32(scores)

    def _cut(self, texts: list[str], most: int) -> Generator[Step, None, list[str]]:
        """Each text as far as its first `most` tokens reach; 0 is all."""
        if not most:
            return texts
        cut: list[str] = []
        for text in texts:
            yield None
            prompt = Prompt(self._context.tokenizer, text)
            if prompt.long:
                yield from prompt.lay_out()
            cut.append(prompt.layout.cut(most).text)
        return cut


def _text(item: Text) -> str:
    return item if isinstance(item, str) else last_text([item])


def _check_lengths(queries: int, documents: int) -> None:
    if queries > 1 and queries != documents:
        raise ApiError(400, "Input lengths must be either 1:1, 1:N or N:N.")
    if not queries or not documents:
        raise ApiError(400, "At least one text must be given on either side.")


def _token_limit(value: int, field: str, context: int) -> int:
    if value < 0:
        raise ApiError.parameter(f"{field} must not be negative.", field, value)
    if value >= context:
        message = f"{field} must be less than max_model_len ({context})."
        raise ApiError.parameter(message, field, value)
    return value
