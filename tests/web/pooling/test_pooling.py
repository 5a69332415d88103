"""`/pooling` and `/classify`: one vector for a prompt or one for each token, and classes."""

from __future__ import annotations

import json
from base64 import b64decode
from struct import pack, unpack
from typing import Any

import pytest

from tests.web.pooling.asking import CLASSIFY, POOLING, ask, vectors
from tests.web.rig import PassRig


@pytest.fixture
def rig() -> PassRig:
    return PassRig("--default-embedding-dimensions", "4")


def data(rig: PassRig, path: str = POOLING, **body: Any) -> list[Any]:
    answer = ask(rig, path, body)
    assert answer.reply.status == 200, answer.body
    found: list[Any] = answer.body["data"]
    assert [item["index"] for item in found] == list(range(len(found)))
    return found


def test_the_model_embeds_unless_told_otherwise(rig: PassRig) -> None:
    answer = ask(rig, POOLING, {"input": ["one two", "three"], "request_id": "x"})
    assert list(answer.body) == ["id", "object", "created", "model", "data", "usage"]
    assert answer.body["id"] == "pooling-x"
    assert answer.body["object"] == "list"
    assert [list(item) for item in answer.body["data"]] == [["index", "object", "data"]] * 2
    assert {item["object"] for item in answer.body["data"]} == {"pooling"}
    assert answer.body["usage"]["prompt_tokens"] == 3
    assert [item["data"] for item in data(rig, input=["one two", "three"], task="embed")] == [
        item["data"] for item in answer.body["data"]
    ]


def test_numbers_are_those_of_embeddings_as_float32_has_them(rig: PassRig) -> None:
    (item,) = data(rig, input="one two")
    (vector,) = vectors(rig, input="one two")
    assert item["data"] == list(unpack("<4f", pack("<4f", *vector)))
    assert item["data"] != vector


def test_a_vector_for_each_token(rig: PassRig) -> None:
    (item,) = data(rig, input=[5, 6, 7], task="token_embed")
    assert item["data"] == [data(rig, input=[token])[0]["data"] for token in (5, 6, 7)]
    (item,) = data(rig, input=[5, 6], task="token_classify")
    assert item["data"] == [data(rig, input=[token], task="classify")[0]["data"] for token in (5, 6)]


def test_vectors_of_tokens_as_bytes_have_two_dimensions(rig: PassRig) -> None:
    body = {"input": [[5, 6, 7], [8]], "task": "token_embed"}
    answer = ask(rig, POOLING, {**body, "encoding_format": "bytes"})
    items = json.loads(answer.reply.headers[b"metadata"])["data"]
    assert [item["shape"] for item in items] == [[3, 4], [1, 4]]
    assert [(item["start"], item["end"]) for item in items] == [(0, 48), (48, 64)]
    rows = [row for item in data(rig, **body) for row in item["data"]]
    numbers = [number for row in rows for number in row]
    assert list(unpack("<16f", answer.reply.body)) == numbers
    text = data(rig, **body, encoding_format="base64")[0]["data"]
    assert b64decode(text) == answer.reply.body[:48]


REFUSED: dict[str, tuple[dict[str, Any], tuple[int, str, str | None]]] = {
    "dimensions": ({"input": "a", "dimensions": 4}, (400, "BadRequestError", "dimensions")),
    "plugin": ({"input": "a", "task": "plugin"}, (400, "BadRequestError", "task")),
    "plugin's data": ({"data": {"x": 1}}, (400, "BadRequestError", "task")),
    "plugin's tasks": ({"input": "a", "task": "embed&token_classify"}, (400, "BadRequestError", "task")),
    "removed": ({"input": "a", "task": "encode"}, (400, "BadRequestError", "task")),
    "unknown": ({"input": "a", "task": "x"}, (400, "Bad Request", "body.task")),
    "no input": ({}, (400, "Bad Request", "body.input")),
    "model": ({"input": "a", "model": "x"}, (404, "NotFoundError", None)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(rig: PassRig, name: str) -> None:
    body, error = REFUSED[name]
    assert ask(rig, POOLING, body).error == error


def test_more_numbers_of_tokens_than_a_reply_may_hold_are_refused() -> None:
    rig = PassRig("--default-embedding-dimensions", "8192")
    body = {"input": list(range(300)), "task": "token_embed"}
    assert ask(rig, POOLING, body).error == (400, "BadRequestError", "input")
    assert ask(rig, POOLING, {**body, "task": "token_classify"}).reply.status == 200


def test_classes(rig: PassRig) -> None:
    answer = ask(rig, CLASSIFY, {"input": [f"word {number}" for number in range(20)]})
    assert list(answer.body) == ["id", "object", "created", "model", "data", "usage"]
    assert answer.body["id"].startswith("classify-")
    labels = set()
    for item in answer.body["data"]:
        assert list(item) == ["index", "label", "probs", "num_classes"]
        assert item["num_classes"] == len(item["probs"]) == 2
        assert sum(item["probs"]) == pytest.approx(1, abs=1e-6)
        assert item["label"] == ("LABEL_1" if item["probs"][1] > item["probs"][0] else "LABEL_0")
        labels.add(item["label"])
    assert labels == {"LABEL_0", "LABEL_1"}
    assert answer.body["usage"]["prompt_tokens"] == 40


def test_classes_of_conversations_and_logits(rig: PassRig) -> None:
    talk = [{"role": "user", "content": "hi"}]
    (found,) = data(rig, CLASSIFY, messages=talk)
    (raw,) = data(rig, CLASSIFY, messages=talk, use_activation=False)
    assert raw["label"] == found["label"]
    assert sum(raw["probs"]) != pytest.approx(1, abs=1e-3)
    assert data(rig, input="a", task="classify")[0]["data"] == data(rig, CLASSIFY, input="a")[0]["probs"]


def test_classify_refuses_as_the_others_do(rig: PassRig) -> None:
    assert ask(rig, CLASSIFY, {"input": ""}).error == (400, "BadRequestError", None)
    assert ask(rig, CLASSIFY, {}).error == (400, "Bad Request", "body.input")
    assert ask(rig, CLASSIFY, {"input": "a", "model": "x"}).error[0] == 404
