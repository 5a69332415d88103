"""Thousands of bodies to the pooling routes: each is answered properly, and nothing is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from llmdsim.web.pooling.classify import ClassifyRequest
from llmdsim.web.pooling.cohere import CohereRequest
from llmdsim.web.pooling.embeddings import EmbeddingRequest
from llmdsim.web.pooling.pooling import PoolRequest
from llmdsim.web.pooling.scoring_request import RerankRequest, ScoreRequest
from tests.web.answers import refused, strict
from tests.web.fuzz import Case, body_of, case_of
from tests.web.fuzz_values import GOOD, Maker, fuzz_route, message, part, prompt, text
from tests.web.pooling.asking import CLASSIFY, COHERE, EMBEDDINGS, POOLING
from tests.web.test_fuzz import Rank, quietly

SCORE, RERANK = "/v1/score", "/v2/rerank"
FLAGS = ("--max-model-len", "600", "--max-prompts", "8", "--default-embedding-dimensions", "16")
SEEDS = 400
FEW = 100

fuzz_route(EMBEDDINGS, EmbeddingRequest, "input")
fuzz_route(POOLING, PoolRequest, "input")
fuzz_route(CLASSIFY, ClassifyRequest, "input")
fuzz_route(COHERE, CohereRequest, "texts")
fuzz_route(SCORE, ScoreRequest, "queries", "documents")
fuzz_route(RERANK, RerankRequest, "query", "documents")


def conversation(random: Random) -> Any:
    return [message(random) for _ in range(random.randint(1, 2))]


def side(random: Random) -> Any:
    if random.random() < 0.1:
        return {"content": [part(random)]}
    return text(random) or "a"


def given(random: Random) -> Any:
    """An `input`: prompts, or now and then conversations."""
    if random.random() < 0.8:
        return prompt(random)
    return random.choice((conversation(random), [conversation(random) for _ in range(2)]))


MAKERS: dict[str, Maker] = {
    **GOOD,
    "input": given,
    "messages": lambda r: r.choice((None, conversation(r), [conversation(r)])),
    "texts": lambda r: [text(r) or "a" for _ in range(r.randint(1, 4))],
    "images": lambda r: r.choice((None, None, ["data:x"])),
    "inputs": lambda r: r.choice((None, None, [{"content": [part(r)]}])),
    "query": side,
    "queries": lambda r: side(r) if r.random() < 0.7 else [side(r)],
    "documents": lambda r: [side(r) for _ in range(r.randint(1, 4))],
    "top_n": lambda r: r.choice((0, 1, 9)),
    "dimensions": lambda r: r.choice((None, 1, 3, 8192)),
    "output_dimension": lambda r: r.choice((None, 8, 7)),
    "max_tokens": lambda r: r.choice((None, 1, 5)),
    "max_tokens_per_query": lambda r: r.choice((0, 1, 5)),
    "max_tokens_per_doc": lambda r: r.choice((0, 1, 5)),
    "task": lambda r: r.choice((None, "embed", "classify", "token_embed", "token_classify", "plugin")),
    "normalize": lambda r: r.random() < 0.5,
    "data": lambda r: None,
}


def pooling_case(path: str, number: int) -> Case:
    """The request of a number: always the same."""
    random = Random(f"pooling {path} {number}")
    return case_of(path, body_of(path, random, MAKERS), random)


def _numbers(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(map(_numbers, value))
    return type(value) is float


def _listed(document: Any, prefix: str, *keys: str) -> list[Any]:
    assert list(document) == ["id", "object", "created", "model", "data", "usage"]
    assert document["id"].startswith(prefix)
    assert document["usage"]["prompt_tokens"] == document["usage"]["total_tokens"] > 0
    data: list[Any] = document["data"]
    assert data
    for index, item in enumerate(data):
        assert (list(item), item["index"]) == (["index", *keys], index)
    return data


def embeddings_fit(document: Any) -> None:
    for item in _listed(document, "embd-", "object", "embedding"):
        vector = item["embedding"]
        assert isinstance(vector, str) or (_numbers(vector) and max(map(abs, vector)) <= 1)


def pooling_fits(document: Any) -> None:
    for item in _listed(document, "pooling-", "object", "data"):
        assert isinstance(item["data"], str) or _numbers(item["data"])


def classes_fit(document: Any) -> None:
    for item in _listed(document, "classify-", "label", "probs", "num_classes"):
        assert _numbers(item["probs"])


def scores_fit(document: Any) -> None:
    for item in _listed(document, "score-", "object", "score"):
        assert 0 <= item["score"] <= 1


def ranks_fit(document: Any) -> None:
    assert list(document) == ["id", "model", "usage", "results"]
    found = [result["relevance_score"] for result in document["results"]]
    assert found == sorted(found, reverse=True)
    assert all(0 <= score <= 1 for score in found)


def cohere_fits(document: Any) -> None:
    assert document["id"].startswith("embd-")
    assert document["response_type"] == "embeddings_by_type"
    assert document["embeddings"]


FITS: dict[str, Callable[[Any], None]] = {
    EMBEDDINGS: embeddings_fit,
    POOLING: pooling_fits,
    CLASSIFY: classes_fit,
    SCORE: scores_fit,
    RERANK: ranks_fit,
    COHERE: cohere_fits,
}


@pytest.mark.parametrize("start", range(0, SEEDS, FEW))
@pytest.mark.parametrize("path", FITS)
def test_whatever_is_sent_is_answered_properly_and_leaves_nothing(path: str, start: int) -> None:
    rank = Rank(*FLAGS)
    stats = rank.rig.rank.stats
    statuses: Counter[int] = Counter()
    for number in range(start, start + FEW):
        made = pooling_case(path, number)
        try:
            ended, tokens = rank.ended(), stats.prompt_tokens
            reply = quietly(rank, *made.packets)
            statuses[reply.status] += 1
            if reply.status == 200:
                if reply.headers[b"content-type"] == b"application/json":
                    FITS[path](strict(reply.body))
                assert rank.ended() > ended
                assert stats.prompt_tokens > tokens
            else:
                assert 400 <= reply.status < 500
                refused(reply.status, reply.body)
                assert (rank.ended(), stats.prompt_tokens) == (ended, tokens)
        except BaseException:
            print(f"pooling_case({path!r}, {number}):\n{made.wire!r}")
            raise
    assert not rank.rig.rank.context.turns.busy
    # A fuzz whose bodies are all refused, or all accepted, finds little.
    assert statuses[200] >= FEW // 8
    assert statuses[400] >= FEW // 8
