"""What is refused, with which status, type and parameter; streamed and not alike."""

import json
from typing import Any

import pytest

from tests.integration.client import Client
from tests.integration.daemon import Pool

pytestmark = pytest.mark.integration

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "a b c"}]


def body_for(path: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {**({"messages": MESSAGES} if path == CHAT else {"prompt": "a b c"}), **fields}


BOTH = [
    ({"temperature": -1}, "temperature"),
    ({"temperature": 2.5}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 1.5}, "top_p"),
    ({"top_k": -2}, None),
    ({"min_p": 2}, None),
    ({"presence_penalty": 3}, None),
    ({"frequency_penalty": -3}, None),
    ({"repetition_penalty": 0}, None),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": 2000}, "max_tokens"),
    ({"min_tokens": -1}, None),
    ({"min_tokens": 9, "max_tokens": 5}, None),
    ({"n": 0}, None),
    ({"n": 129}, None),
    ({"n": 2, "temperature": 0}, None),
    ({"stop": ""}, None),
    ({"stop": ["a", ""]}, None),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"allowed_token_ids": []}, "allowed_token_ids"),
    ({"stop_token_ids": [-1]}, "stop_token_ids"),
    ({"prompt_logprobs": -2}, "prompt_logprobs"),
    ({"prompt_logprobs": 21}, "prompt_logprobs"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize(("fields", "param"), BOTH, ids=[json.dumps(fields) for fields, _ in BOTH])
def test_r17_r51_out_of_range(
    client: Client, path: str, fields: dict[str, Any], param: str | None, stream: bool
) -> None:
    """A streamed request keeps its real status (r1)."""
    reply = client.post(path, body_for(path, {**fields, "stream": stream}))
    assert reply.status == 400, reply.body
    assert reply.error["type"] == "BadRequestError"
    assert reply.error["param"] == param


WRONG = [
    ({"n": "x"}, "body.n"),
    ({"n": 1.5}, "body.n"),
    ({"temperature": "hot"}, "body.temperature"),
    ({"model": 5}, "body.model"),
    ({"seed": 2**63}, "body.seed"),
    ({"stop": ["a"] * 5}, "body.stop"),
    ({"stream": "maybe"}, "body.stream"),
    ({"max_tokens": [1]}, "body.max_tokens"),
    ({"stream": True, "stream_options": "x"}, "body.stream_options"),
]


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize(("fields", "param"), WRONG, ids=[json.dumps(fields) for fields, _ in WRONG])
def test_wrong_types(client: Client, path: str, fields: dict[str, Any], param: str) -> None:
    reply = client.post(path, body_for(path, fields))
    assert reply.status == 400
    assert reply.error["type"] == "Bad Request"
    assert reply.error["param"] == param
    assert reply.error["message"].startswith(tuple("12345")), reply.error
    assert "validation error" in reply.error["message"]


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", "body"),
        (b"null", "body"),
        (b"[]", "body"),
        (b'{"a": ', "body.6"),
        (b"{'a': 1}", "body.1"),
        (b"\xff\xfe\xff", None),
        (b'{"prompt": "\xff", "messages": [{"role": "user", "content": "\xff"}]}', None),
    ],
)
def test_bodies_that_are_no_object(client: Client, path: str, body: bytes, param: str | None) -> None:
    reply = client.ask("POST", path, body, {"Content-Type": "application/json"})
    assert reply.status == 400
    assert reply.error["type"] == "Bad Request"
    assert reply.error["param"] == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "body.messages"),
        ({"messages": "text"}, "body.messages"),
        ({"messages": []}, None),
        ({"messages": None}, None),
    ],
)
def test_r17_messages_are_needed(client: Client, fields: dict[str, Any], param: str | None) -> None:
    reply = client.post(CHAT, {"model": "m", **fields})
    assert reply.status == 400
    assert reply.error["param"] == param


def test_r17_a_message_needs_a_role(client: Client) -> None:
    reply = client.post(CHAT, {"messages": [{"content": "a"}]})
    assert reply.status == 400
    assert reply.error["param"].startswith("body.messages.0")


@pytest.mark.parametrize("prompt", ["", [], None])
def test_r23_a_prompt_is_needed(client: Client, prompt: object) -> None:
    reply = client.post(TEXT, {"model": "m", "prompt": prompt})
    assert reply.status == 400
    assert reply.error["param"] == "prompt"
    assert client.post(TEXT, {"model": "m"}).error["param"] == "prompt"
    assert client.get("/health").status == 200


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_r30_stream_options_need_a_stream(client: Client, path: str) -> None:
    reply = client.post(path, body_for(path, {"stream_options": {"include_usage": True}}))
    assert reply.status == 400
    assert reply.error["param"] == "stream_options"
    assert client.post(path, body_for(path, {"stream_options": {}, "max_tokens": 1})).status == 200


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_r58_prompt_logprobs_do_not_go_with_a_stream(client: Client, path: str) -> None:
    reply = client.post(path, body_for(path, {"stream": True, "prompt_logprobs": 1}))
    assert reply.status == 400
    assert reply.error["param"] == "prompt_logprobs"


def test_top_logprobs_need_logprobs(client: Client) -> None:
    assert client.chat(top_logprobs=2).error["param"] == "top_logprobs"
    assert client.chat(top_logprobs=-2, logprobs=True).error["param"] == "top_logprobs"
    assert client.text(logprobs=-2).error["param"] == "logprobs"


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("stream", [False, True])
def test_an_unknown_model_is_not_found(client: Client, path: str, stream: bool) -> None:
    reply = client.post(path, body_for(path, {"model": "nobody/here", "stream": stream}))
    assert reply.status == 404
    assert reply.error["type"] == "NotFoundError"
    assert reply.error["param"] == "model"
    assert "nobody/here" in reply.error["message"]
    assert "does not exist" in reply.error["message"]


def test_r1_a_prompt_too_long_is_refused_before_any_event(daemon_with: Pool) -> None:
    client = daemon_with("--max-model-len", "64").client
    words = "word " * 200
    for path in (CHAT, TEXT):
        for stream in (False, True):
            prompt = {"messages": [{"role": "user", "content": words}], "prompt": words}
            reply = client.post(path, {**prompt, "stream": stream})
            assert reply.status == 400
            assert reply.error["param"] == "input_tokens"
            assert "maximum context length is 64 tokens" in reply.error["message"]


def test_r10_what_exceeds_the_context_together_is_clamped(daemon_with: Pool) -> None:
    client = daemon_with("--max-model-len", "64").client
    reply = client.text("a b c", max_tokens=64, ignore_eos=True)
    assert reply.json["usage"] == {
        **reply.json["usage"],
        "prompt_tokens": 3,
        "total_tokens": 64,
        "completion_tokens": 61,
    }
    assert reply.json["choices"][0]["finish_reason"] == "length"
    chat = client.chat(max_tokens=64, ignore_eos=True)
    assert chat.json["usage"]["total_tokens"] == 64
    refused = client.text("a b c", max_tokens=65)
    assert (refused.status, refused.error["param"]) == (400, "max_tokens")
    refused = client.chat("a b c", max_completion_tokens=65)
    assert (refused.status, refused.error["param"]) == (400, "max_completion_tokens")


def test_a_prompt_that_fills_the_context_leaves_no_room(daemon_with: Pool) -> None:
    client = daemon_with("--max-model-len", "64").client
    reply = client.text("w " * 64)
    assert (reply.status, reply.error["param"]) == (400, "max_tokens")
    assert client.text("w " * 63).json["usage"]["completion_tokens"] == 1


def test_strict_context_gives_the_three_numbers(daemon_with: Pool) -> None:
    client = daemon_with("--max-model-len", "64", "--strict-context").client
    reply = client.text("a b c", max_tokens=62)
    assert reply.status == 400
    for number in ("65", "64", "62", "3"):
        assert number in reply.error["message"], reply.error
    assert client.text("a b c", max_tokens=61, ignore_eos=True).json["usage"]["total_tokens"] == 64


def test_n_and_prompts_have_upper_bounds(daemon_with: Pool) -> None:
    client = daemon_with("--max-n", "3", "--max-prompts", "4", "--max-num-seqs", "16").client
    assert client.chat(n=3, max_tokens=1).status == 200
    assert client.chat(n=4, max_tokens=1).status == 400
    assert client.text(["a"] * 4, max_tokens=1).status == 200
    assert client.text(["a"] * 5, max_tokens=1).status == 400
    assert client.text([[1]] * 5, max_tokens=1).status == 400


def test_the_default_bounds(client: Client) -> None:
    assert client.text(["a"] * 1025, max_tokens=1).status == 400
    assert client.chat(n=10**9, max_tokens=1).status == 400
    # A product must be bounded too.
    assert client.text(["a"] * 1024, n=128, max_tokens=1).status in (400, 429)


@pytest.mark.parametrize(
    "nested",
    [
        b'{"prompt": "a", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"prompt": "a", "x": ' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}",
        b"[" * 100_000,
    ],
    ids=["lists", "objects", "unclosed"],
)
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_a_body_nested_too_deeply_is_refused(client: Client, path: str, nested: bytes) -> None:
    reply = client.ask("POST", path, nested, {"Content-Type": "application/json"})
    assert reply.status == 400
    assert reply.error["type"] == "Bad Request"
    assert client.get("/health").status == 200


def test_a_schema_as_deep_as_people_write_them_is_fine(client: Client) -> None:
    schema: dict[str, Any] = {}
    for _ in range(50):
        schema = {"type": "object", "properties": {"a": schema}}
    assert client.chat(max_tokens=1, metadata=schema).status == 200


def test_multipart_is_no_json(client: Client) -> None:
    reply = client.ask("POST", CHAT, b"--x--", {"Content-Type": "multipart/form-data; boundary=x"})
    assert (reply.status, reply.error["type"]) == (400, "Bad Request")


@pytest.mark.parametrize("content_type", ["application/x-www-form-urlencoded", "text/plain", ""])
def test_other_content_types_are_read_as_json(client: Client, content_type: str) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    body = json.dumps({"messages": MESSAGES, "max_tokens": "1"}).encode()
    assert client.ask("POST", CHAT, body, headers).status == 200


def test_a_refused_value_of_megabytes_does_not_come_back(client: Client) -> None:
    reply = client.chat(model="x" * 1_000_000)
    assert reply.status == 404
    assert len(reply.body) < 2_000
