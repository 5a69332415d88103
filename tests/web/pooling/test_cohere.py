"""`/v2/embed`: Cohere's requests and its kinds of embeddings."""

from __future__ import annotations

import json
from base64 import b64decode
from struct import unpack
from typing import Any

import pytest

from tests.web.pooling.asking import COHERE, ask, vectors
from tests.web.rig import PassRig


@pytest.fixture
def rig() -> PassRig:
    return PassRig("--max-model-len", "100", "--max-prompts", "5", "--default-embedding-dimensions", "16")


def test_the_whole_answer(rig: PassRig) -> None:
    body = {
        "model": "m",
        "texts": ["one two", "three"],
        "input_type": "search_document",
        "embedding_types": ["float"],
    }
    answer = ask(rig, COHERE, body, "X-Request-Id: x")
    expected = {
        "id": "embd-x",
        "embeddings": {"float": answer.body["embeddings"]["float"]},
        "texts": ["one two", "three"],
        "meta": {"api_version": {"version": "2"}, "billed_units": {"input_tokens": 3, "image_tokens": 0}},
        "response_type": "embeddings_by_type",
    }
    assert answer.reply.body.decode() == json.dumps(expected, separators=(",", ":"))


def test_all_kinds_are_of_the_same_numbers(rig: PassRig) -> None:
    body = {"texts": ["one two"], "embedding_types": ["base64", "ubinary", "float", "binary"]}
    found = ask(rig, COHERE, body).body["embeddings"]
    assert list(found) == ["float", "binary", "ubinary", "base64"]
    (numbers,) = found["float"]
    assert numbers == pytest.approx(vectors(rig, input="one two")[0], rel=1e-6)
    assert list(unpack("<16f", b64decode(found["base64"][0]))) == numbers
    bits = [int(number >= 0) for number in numbers]
    ubinary = [sum(bit << 7 - place for place, bit in enumerate(bits[at : at + 8])) for at in (0, 8)]
    assert found["ubinary"] == [ubinary]
    assert found["binary"] == [[byte - 128 for byte in ubinary]]


def test_images_and_mixed_inputs() -> None:
    rig = PassRig("--max-model-len", "600", "--default-embedding-dimensions", "16")
    image = {"type": "image_url", "image_url": {"url": "data:x"}}
    answer = ask(rig, COHERE, {"images": ["data:x"]})
    assert "texts" not in answer.body
    units = answer.body["meta"]["billed_units"]
    assert units["input_tokens"] == 0
    assert units["image_tokens"] > 256
    same = ask(rig, COHERE, {"inputs": [{"content": [image]}]})
    assert same.body["embeddings"] == answer.body["embeddings"]
    text = ask(rig, COHERE, {"inputs": [{"content": [{"type": "text", "text": "a"}]}]})
    assert text.body["meta"]["billed_units"]["image_tokens"] == 0


def test_texts_are_cut_at_the_end_unless_told_otherwise(rig: PassRig) -> None:
    def first(**body: Any) -> list[float]:
        answer = ask(rig, COHERE, {**body, "output_dimension": 4})
        assert answer.reply.status == 200, answer.body
        found: list[float] = answer.body["embeddings"]["float"][0]
        return found

    text = "one two three"
    assert first(texts=[text], max_tokens=1) == first(texts=["one "])
    assert first(texts=[text], max_tokens=1, truncate="START") == first(texts=["three"])
    assert len(first(texts=["a " * 500])) == 4
    assert first(texts=["a " * 500]) == first(texts=["a " * 100])
    assert first(texts=[text], max_tokens=3, truncate="NONE") == first(texts=[text])


REFUSED: dict[str, tuple[dict[str, Any], tuple[int, str, str | None]]] = {
    "nothing": ({}, (400, "BadRequestError", None)),
    "two": ({"texts": ["a"], "images": ["b"]}, (400, "BadRequestError", None)),
    "no texts": ({"texts": []}, (400, "BadRequestError", None)),
    "a bad part": ({"inputs": [{"content": [{"type": "x"}]}]}, (400, "BadRequestError", None)),
    "no parts": ({"inputs": [{}]}, (400, "Bad Request", "body.inputs.0.content")),
    "kinds": ({"texts": ["a"], "embedding_types": ["int8"]}, (400, "Bad Request", "body.embedding_types.0")),
    "bits": (
        {"texts": ["a"], "embedding_types": ["binary"], "output_dimension": 9},
        (400, "BadRequestError", "output_dimension"),
    ),
    "length": ({"texts": ["a"], "output_dimension": 8193}, (400, "BadRequestError", "output_dimension")),
    "too many": ({"texts": ["a"] * 6}, (400, "BadRequestError", "inputs")),
    "too long": (
        {"texts": ["a b"], "max_tokens": 1, "truncate": "NONE"},
        (400, "BadRequestError", "max_tokens"),
    ),
    "beyond the context": (
        {"texts": ["a " * 101], "truncate": "NONE"},
        (400, "BadRequestError", "input_tokens"),
    ),
    "negative": ({"texts": ["a"], "max_tokens": -1}, (400, "BadRequestError", "max_tokens")),
    "a cut beyond the context": (
        {"texts": ["a"], "max_tokens": 101},
        (400, "BadRequestError", "truncate_prompt_tokens"),
    ),
    "an image beyond the context": ({"images": ["data:x"]}, (400, "BadRequestError", "input_tokens")),
    "model": ({"texts": ["a"], "model": "x"}, (404, "NotFoundError", None)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(rig: PassRig, name: str) -> None:
    body, error = REFUSED[name]
    assert ask(rig, COHERE, body).error == error
