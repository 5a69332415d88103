"""Whole replies: every key, in vLLM's order, and the values that do not depend on what is said."""

import json
import re
import time
from collections.abc import Mapping
from typing import Any

import pytest

from tests.conformance import shapes
from tests.integration.client import Client, Reply
from tests.integration.daemon import Pool

pytestmark = pytest.mark.integration


def body_of(reply: Reply) -> dict[str, Any]:
    assert reply.status == 200, reply.body
    assert reply.headers["content-type"] == "application/json"
    document: dict[str, Any] = reply.json
    # Compact, and characters as they are.
    assert reply.body.decode() == json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return document


def nulls(document: Mapping[str, Any]) -> set[str]:
    return {key for key, value in document.items() if value is None}


def test_a_chat_has_every_key_in_order(client: Client) -> None:
    before = int(time.time())
    body = body_of(client.chat(max_tokens=4, ignore_eos=True))
    assert tuple(body) == shapes.CHAT_BODY
    (choice,) = body["choices"]
    assert tuple(choice) == shapes.CHAT_CHOICE
    assert tuple(choice["message"]) == shapes.MESSAGE
    assert tuple(body["usage"]) == shapes.USAGE
    assert re.fullmatch("chatcmpl-[0-9a-f]{16}", body["id"])
    assert body["object"] == "chat.completion"
    assert before <= body["created"] <= time.time()
    assert body["model"] == "m"
    assert re.fullmatch(r"vllm-0\.33\.0-[0-9a-f]{8}", body["system_fingerprint"])
    assert nulls(body) == {
        *("service_tier", "prompt_logprobs", "prompt_token_ids", "prompt_text"),
        *("kv_transfer_params", "ec_transfer_params", "metrics"),
    }
    assert choice["index"] == 0
    assert choice["finish_reason"] == "length"
    assert nulls(choice) == {"logprobs", "stop_reason", "token_ids", "routed_experts", "weight_versions"}
    assert choice["message"]["role"] == "assistant"
    assert isinstance(choice["message"]["content"], str)
    assert nulls(choice["message"]) == {"refusal", "annotations", "audio", "function_call", "reasoning"}


def test_a_text_completion_has_every_key_in_order(client: Client) -> None:
    before = int(time.time())
    body = body_of(client.text(max_tokens=4, ignore_eos=True))
    assert tuple(body) == shapes.TEXT_BODY
    (choice,) = body["choices"]
    assert tuple(choice) == shapes.TEXT_CHOICE
    assert tuple(body["usage"]) == shapes.USAGE
    assert re.fullmatch("cmpl-[0-9a-f]{16}", body["id"])
    assert body["object"] == "text_completion"
    assert before <= body["created"] <= time.time()
    assert nulls(body) == {"service_tier", "kv_transfer_params", "ec_transfer_params", "metrics"}
    assert isinstance(choice["text"], str)
    assert choice["finish_reason"] == "length"
    assert nulls(choice) == {
        *("logprobs", "stop_reason", "token_ids", "prompt_logprobs", "prompt_token_ids"),
        *("routed_experts", "weight_versions"),
    }


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_usage_adds_up(client: Client, path: str) -> None:
    prompt = {"messages": [{"role": "user", "content": "a b c"}], "prompt": "a b c"}
    usage = body_of(client.post(path, {**prompt, "max_tokens": 7, "ignore_eos": True}))["usage"]
    # In a chat it reads "### user: a b c", with a line end.
    assert usage["prompt_tokens"] == (8 if "chat" in path else 3)
    assert usage["completion_tokens"] == 7
    assert usage["total_tokens"] == usage["prompt_tokens"] + 7
    assert usage["completion_tokens_details"] is None


def test_r45_zero_cached_tokens_are_told(client: Client) -> None:
    for reply in (client.chat(max_tokens=1), client.text(max_tokens=1)):
        assert body_of(reply)["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_r44_prompt_tokens_details_are_null_without_the_flag(daemon_with: Pool) -> None:
    client = daemon_with("--no-enable-prompt-tokens-details").client
    for reply in (client.chat(max_tokens=1), client.text(max_tokens=1)):
        assert tuple(body_of(reply)["usage"]) == shapes.USAGE
        assert body_of(reply)["usage"]["prompt_tokens_details"] is None
    usage = client.chat_stream(max_tokens=1, stream_options={"include_usage": True})[-2].json["usage"]
    assert tuple(usage) == ("prompt_tokens", "total_tokens", "completion_tokens")


def test_r55_n_choices_have_their_indexes_and_usage_counts_them_all(client: Client) -> None:
    body = body_of(client.chat(n=3, max_tokens=5, ignore_eos=True))
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    assert body["usage"]["completion_tokens"] == 15
    assert body["usage"]["prompt_tokens"] == body_of(client.chat(max_tokens=1))["usage"]["prompt_tokens"]


def test_r84_n_choices_differ(client: Client) -> None:
    choices = body_of(client.chat(n=3, max_tokens=80, ignore_eos=True))["choices"]
    assert len({choice["message"]["content"] for choice in choices}) == 3


def test_r56_a_list_of_prompts_has_a_flat_index(daemon_with: Pool) -> None:
    client = daemon_with("--mode", "echo").client
    body = body_of(client.text(["a b", "c d e"], n=2))
    assert [(c["index"], c["text"]) for c in body["choices"]] == [
        *((0, "a b"), (1, "a b"), (2, "c d e"), (3, "c d e")),
    ]
    assert body["usage"]["prompt_tokens"] == 5
    assert body["usage"]["completion_tokens"] == 10


def test_a_list_of_one_prompt_is_one_choice(client: Client) -> None:
    assert len(body_of(client.text(["only"], max_tokens=2))["choices"]) == 1


def test_token_id_prompts_count_their_ids(client: Client) -> None:
    assert body_of(client.text([17, 4, 99], max_tokens=2))["usage"]["prompt_tokens"] == 3
    body = body_of(client.text([[17, 4, 99], [5]], max_tokens=2, return_token_ids=True))
    assert body["usage"]["prompt_tokens"] == 4
    assert [choice["prompt_token_ids"] for choice in body["choices"]] == [[17, 4, 99], [5]]


def test_token_ids_come_when_asked_for(client: Client) -> None:
    chat = body_of(client.chat("a b", max_tokens=3, ignore_eos=True, return_token_ids=True))
    assert len(chat["choices"][0]["token_ids"]) == 3
    assert len(chat["prompt_token_ids"]) == chat["usage"]["prompt_tokens"]
    text = body_of(client.text("a b", max_tokens=3, ignore_eos=True, return_token_ids=True))
    assert len(text["choices"][0]["token_ids"]) == 3
    assert len(text["choices"][0]["prompt_token_ids"]) == 2
    assert all(isinstance(i, int) and 0 <= i < 2**32 for i in text["choices"][0]["token_ids"])


def test_token_ids_sent_back_are_the_prompt_they_were_made_of(daemon_with: Pool) -> None:
    client = daemon_with("--mode", "echo").client
    first = body_of(client.text("héllo 😀 wörld", return_token_ids=True))["choices"][0]
    again = body_of(client.text(first["prompt_token_ids"]))["choices"][0]
    assert again["text"] == "héllo 😀 wörld"


def test_the_reply_is_as_the_caller_asked_for_not_as_the_defaults(client: Client) -> None:
    """Text has 16 tokens when nothing is asked for, chat may use the room left."""
    assert body_of(client.text(ignore_eos=True))["usage"]["completion_tokens"] == 16
    assert body_of(client.text(ignore_eos=True, max_tokens=None))["usage"]["completion_tokens"] == 16
    chat = body_of(client.chat(ignore_eos=True))["usage"]
    assert chat["total_tokens"] == 1024


def test_r18_max_completion_tokens_wins(client: Client) -> None:
    body = body_of(client.chat(max_completion_tokens=2, max_tokens=50, ignore_eos=True))
    assert body["usage"]["completion_tokens"] == 2
    assert (
        body_of(client.chat(max_completion_tokens=None, max_tokens=3, ignore_eos=True))["usage"][
            "completion_tokens"
        ]
        == 3
    )


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_r62_max_tokens_with_ignore_eos_is_exact(client: Client, path: str) -> None:
    prompt = {"messages": [{"role": "user", "content": "a"}], "prompt": "a"}
    body = body_of(client.post(path, {**prompt, "max_tokens": 200, "ignore_eos": True}))
    assert body["usage"]["completion_tokens"] == 200
    assert body["choices"][0]["finish_reason"] == "length"


def test_min_tokens_is_a_lower_bound(client: Client) -> None:
    for _ in range(20):
        usage = body_of(client.chat(max_tokens=60, min_tokens=55))["usage"]
        assert 55 <= usage["completion_tokens"] <= 60


def test_numbers_may_come_as_pydantic_takes_them(client: Client) -> None:
    for one in ("1", 1.0, "1.0", True):
        assert body_of(client.chat(max_tokens=one))["usage"]["completion_tokens"] == 1, one
        assert body_of(client.text(max_tokens=one))["usage"]["completion_tokens"] == 1, one


def test_unknown_fields_are_ignored(client: Client) -> None:
    assert body_of(client.chat(max_tokens=1, best_of=5, store=True, metadata={"a": 1}, user="u"))


def test_r8_r9_content_parts_are_read_and_echoed(daemon_with: Pool) -> None:
    client = daemon_with("--mode", "echo").client
    parts = [
        {"type": "text", "text": "hey"},
        {"type": "image_url", "image_url": {"url": "http://x/y.png"}},
        {"type": "text", "text": "you"},
    ]
    assert client.chat(parts).text == "hey\nimage: http://x/y.png\nyou"


def test_the_response_role_is_an_option(daemon_with: Pool) -> None:
    client = daemon_with("--response-role", "model").client
    assert body_of(client.chat(max_tokens=1))["choices"][0]["message"]["role"] == "model"
    assert client.chat_stream(max_tokens=1)[0].json["choices"][0]["delta"]["role"] == "model"


def test_add_generation_prompt_false_goes_on_as_the_last_speaker(client: Client) -> None:
    body = body_of(client.chat(max_tokens=1, add_generation_prompt=False))
    assert body["choices"][0]["message"]["role"] == "user"


def test_chat_echo_puts_the_last_message_first(daemon_with: Pool) -> None:
    client = daemon_with().client
    messages = [{"role": "user", "content": "say"}, {"role": "assistant", "content": "Once upon "}]
    body = body_of(client.post("/v1/chat/completions", {"messages": messages, "echo": True, "max_tokens": 3}))
    assert body["choices"][0]["message"]["content"].startswith("Once upon ")
    assert len(body["choices"][0]["message"]["content"]) > len("Once upon ")


@pytest.mark.parametrize("model", ["absent", None, "", "m"])
def test_no_model_at_all_means_the_served_one(client: Client, model: str | None) -> None:
    document = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "model": model}
    if model == "absent":
        del document["model"]
    assert body_of(client.post("/v1/chat/completions", document))["model"] == "m"


def test_any_served_name_will_do_and_the_first_is_shown(daemon_with: Pool) -> None:
    client = daemon_with("--served-model-name", "first/name", "second").client
    for name in ("first/name", "second"):
        assert body_of(client.chat(model=name, max_tokens=1))["model"] == "first/name"
        assert client.text_stream(model=name, max_tokens=1)[0].json["model"] == "first/name"
    assert client.chat(model="m", max_tokens=1).status == 404


def test_models_are_listed_and_found_by_ids_with_slashes(daemon_with: Pool) -> None:
    client = daemon_with("--served-model-name", "first/name", "second").client
    listed = body_of(client.get("/v1/models"))
    assert tuple(listed) == ("object", "data")
    assert listed["object"] == "list"
    assert [card["id"] for card in listed["data"]] == ["first/name", "second"]
    for path, name in (
        ("/v1/models/first/name", "first/name"),
        ("/v1/models/first%2Fname", "first/name"),
        ("/v1/models/second", "second"),
    ):
        card = body_of(client.get(path))
        assert tuple(card) == shapes.MODEL_CARD
        assert (card["id"], card["root"], card["parent"]) == (name, "m", None)
        assert card["max_model_len"] == 1024
        (permission,) = card["permission"]
        assert tuple(permission) == shapes.PERMISSION
        assert re.fullmatch("modelperm-[0-9a-f]{16}", permission["id"])
    assert client.get("/v1/models/nobody/here").error["type"] == "NotFoundError"


def test_a_reply_in_utf8_is_not_escaped(daemon_with: Pool) -> None:
    reply = daemon_with("--mode", "echo").client.chat("日本語 ü")
    assert "日本語 ü".encode() in reply.body
    assert json.loads(reply.body)["choices"][0]["message"]["content"] == "日本語 ü"
