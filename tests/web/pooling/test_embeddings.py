"""`/v1/embeddings`: every form of input and output, and what is refused."""

from __future__ import annotations

import json
import time
from base64 import b64decode
from math import hypot
from struct import unpack
from typing import Any

import pytest

from llmdsim.tokenization.builtin import BuiltinTokenizer
from tests.web.pooling.asking import EMBEDDINGS, ask, vectors
from tests.web.rig import PassRig
from tests.wire.channel import post

TALK = [{"role": "user", "content": "one two"}]
SPLIT = [{"role": "user", "content": [{"type": "text", "text": "one two"}]}]


@pytest.fixture
def rig() -> PassRig:
    return PassRig("--max-model-len", "100", "--max-prompts", "5", "--default-embedding-dimensions", "6")


def test_the_whole_answer() -> None:
    rig = PassRig("--served-model-name", "first", "second", "--default-embedding-dimensions", "2")
    answer = ask(rig, EMBEDDINGS, {"model": "second", "input": "one two", "request_id": "mine"})
    assert answer.reply.status == 200
    created = answer.body["created"]
    assert abs(created - time.time()) < 60
    (vector,) = vectors(rig, input="one two")
    usage = {
        "prompt_tokens": 2,
        "total_tokens": 2,
        "completion_tokens": 0,
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }
    expected = {
        "id": "embd-mine",
        "object": "list",
        "created": created,
        "model": "first",
        "data": [{"index": 0, "object": "embedding", "embedding": vector}],
        "usage": usage,
    }
    # Compared as text: the order of keys is vLLM's too.
    assert answer.reply.body.decode() == json.dumps(expected, separators=(",", ":"))


def test_the_header_names_the_id_before_the_body_and_pods_are_told() -> None:
    rig = PassRig("--pod-name", "p", "--pod-namespace", "n", "--enable-request-id-headers")
    answer = ask(rig, EMBEDDINGS, {"input": "a", "request_id": "mine"}, "X-Request-Id: yours")
    assert answer.body["id"] == "embd-yours"
    headers = answer.reply.headers
    assert headers[b"x-request-id"] == b"yours"
    assert (headers[b"x-inference-pod"], headers[b"x-inference-namespace"]) == (b"p", b"n")
    other = ask(rig, EMBEDDINGS, {"input": "a"}).body["id"]
    assert other != ask(rig, EMBEDDINGS, {"input": "a"}).body["id"]
    assert len(other) == len("embd-") + 16


def test_every_form_of_input(rig: PassRig) -> None:
    tokens = BuiltinTokenizer().encode("one two")
    assert len(tokens) == 2
    text = vectors(rig, input="one two")
    assert vectors(rig, input=["one two", "x", "one two"])[::2] == text * 2
    assert vectors(rig, input=tokens) == text
    assert vectors(rig, input=[tokens, [1, 2], tokens])[::2] == text * 2
    assert vectors(rig, input=[str(token) for token in tokens]) != text
    assert vectors(rig, input=[[str(tokens[0]), tokens[1]], [True]])[0] == text[0]


def test_conversations_in_messages_and_in_input(rig: PassRig) -> None:
    one = vectors(rig, messages=TALK)
    assert one == vectors(rig, messages=SPLIT) == vectors(rig, input=TALK)
    assert one != vectors(rig, input="one two")
    assert vectors(rig, messages=[TALK, SPLIT]) == vectors(rig, input=[TALK, TALK]) == one * 2
    usage = ask(rig, EMBEDDINGS, {"messages": [TALK, TALK]}).body["usage"]
    assert (
        usage["prompt_tokens"] == 2 * ask(rig, EMBEDDINGS, {"messages": TALK}).body["usage"]["prompt_tokens"]
    )


def test_the_length_is_the_default_or_the_one_asked_for(rig: PassRig) -> None:
    assert len(vectors(rig, input="a")[0]) == 6
    for dimensions in (1, 2, 8192):
        (vector,) = vectors(rig, input="a", dimensions=dimensions)
        assert len(vector) == dimensions
        assert hypot(*vector) == pytest.approx(1, abs=2e-6)


def test_without_options_embeddings_have_384_numbers() -> None:
    assert len(vectors(PassRig(), input="a")[0]) == 384


@pytest.mark.parametrize("dimensions", [0, -1, 9, 10**15, 10**30])
def test_lengths_out_of_bounds_are_refused(dimensions: int) -> None:
    rig = PassRig("--max-embedding-dimensions", "8", "--default-embedding-dimensions", "8")
    assert len(vectors(rig, input="a", dimensions=8)[0]) == 8
    answer = ask(rig, EMBEDDINGS, {"input": "a", "dimensions": dimensions})
    assert answer.error == (400, "BadRequestError", "dimensions")
    assert "[1, 8]" in answer.body["error"]["message"]


def test_a_default_above_the_bound_raises_it() -> None:
    rig = PassRig("--max-embedding-dimensions", "8", "--default-embedding-dimensions", "10")
    assert len(vectors(rig, input="a")[0]) == len(vectors(rig, input="a", dimensions=10)[0]) == 10
    assert ask(rig, EMBEDDINGS, {"input": "a", "dimensions": 11}).reply.status == 400


@pytest.mark.parametrize(("endianness", "code"), [("little", "<"), ("big", ">"), ("native", "=")])
def test_base64_holds_the_same_numbers(rig: PassRig, endianness: str, code: str) -> None:
    body = {"input": ["a", "b c"], "encoding_format": "base64", "endianness": endianness}
    answer = ask(rig, EMBEDDINGS, body)
    for item, vector in zip(answer.body["data"], vectors(rig, input=["a", "b c"]), strict=True):
        found = unpack(f"{code}6f", b64decode(item["embedding"], validate=True))
        assert found == pytest.approx(vector, rel=1e-7)


def test_bytes_come_with_a_header_that_describes_them(rig: PassRig) -> None:
    body: dict[str, Any] = {"input": ["a", "b c"], "encoding_format": "bytes", "embed_dtype": "float16"}
    answer = ask(rig, EMBEDDINGS, {**body, "request_id": "\u00e9\n"})
    assert answer.reply.headers[b"content-type"] == b"application/octet-stream"
    metadata = json.loads(answer.reply.headers[b"metadata"])
    assert list(metadata) == ["id", "created", "model", "data", "usage"]
    assert metadata["id"] == "embd-\u00e9\n"
    assert metadata["model"] == "m"
    assert metadata["usage"] == {"prompt_tokens": 3, "total_tokens": 3}
    for index, item in enumerate(metadata["data"]):
        assert item == {
            "index": index,
            "embed_dtype": "float16",
            "endianness": "native",
            "start": 12 * index,
            "end": 12 * (index + 1),
            "shape": [6],
        }
    assert len(answer.reply.body) == 24
    only = ask(rig, EMBEDDINGS, {**body, "encoding_format": "bytes_only"})
    assert only.reply.body == answer.reply.body
    assert b"metadata" not in only.reply.headers


def test_a_description_too_long_for_a_header_is_refused() -> None:
    rig = PassRig()
    body = {"input": ["a"] * 1000, "dimensions": 1}
    answer = ask(rig, EMBEDDINGS, {**body, "encoding_format": "bytes"})
    assert answer.error == (400, "BadRequestError", "encoding_format")
    assert len(ask(rig, EMBEDDINGS, {**body, "encoding_format": "bytes_only"}).reply.body) == 4000


def test_without_activation_vectors_have_other_lengths(rig: PassRig) -> None:
    assert hypot(*vectors(rig, input="a b c", use_activation=False)[0]) < 0.9
    for other in (True, None):
        assert vectors(rig, input="a b c", use_activation=other) == vectors(rig, input="a b c")


def test_truncation_keeps_the_first_tokens_unless_told_otherwise(rig: PassRig) -> None:
    long = "a b c " * 60
    assert ask(rig, EMBEDDINGS, {"input": long}).error == (400, "BadRequestError", "input_tokens")
    cut = ask(rig, EMBEDDINGS, {"input": long, "truncate_prompt_tokens": -1})
    assert cut.body["usage"]["prompt_tokens"] == 100
    text = "one two three four"
    first = vectors(rig, input=text, truncate_prompt_tokens=2)
    assert (
        first
        == vectors(rig, input="one two ")
        == vectors(rig, input=text, truncate_prompt_tokens=2, truncation_side="right")
    )
    assert vectors(rig, input=text, truncate_prompt_tokens=1, truncation_side="left") == vectors(
        rig, input="four"
    )
    assert vectors(rig, input=[[1, 2, 3], [2]], truncate_prompt_tokens=1)[0] == vectors(rig, input=[1])[0]


REFUSED: dict[str, tuple[dict[str, Any], tuple[int, str, str | None]]] = {
    "nothing": ({}, (400, "Bad Request", "body.input")),
    "null": ({"input": None, "messages": None}, (400, "Bad Request", "body.input")),
    "empty text": ({"input": ""}, (400, "BadRequestError", None)),
    "no text": ({"input": []}, (400, "BadRequestError", None)),
    "an empty text": ({"input": ["a", ""]}, (400, "BadRequestError", None)),
    "no ids": ({"input": [[]]}, (400, "BadRequestError", None)),
    "a number": ({"input": 5}, (400, "Bad Request", "body.input")),
    "mixed": ({"input": [1, "a"]}, (400, "Bad Request", "body.input.1")),
    "objects in ids": ({"input": [[1, {"a": 1}]]}, (400, "Bad Request", "body.input.0")),
    "objects": ({"input": [{"a": 1}]}, (400, "Bad Request", "body.input.0")),
    "negative ids": ({"input": [-1]}, (400, "Bad Request", "body.input.0")),
    "unknown ids": ({"input": [2**32]}, (400, "BadRequestError", None)),
    "no messages": ({"messages": []}, (400, "BadRequestError", None)),
    "an empty conversation": ({"messages": [TALK, []]}, (400, "Bad Request", "body.messages.1")),
    "messages and conversations": (
        {"messages": [TALK, TALK[0]]},
        (400, "Bad Request", "body.messages.0.ChatCompletionDeveloperMessageParam"),
    ),
    "a bad part": (
        {"messages": [{"role": "user", "content": [{"type": "x"}]}]},
        (400, "BadRequestError", None),
    ),
    "too many": ({"input": ["a"] * 6}, (400, "BadRequestError", "input")),
    "too many conversations": ({"messages": [TALK] * 6}, (400, "BadRequestError", "messages")),
    "an unknown model": ({"input": "a", "model": "x"}, (404, "NotFoundError", None)),
    "a format": ({"input": "a", "encoding_format": "hex"}, (400, "Bad Request", "body.encoding_format")),
    "no format": ({"input": "a", "encoding_format": None}, (400, "Bad Request", "body.encoding_format")),
    "a dtype": ({"input": "a", "embed_dtype": "int8"}, (400, "Bad Request", "body.embed_dtype")),
    "an order": ({"input": "a", "endianness": "odd"}, (400, "Bad Request", "body.endianness")),
    "normalize": ({"input": "a", "normalize": None}, (400, "BadRequestError", "normalize")),
    "a removed task": ({"input": "a", "task": "encode"}, (400, "BadRequestError", "task")),
    "a cut": (
        {"input": "a", "truncate_prompt_tokens": 101},
        (400, "BadRequestError", "truncate_prompt_tokens"),
    ),
    "a negative cut": (
        {"input": "a", "truncate_prompt_tokens": -2},
        (400, "Bad Request", "body.truncate_prompt_tokens"),
    ),
    "nothing left": ({"input": "a", "truncate_prompt_tokens": 0}, (400, "BadRequestError", None)),
    "a salt": ({"input": "a", "cache_salt": "@"}, (400, "BadRequestError", "cache_salt")),
    "both prompts": (
        {"messages": TALK, "continue_final_message": True, "add_generation_prompt": True},
        (400, "BadRequestError", None),
    ),
    "a template": ({"messages": TALK, "chat_template": "x"}, (400, "BadRequestError", None)),
    "media": (
        {"messages": TALK, "media_io_kwargs": {"image": {}}},
        (400, "BadRequestError", "media_io_kwargs"),
    ),
    "a long id": ({"input": "a", "request_id": "x" * 1025}, (400, "BadRequestError", "request_id")),
    "user": ({"input": "a", "user": 5}, (400, "Bad Request", "body.user")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(rig: PassRig, name: str) -> None:
    body, error = REFUSED[name]
    assert ask(rig, EMBEDDINGS, body).error == error


def test_forms_are_refused_and_other_media_types_are_not(rig: PassRig) -> None:
    form = ask(rig, EMBEDDINGS, {"input": "a"}, "Content-Type: multipart/form-data; boundary=x")
    assert form.error[:2] == (400, "Bad Request")
    assert ask(rig, EMBEDDINGS, {"input": "a"}, "Content-Type: text/plain").reply.status == 200


def test_bodies_that_are_no_text_or_nest_too_deeply_are_refused(rig: PassRig) -> None:
    deep = b'{"input":"a","user":"u","task":' + b"[" * 250 + b"]" * 250 + b"}"
    for body in (b'{"input":"a","ignored":"\xff"}', deep, b'{"input":"a"', b"[]", b""):
        client = rig.connect().send(post(body, path=EMBEDDINGS.encode()))
        assert client.received.startswith(b"HTTP/1.1 400"), body


def test_more_numbers_than_a_reply_may_hold_are_refused() -> None:
    rig = PassRig("--max-prompts", "2000")
    answer = ask(rig, EMBEDDINGS, {"input": ["a"] * 1366, "dimensions": 1536})
    assert answer.error == (400, "BadRequestError", "input")
    assert "2097152" in answer.body["error"]["message"]


def test_more_media_than_a_request_may_hold_are_refused() -> None:
    rig = PassRig("--max-model-len", "9000", "--max-prompts", "9000")
    videos = [{"role": "user", "content": [{"type": "video_url", "video_url": {"url": "v"}}] * 8}]
    few = ask(rig, EMBEDDINGS, {"messages": [videos] * 2, "dimensions": 2})
    assert few.body["usage"]["prompt_tokens"] > 2 * 8 * 512
    answer = ask(rig, EMBEDDINGS, {"messages": [videos] * 257, "dimensions": 2})
    assert answer.error == (400, "BadRequestError", None)
    longer = [{"role": "user", "content": videos[0]["content"] * 3}]
    cut = ask(rig, EMBEDDINGS, {"messages": longer, "truncate_prompt_tokens": 5})
    assert cut.error == (400, "BadRequestError", "input_tokens")


def test_long_work_is_done_in_turns() -> None:
    rig = PassRig()
    client = rig.post(EMBEDDINGS, {"input": ["a"] * 200, "dimensions": 2})
    assert rig.rank.context.turns.busy
    assert not client.received
    assert rig.finish() >= 199
    assert client.received.startswith(b"HTTP/1.1 200")


def test_a_client_that_leaves_ends_the_work() -> None:
    rig = PassRig()
    client = rig.post(EMBEDDINGS, {"input": ["a"] * 200, "dimensions": 2})
    client.fin()
    rig.turns(3)
    assert not rig.rank.context.turns.busy
    assert rig.rank.stats.prompt_tokens == 0


def test_embeddings_are_served_while_draining(rig: PassRig) -> None:
    rig.rank.context.draining = True
    assert len(vectors(rig, input="a")) == 1


def test_prompts_count_in_the_metrics_as_requests_that_stop(rig: PassRig) -> None:
    ask(rig, EMBEDDINGS, {"input": ["one two", "three"]})
    ask(rig, EMBEDDINGS, {"input": ["one two", ""]})
    stats = rig.rank.stats
    assert stats.prompt_tokens == 3
    assert stats.finished["stop"] == 2
    assert (stats.request_prompt_tokens.count, stats.request_prompt_tokens.sum) == (2, 3)
    assert (stats.request_generation_tokens.count, stats.request_generation_tokens.sum) == (2, 0)
    assert (stats.pass_tokens.count, stats.pass_tokens.sum) == (1, 3)
    assert stats.time_to_first_token.count == stats.e2e_latency.count == 2
    assert stats.params_max_tokens.count == stats.inter_token_latency.count == 0
    assert (stats.running, stats.waiting, stats.generation_tokens) == (0, 0, 0)


def test_an_encoder_alone_embeds_no_text() -> None:
    rig = PassRig("--mm-encoder-only")
    assert ask(rig, EMBEDDINGS, {"input": "a"}).reply.status == 404
    assert ask(rig, "/pooling", {"input": "a"}).reply.status == 200
