"""Log probabilities: shapes, counts, and what an echo covers."""

from typing import Any

import pytest

from tests.conformance import shapes
from tests.integration.client import Client
from tests.integration.daemon import Pool

pytestmark = pytest.mark.integration


def chat_logprobs(client: Client, **fields: Any) -> list[dict[str, Any]]:
    reply = client.chat(max_tokens=3, ignore_eos=True, logprobs=True, **fields)
    assert reply.status == 200, reply.body
    logprobs = reply.json["choices"][0]["logprobs"]
    assert tuple(logprobs) == ("content",)
    entries: list[dict[str, Any]] = logprobs["content"]
    assert len(entries) == 3
    assert "".join(entry["token"] for entry in entries) == reply.text
    return entries


def test_r27_logprobs_alone_are_the_sampled_tokens(client: Client) -> None:
    for entry in chat_logprobs(client):
        assert tuple(entry) == shapes.CHAT_LOGPROB
        assert entry["top_logprobs"] == []
        assert bytes(entry["bytes"]).decode() == entry["token"]
        assert -2 < entry["logprob"] < 0


@pytest.mark.parametrize("count", [1, 2, 20])
def test_top_logprobs_begin_with_the_token_and_fall(client: Client, count: int) -> None:
    for entry in chat_logprobs(client, top_logprobs=count):
        top = entry["top_logprobs"]
        assert len(top) == count
        assert all(tuple(alternative) == shapes.CHAT_ALTERNATIVE for alternative in top)
        assert top[0] == {key: entry[key] for key in shapes.CHAT_ALTERNATIVE}
        values = [alternative["logprob"] for alternative in top]
        assert values == sorted(values, reverse=True)
        assert len({alternative["token"] for alternative in top}) == count
        assert all(bytes(a["bytes"]).decode() == a["token"] for a in top)


def test_chat_logprobs_of_a_stream_are_those_of_the_whole(client: Client) -> None:
    fields = {"seed": 5, "max_tokens": 6, "ignore_eos": True, "logprobs": True, "top_logprobs": 2}
    whole = client.chat(**fields).json["choices"][0]["logprobs"]["content"]
    role, *deltas, _ = client.chat_stream(**fields)
    assert role.json["choices"][0]["logprobs"] is None
    streamed = [delta.json["choices"][0]["logprobs"]["content"] for delta in deltas]
    assert [len(entries) for entries in streamed] == [1] * 6
    assert [entry for entries in streamed for entry in entries] == whole


@pytest.mark.parametrize(("asked", "items"), [(0, 1), (1, 1), (3, 3), (20, 20)])
def test_r28_text_logprobs_have_the_sampled_token_even_for_zero(
    client: Client, asked: int, items: int
) -> None:
    """At most one more than asked for, where the sampled token is not among the most probable; here it is."""
    reply = client.text(max_tokens=4, ignore_eos=True, logprobs=asked)
    logprobs = reply.json["choices"][0]["logprobs"]
    assert tuple(logprobs) == shapes.TEXT_LOGPROBS
    assert "".join(logprobs["tokens"]) == reply.text
    offset = 0
    for place, token in enumerate(logprobs["tokens"]):
        assert logprobs["text_offset"][place] == offset
        offset += len(token)
        top = logprobs["top_logprobs"][place]
        assert next(iter(top.items())) == (token, logprobs["token_logprobs"][place])
        assert len(top) == items


def test_text_logprobs_of_a_stream_are_those_of_the_whole(client: Client) -> None:
    fields = {"seed": 5, "max_tokens": 6, "ignore_eos": True, "logprobs": 2}
    whole = client.text(**fields).json["choices"][0]["logprobs"]
    events = client.text_stream(**fields)[:-1]
    pieces = [event.json["choices"][0]["logprobs"] for event in events]
    assert len(pieces) == 6
    for key in shapes.TEXT_LOGPROBS:
        assert [value for piece in pieces for value in piece[key]] == whole[key], key


def test_r48_an_echo_with_logprobs_covers_the_prompt(client: Client) -> None:
    reply = client.text("a b c", echo=True, logprobs=1, max_tokens=1)
    assert reply.text.startswith("a b c")
    choice = reply.json["choices"][0]
    logprobs = choice["logprobs"]
    assert logprobs["tokens"][:3] == ["a ", "b ", "c"]
    assert len(logprobs["tokens"]) == 4
    assert logprobs["text_offset"] == [0, 2, 4, 5]
    assert logprobs["token_logprobs"][0] is None
    assert logprobs["top_logprobs"][0] is None
    assert all(value < 0 for value in logprobs["token_logprobs"][1:])
    for token, top in list(zip(logprobs["tokens"], logprobs["top_logprobs"], strict=True))[1:]:
        assert token in top
    # vLLM turns prompt_logprobs on with the same count.
    assert len(choice["prompt_logprobs"]) == 3


def test_r48_scoring_a_prompt_without_generating(client: Client) -> None:
    reply = client.text("a b c", echo=True, logprobs=1, max_tokens=0)
    assert reply.text == "a b c"
    logprobs = reply.json["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["a ", "b ", "c"]
    assert logprobs["token_logprobs"][0] is None
    assert reply.json["usage"]["completion_tokens"] == 1


@pytest.mark.parametrize(("asked", "items"), [(0, 1), (1, 1), (3, 3)])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_prompt_logprobs(client: Client, path: str, asked: int, items: int) -> None:
    prompt = {"messages": [{"role": "user", "content": "a b c"}], "prompt": "a b c"}
    body = client.post(
        path, {**prompt, "max_tokens": 1, "prompt_logprobs": asked, "return_token_ids": True}
    ).json
    holder = body if "chat" in path else body["choices"][0]
    listed, ids = holder["prompt_logprobs"], holder["prompt_token_ids"]
    assert len(listed) == len(ids) == body["usage"]["prompt_tokens"]
    assert listed[0] is None
    for token_id, entry in list(zip(ids, listed, strict=True))[1:]:
        assert next(iter(entry)) == str(token_id)
        assert len(entry) == items
        assert all(tuple(value) == shapes.PROMPT_LOGPROB for value in entry.values())
        assert [value["rank"] for value in entry.values()] == list(range(1, items + 1))


def test_tokens_may_be_shown_as_ids(client: Client) -> None:
    fields = {"seed": 5, "max_tokens": 2, "ignore_eos": True}
    ids = client.chat(**fields, return_token_ids=True).json["choices"][0]["token_ids"]
    chat = client.chat(**fields, logprobs=True, return_tokens_as_token_ids=True).json
    entries = chat["choices"][0]["logprobs"]["content"]
    assert [entry["token"] for entry in entries] == [f"token_id:{i}" for i in ids]
    assert "token_id" not in chat["choices"][0]["message"]["content"]
    # The bytes are those of the token, not of how it is shown.
    assert b"".join(bytes(e["bytes"]) for e in entries).decode() == chat["choices"][0]["message"]["content"]
    text = client.text(**fields, logprobs=1, return_tokens_as_token_ids=True, return_token_ids=True).json
    choice = text["choices"][0]
    shown = [f"token_id:{i}" for i in choice["token_ids"]]
    assert choice["logprobs"]["tokens"] == shown
    assert choice["logprobs"]["text_offset"] == [0, len(shown[0])]


def test_the_server_may_show_all_tokens_as_ids(daemon_with: Pool) -> None:
    client = daemon_with("--return-tokens-as-token-ids").client
    entry = client.chat(max_tokens=1, logprobs=True).json["choices"][0]["logprobs"]["content"][0]
    assert entry["token"].startswith("token_id:")
    entry = client.chat(max_tokens=1, logprobs=True, return_tokens_as_token_ids=False).json
    assert not entry["choices"][0]["logprobs"]["content"][0]["token"].startswith("token_id:")


def test_offsets_count_characters(daemon_with: Pool) -> None:
    client = daemon_with("--mode", "echo").client
    logprobs = client.text("é 😀 x", logprobs=1).json["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["é ", "😀 ", "x"]
    assert logprobs["text_offset"] == [0, 2, 4]


def test_r29_too_many_logprobs_name_the_field(client: Client) -> None:
    for reply in (client.text(logprobs=25), client.chat(logprobs=True, top_logprobs=25)):
        assert reply.status == 400
        assert reply.error["param"] == "logprobs"
        assert reply.error["type"] == "BadRequestError"
    assert client.text(logprobs=20, max_tokens=1).status == 200
    assert client.text(prompt_logprobs=21).error["param"] == "prompt_logprobs"


def test_the_bound_on_logprobs_is_an_option(daemon_with: Pool) -> None:
    client = daemon_with("--max-logprobs", "2").client
    assert client.text(logprobs=2, max_tokens=1).status == 200
    assert client.text(logprobs=3, max_tokens=1).status == 400
