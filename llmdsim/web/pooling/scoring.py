"""`POST /score`, and `POST /rerank` in its three places: how relevant documents are to queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from itertools import chain
from typing import Annotated, Any

from klein import Klein
from msgspec import Meta
from twisted.internet.defer import Deferred

from llmdsim.reply.similarity import similarity, words
from llmdsim.tokenization.chat import last_text
from llmdsim.tokenization.prompt import Prompt
from llmdsim.web import decoding, messages
from llmdsim.web.chat_request import untrusted_kwargs
from llmdsim.web.context import Context
from llmdsim.web.decoding import Problem
from llmdsim.web.errors import ApiError
from llmdsim.web.pooling.bodies import BodyReader
from llmdsim.web.pooling.encoding import float32
from llmdsim.web.pooling.inputs import tokenized
from llmdsim.web.pooling.reply import PoolingReply, json
from llmdsim.web.pooling.request import PoolingRequest
from llmdsim.web.prompt_forms import check_count
from llmdsim.web.turns import Steps
from llmdsim.wire.request import Request

#: A text, or an object whose `content` is a list of parts.
Text = str | dict[str, Any]
Texts = Text | list[Text]

#: The names the two sides of a score go by, of which one pair is used.
SIDES = (("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2"))


class ScoringRequest(PoolingRequest, kw_only=True):
    """What scores and reranking have in common: two `sides`, and bounds of each, where 0 is none."""

    max_tokens_per_query: int = 0
    max_tokens_per_doc: int = 0
    instruction: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    @property
    def sides(self) -> dict[str, Texts]:
        """What is compared with what, each by the name of its field; both, if the request is valid."""
        raise NotImplementedError

    def exact(self) -> bool:
        sides = self.sides.values()
        return PoolingRequest.exact(self) and len(sides) == 2 and all(map(_only_texts, sides))

    def settle(self) -> None:
        PoolingRequest.settle(self)
        if self.mm_processor_kwargs:
            raise untrusted_kwargs("mm_processor_kwargs")
        for field, side in self.sides.items():
            for item in _listed(side):
                if isinstance(item, dict):
                    _check_parts(item.get("content"), field)


class ScoreRequest(ScoringRequest, kw_only=True):
    """A valid score request; `sides` gives what is compared with what."""

    queries: Texts | None = None
    documents: Texts | None = None
    items: Texts | None = None
    data_1: Texts | None = None
    data_2: Texts | None = None
    text_1: Texts | None = None
    text_2: Texts | None = None

    @property
    def sides(self) -> dict[str, Texts]:
        for pair in SIDES:
            found = {field: getattr(self, field) for field in pair}
            if None not in found.values():
                return found
        return {}

    @staticmethod
    def apply_raw_rules(data: dict[str, Any]) -> None:
        ScoringRequest.apply_raw_rules(data)
        if not any(data.get(one) is not None and data.get(other) is not None for one, other in SIDES):
            missing = [field for field in dict.fromkeys(chain(*SIDES)) if data.get(field) is None]
            text = "this field is required, or another pair of sides"
            raise decoding.refusal([Problem("missing", (field,), text) for field in missing])


class RerankRequest(ScoringRequest, kw_only=True):
    """A valid rerank request."""

    query: Text
    documents: Texts
    #: 0 is all
    top_n: Annotated[int, Meta(ge=0)] = 0

    @property
    def sides(self) -> dict[str, Texts]:
        return {"query": self.query, "documents": self.documents}


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

    def score(self, request: Request) -> Deferred[None] | None:
        """Answer one score request, now or later."""
        return self._context.turns.take(self._answer_score(request))

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
        documents = _listed(asked.documents)
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
            % (json(reply.id), reply.head.model, reply.short_usage(), b",".join(results))
        )

    def _scores(
        self, request: Request, asked: ScoringRequest
    ) -> Generator[None, None, tuple[PoolingReply, list[float]]]:
        """The reply to a request, and the score of each pair."""
        context = self._context
        served = context.admit(request, asked.model)
        queries, documents = map(_listed, asked.sides.values())
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
                yield
            counts = yield from words(prompt)
            if place < len(queries):
                of_queries.append(counts)
            else:
                query = of_queries[0 if len(queries) == 1 else place - len(queries)]
                scores.append((yield from similarity(query, counts)))
        return reply, float32(scores)

    def _cut(self, texts: list[str], most: int) -> Generator[None, None, list[str]]:
        """Each text as far as its first `most` tokens reach; 0 is all."""
        if not most:
            return texts
        cut: list[str] = []
        for text in texts:
            yield
            prompt = Prompt(self._context.tokenizer, text)
            if prompt.long:
                yield from prompt.lay_out()
            cut.append(prompt.layout.cut(most).text)
        return cut


def _listed(side: Texts) -> list[Text]:
    return side if isinstance(side, list) else [side]


def _only_texts(side: Any) -> bool:
    if isinstance(side, list):
        return set(map(type, side)) <= {str}
    return isinstance(side, str)


def _check_parts(parts: Any, field: str) -> None:
    if not isinstance(parts, list):
        raise decoding.refusal([Problem("list_type", (field, "content"), "expected a list of parts", parts)])
    messages.settle([{"role": "user", "content": parts}])


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
