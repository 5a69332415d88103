"""`/score` and `/rerank`: every name of the sides, the order of results, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.web.pooling.asking import RERANKS, SCORES, ask
from tests.web.rig import PassRig

QUESTION = "What is the capital of France?"
FACTS = ["The capital of Brazil is Brasilia.", "The capital of France is Paris.", "Cats sleep"]


@pytest.fixture
def rig() -> PassRig:
    return PassRig("--max-model-len", "100", "--max-prompts", "5")


def scores(rig: PassRig, **body: Any) -> list[float]:
    answer = ask(rig, "/score", body)
    assert answer.reply.status == 200, answer.body
    assert [list(item) for item in answer.body["data"]] == [["index", "object", "score"]] * len(
        answer.body["data"]
    )
    return [item["score"] for item in answer.body["data"]]


@pytest.mark.parametrize("path", SCORES)
def test_the_answer_of_score(rig: PassRig, path: str) -> None:
    answer = ask(rig, path, {"queries": "a b", "documents": ["a b", "c"], "request_id": "x"})
    created = answer.body["created"]
    expected = {
        "id": "score-x",
        "object": "list",
        "created": created,
        "model": "m",
        "data": [
            {"index": 0, "object": "score", "score": 1.0},
            {"index": 1, "object": "score", "score": 0.0},
        ],
        "usage": {
            "prompt_tokens": 5,
            "total_tokens": 5,
            "completion_tokens": 0,
            "prompt_tokens_details": None,
            "completion_tokens_details": None,
        },
    }
    assert answer.reply.body.decode() == json.dumps(expected, separators=(",", ":"))


@pytest.mark.parametrize(
    ("one", "other"),
    [("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2")],
)
def test_the_sides_have_several_names(rig: PassRig, one: str, other: str) -> None:
    assert scores(rig, **{one: QUESTION, other: FACTS}) == scores(rig, queries=[QUESTION], documents=FACTS)
    assert ask(rig, "/score", {one: "a"}).error[:2] == (400, "Bad Request")


def test_one_with_each_and_pair_by_pair(rig: PassRig) -> None:
    assert scores(rig, text_1="a", text_2=["a", "b"]) == [1, 0]
    assert scores(rig, text_1=["a", "b"], text_2=["b", "b"]) == [0, 1]
    assert scores(rig, text_1=["a"], text_2="a") == [1]


def test_parts_count_as_their_text(rig: PassRig) -> None:
    parts = {"content": [{"type": "text", "text": "a b"}]}
    assert scores(rig, text_1="a b", text_2=parts) == [1]
    assert scores(rig, text_1=[parts, "x"], text_2=["a b", parts]) == [1, 0]


@pytest.mark.parametrize("path", RERANKS)
def test_the_best_document_comes_first(rig: PassRig, path: str) -> None:
    answer = ask(rig, path, {"model": "m", "query": QUESTION, "documents": FACTS, "request_id": "x"})
    assert list(answer.body) == ["id", "model", "usage", "results"]
    assert answer.body["id"] == "score-x"
    assert answer.body["model"] == "m"
    tokens = answer.body["usage"]["prompt_tokens"]
    assert answer.body["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    assert tokens == 7 + 7 + 7 + 2
    results = answer.body["results"]
    assert [result["index"] for result in results] == [1, 0, 2]
    assert [list(result) for result in results] == [["index", "document", "relevance_score"]] * 3
    assert results[0]["document"] == {"text": FACTS[1], "multi_modal": None}
    assert [result["relevance_score"] for result in results] == sorted(
        scores(rig, queries=QUESTION, documents=FACTS), reverse=True
    )


def test_top_n_cuts_and_zero_does_not(rig: PassRig) -> None:
    body = {"query": "a", "documents": ["b", "a", "c"]}
    for top_n, count in ((0, 3), (1, 1), (2, 2), (9, 3)):
        found = ask(rig, "/rerank", {**body, "top_n": top_n}).body["results"]
        assert len(found) == count
        assert found[0]["index"] == 1


def test_equals_keep_their_order(rig: PassRig) -> None:
    found = ask(rig, "/rerank", {"query": "a", "documents": ["b", "a", "a", "c"]}).body["results"]
    assert [result["index"] for result in found] == [1, 2, 0, 3]


def test_documents_of_parts_come_back_as_they_were(rig: PassRig) -> None:
    parts = [{"type": "image_url", "image_url": {"url": "u"}}, {"type": "text", "text": "a", "more": 10**30}]
    (found,) = ask(
        rig, "/rerank", {"query": {"content": parts}, "documents": {"content": parts, "x": 1}}
    ).body["results"]
    assert found == {"index": 0, "document": {"text": None, "multi_modal": parts}, "relevance_score": 1.0}


def test_bounds_of_either_side(rig: PassRig) -> None:
    body = {"queries": "a b c", "documents": ["a b d", "b"]}
    assert scores(rig, **body, max_tokens_per_query=1) == pytest.approx([3**-0.5, 0])
    assert scores(rig, **body, max_tokens_per_query=1, max_tokens_per_doc=1) == [1, 0]
    assert ask(rig, "/score", {**body, "max_tokens_per_doc": 2}).body["usage"]["prompt_tokens"] == 3 + 2 + 1
    assert scores(rig, **body, truncate_prompt_tokens=1) == [1, 0]
    assert scores(rig, queries="a", documents=["a " * 500], max_tokens_per_doc=99) == pytest.approx([1])


REFUSED: dict[str, tuple[dict[str, Any], tuple[int, str, str | None]]] = {
    "nothing": ({}, (400, "Bad Request", "body.queries")),
    "half a pair": ({"queries": "a", "data_2": "b"}, (400, "Bad Request", "body.documents")),
    "lengths": ({"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, (400, "BadRequestError", None)),
    "no query": ({"text_1": [], "text_2": ["a"]}, (400, "BadRequestError", None)),
    "no document": ({"text_1": "a", "text_2": []}, (400, "BadRequestError", None)),
    "an empty document": ({"text_1": "a", "text_2": ["a", ""]}, (400, "BadRequestError", None)),
    "a number": ({"text_1": 5, "text_2": "a"}, (400, "Bad Request", "body.text_1")),
    "an object": ({"text_1": {"text": "a"}, "text_2": "a"}, (400, "Bad Request", "body.text_1.content")),
    "a bad part": ({"text_1": {"content": [{"type": "x"}]}, "text_2": "a"}, (400, "BadRequestError", None)),
    "too many": ({"text_1": "a", "text_2": ["a"] * 6}, (400, "BadRequestError", "documents")),
    "too long": ({"text_1": "a", "text_2": "a " * 101}, (400, "BadRequestError", "input_tokens")),
    "negative": (
        {"text_1": "a", "text_2": "a", "max_tokens_per_query": -1},
        (400, "BadRequestError", "max_tokens_per_query"),
    ),
    "beyond": (
        {"text_1": "a", "text_2": "a", "max_tokens_per_doc": 100},
        (400, "BadRequestError", "max_tokens_per_doc"),
    ),
    "model": ({"text_1": "a", "text_2": "a", "model": "x"}, (404, "NotFoundError", None)),
    "salt": ({"text_1": "a", "text_2": "a", "cache_salt": ""}, (400, "BadRequestError", "cache_salt")),
    "media": (
        {"text_1": "a", "text_2": "a", "mm_processor_kwargs": {"a": 1}},
        (400, "BadRequestError", "mm_processor_kwargs"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_score_refuses(rig: PassRig, name: str) -> None:
    body, error = REFUSED[name]
    assert ask(rig, "/score", body).error == error


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"documents": ["a"]}, "body.query"),
        ({"query": "a"}, "body.documents"),
        ({"query": ["a"], "documents": ["a"]}, "body.query"),
        ({"query": "a", "documents": ["a"], "top_n": -1}, "body.top_n"),
    ],
)
def test_rerank_refuses(rig: PassRig, body: dict[str, Any], param: str) -> None:
    assert ask(rig, "/rerank", body).error == (400, "Bad Request", param)


def test_long_documents_are_compared_in_turns() -> None:
    rig = PassRig("--max-model-len", "100000")
    text = " ".join(f"w{number}" for number in range(20_000))
    client = rig.post("/score", {"text_1": text, "text_2": text})
    assert rig.finish() > 20
    assert b'"score":1.0}' in client.received
