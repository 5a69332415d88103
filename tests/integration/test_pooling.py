"""Embeddings by the OpenAI SDK, and the other pooling routes as their clients call them."""

import asyncio
import json
from base64 import b64decode
from collections.abc import Iterator
from math import hypot
from struct import unpack

import openai
import pytest
from openai import OpenAI

from tests.integration.client import Client
from tests.integration.daemon import Daemon
from tests.integration.test_openai_sdk import async_sdk_for, sdk_for

pytestmark = pytest.mark.integration


@pytest.fixture
def sdk(daemon: Daemon) -> Iterator[OpenAI]:
    with sdk_for(daemon) as client:
        yield client


def test_every_form_of_input(sdk: OpenAI) -> None:
    text = sdk.embeddings.create(model="m", input="one two")
    assert text.object == "list"
    assert text.model == "m"
    assert (text.usage.prompt_tokens, text.usage.total_tokens) == (2, 2)
    (item,) = text.data
    assert (item.index, item.object, len(item.embedding)) == (0, "embedding", 384)
    assert hypot(*item.embedding) == pytest.approx(1, abs=1e-6)
    several = sdk.embeddings.create(model="m", input=["one two", "three", "one two"])
    assert [each.index for each in several.data] == [0, 1, 2]
    assert several.data[0].embedding == several.data[2].embedding == item.embedding
    assert several.data[1].embedding != item.embedding
    ids = sdk.embeddings.create(model="m", input=[1, 2, 3])
    assert ids.usage.prompt_tokens == 3
    lists = sdk.embeddings.create(model="m", input=[[1, 2, 3], [4]])
    assert lists.data[0].embedding == ids.data[0].embedding
    assert lists.usage.prompt_tokens == 4


def test_numbers_and_base64_say_the_same(sdk: OpenAI) -> None:
    # The SDK asks for base64 by itself, and decodes it.
    decoded = sdk.embeddings.create(model="m", input="a b").data[0].embedding
    numbers = sdk.embeddings.create(model="m", input="a b", encoding_format="float").data[0].embedding
    assert decoded == pytest.approx(numbers, rel=1e-7)
    raw = sdk.embeddings.with_raw_response.create(model="m", input="a b", encoding_format="base64")
    text = json.loads(raw.content)["data"][0]["embedding"]
    assert list(unpack("<384f", b64decode(text))) == decoded


def test_dimensions(sdk: OpenAI) -> None:
    for dimensions in (1, 256, 8192):
        (item,) = sdk.embeddings.create(model="m", input="a", dimensions=dimensions).data
        assert len(item.embedding) == dimensions
    with pytest.raises(openai.BadRequestError) as caught:
        sdk.embeddings.create(model="m", input="a", dimensions=10**15)
    assert caught.value.param == "dimensions"


def test_refusals_are_the_sdks_exceptions(sdk: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        sdk.embeddings.create(model="other", input="a")
    for empty in ("", [], [""]):
        with pytest.raises(openai.BadRequestError):
            sdk.embeddings.create(model="m", input=empty)
    with pytest.raises(openai.BadRequestError) as caught:
        sdk.embeddings.create(model="m", input="a " * 1025)
    assert caught.value.param == "input_tokens"


def test_many_at_once(daemon: Daemon) -> None:
    async def ask_all() -> list[list[float]]:
        async with async_sdk_for(daemon) as sdk:
            asked = [
                sdk.embeddings.create(model="m", input=[f"text {number % 3}"] * 20) for number in range(30)
            ]
            return [reply.data[19].embedding for reply in await asyncio.gather(*asked)]

    found = asyncio.run(ask_all())
    assert found[:3] * 10 == found
    assert found[0] != found[1]


def test_rerank_as_clients_of_jina_and_cohere_call_it(client: Client) -> None:
    documents = ["The capital of Brazil is Brasilia.", "The capital of France is Paris."]
    query = "What is the capital of France?"
    for path, more in (("/v1/rerank", {"return_documents": True}), ("/v2/rerank", {}), ("/rerank", {})):
        reply = client.post(path, {"model": "m", "query": query, "documents": documents, "top_n": 1, **more})
        assert reply.status == 200
        (best,) = reply.json["results"]
        assert best["index"] == 1
        assert best["document"]["text"] == documents[1]
        assert 0 < best["relevance_score"] < 1


def test_score_classify_pooling_and_cohere(client: Client) -> None:
    score = client.post("/v1/score", {"text_1": "a b", "text_2": ["a b", "c"]})
    assert [item["score"] for item in score.json["data"]] == [1, 0]
    classes = client.post("/classify", {"model": "m", "input": "a b"})
    assert sum(classes.json["data"][0]["probs"]) == pytest.approx(1, abs=1e-6)
    pooled = client.post("/pooling", {"model": "m", "input": "a b", "encoding_format": "bytes"})
    assert pooled.headers["content-type"] == "application/octet-stream"
    assert json.loads(pooled.headers["metadata"])["data"][0]["end"] == len(pooled.body) == 4 * 384
    cohere = client.post("/v2/embed", {"model": "m", "texts": ["a b"], "input_type": "search_query"})
    assert cohere.json["embeddings"]["float"][0] == list(unpack("<384f", pooled.body))


def test_requests_are_counted(client: Client) -> None:
    before = client.metrics()
    assert client.post("/v1/embeddings", {"input": ["one two", "three"]}).status == 200
    after = client.metrics()
    for name, more in (
        ("vllm:prompt_tokens_total", 3),
        ("vllm:request_prompt_tokens_count", 2),
        ("vllm:generation_tokens_total", 0),
    ):
        assert after.value(name) - before.value(name) == more
    assert after.finished()["stop"] - before.finished()["stop"] == 2
