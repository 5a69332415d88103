"""Streams: which frames come, in which order, and every key of each."""

import pytest

from tests.conformance import shapes
from tests.integration.client import Client, Event, keys
from tests.integration.daemon import Pool

pytestmark = pytest.mark.integration

USAGE = {"include_usage": True}
CONTINUOUS = {"include_usage": True, "continuous_usage_stats": True}


def choice_keys(event: Event) -> tuple[str, ...]:
    (choice,) = event.json["choices"]
    return tuple(choice)


def chat_text(events: list[Event], index: int = 0) -> str:
    choices = [c for e in events[:-1] for c in e.json["choices"] if c["index"] == index]
    return "".join(choice["delta"].get("content", "") for choice in choices)


def text_text(events: list[Event], index: int = 0) -> str:
    return "".join(c["text"] for e in events[:-1] for c in e.json["choices"] if c["index"] == index)


def test_a_chat_streams_role_deltas_finish_done(client: Client) -> None:
    role, *deltas, finish, done = client.chat_stream(max_tokens=6, ignore_eos=True)
    assert done.data == "[DONE]"
    assert tuple(keys(role.data)) == shapes.ROLE_FRAME
    assert choice_keys(role) == shapes.ROLE_CHOICE
    assert role.json["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert list(role.json["choices"][0]["delta"]) == ["role", "content"]
    assert (role.json["prompt_token_ids"], role.json["prompt_text"]) == (None, None)
    assert len(deltas) == 5
    for delta in deltas:
        assert tuple(keys(delta.data)) == shapes.DELTA_FRAME
        assert choice_keys(delta) == shapes.DELTA_CHOICE
        choice = delta.json["choices"][0]
        assert list(choice["delta"]) == ["content"]
        assert choice["delta"]["content"]
        assert (choice["logprobs"], choice["finish_reason"], choice["token_ids"]) == (None, None, None)
        assert delta.json["kv_transfer_params"] is None
    # With no usage frame to follow, the last frame carries the fingerprint.
    assert tuple(keys(finish.data)) == (*shapes.CHUNK, "system_fingerprint", "kv_transfer_params")
    assert choice_keys(finish) == shapes.FINISH_CHOICE
    choice = finish.json["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["stop_reason"] is None
    assert choice["delta"]["content"], "the last token's text is in the frame that ends the choice"
    assert {e.json["object"] for e in (role, *deltas, finish)} == {"chat.completion.chunk"}
    assert len({(e.json["id"], e.json["created"], e.json["model"]) for e in (role, *deltas, finish)}) == 1


def test_a_text_completion_streams_deltas_done(client: Client) -> None:
    *deltas, finish, done = client.text_stream(max_tokens=6, ignore_eos=True)
    assert done.data == "[DONE]"
    assert len(deltas) == 5
    for delta in deltas:
        assert tuple(keys(delta.data)) == shapes.DELTA_FRAME
        assert choice_keys(delta) == shapes.TEXT_FRAME_CHOICE
        choice = delta.json["choices"][0]
        assert choice["text"]
        assert {key for key, value in choice.items() if value is None} == {
            *("logprobs", "finish_reason", "stop_reason", "prompt_token_ids", "token_ids"),
            "weight_versions",
        }
    assert tuple(keys(finish.data)) == (*shapes.CHUNK, "system_fingerprint", "kv_transfer_params")
    assert choice_keys(finish) == shapes.TEXT_FRAME_CHOICE
    assert finish.json["choices"][0]["finish_reason"] == "length"
    assert {e.json["object"] for e in (*deltas, finish)} == {"text_completion"}
    assert len({(e.json["id"], e.json["created"]) for e in (*deltas, finish)}) == 1


def test_r31_r33_usage_comes_last_on_a_frame_of_its_own(client: Client) -> None:
    chat = {"cached_tokens": 0, "created_cache_tokens": 0}
    for stream, prompt_tokens, told in (
        (client.chat_stream, 8, chat),
        (client.text_stream, 3, {"cached_tokens": 0}),
    ):
        *frames, usage, done = stream("a b c", max_tokens=4, ignore_eos=True, stream_options=USAGE)
        assert done.data == "[DONE]"
        assert tuple(keys(usage.data)) == shapes.USAGE_FRAME
        assert usage.json["choices"] == []
        counts = usage.json["usage"]
        assert list(counts) == [
            *("prompt_tokens", "total_tokens", "completion_tokens", "prompt_tokens_details"),
        ]
        assert counts["prompt_tokens_details"] == told
        assert [counts[key] for key in list(counts)[:3]] == [prompt_tokens, prompt_tokens + 4, 4]
        assert usage.json["object"] == frames[0].json["object"]
        for frame in frames:
            assert "usage" not in frame.json, "absent, not null"
            assert "system_fingerprint" not in frame.json
        assert frames[-1].json["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"continuous_usage_stats": True}])
def test_r22_usage_comes_only_when_asked_for(client: Client, options: object) -> None:
    events = client.chat_stream(max_tokens=2, ignore_eos=True, stream_options=options)
    assert len(events) == 4  # role, two tokens, the end
    assert all("usage" not in event.json for event in events[:-1])


def test_r32_continuous_usage_counts_along(client: Client) -> None:
    role, *deltas, usage, _ = client.chat_stream(
        "a b c", max_tokens=3, ignore_eos=True, stream_options=CONTINUOUS
    )
    assert tuple(keys(role.data)) == (*shapes.CHUNK, "usage", "prompt_token_ids", "prompt_text")
    assert tuple(keys(deltas[0].data)) == (*shapes.CHUNK, "usage", "kv_transfer_params")
    assert tuple(keys(deltas[-1].data)) == (*shapes.CHUNK, "usage", "kv_transfer_params")
    counted = [frame.json["usage"] for frame in (role, *deltas)]
    assert [counts["completion_tokens"] for counts in counted] == [0, 1, 2, 3]
    assert [counts["total_tokens"] for counts in counted] == [8, 9, 10, 11]
    for counts in counted:
        assert list(counts) == [
            *("prompt_tokens", "total_tokens", "completion_tokens", "completion_tokens_details"),
        ]
        assert counts["completion_tokens_details"] is None
    assert usage.json["usage"]["completion_tokens"] == 3


def test_r32_continuous_usage_counts_along_in_text(client: Client) -> None:
    *deltas, usage, _ = client.text_stream("a b c", max_tokens=3, ignore_eos=True, stream_options=CONTINUOUS)
    counted = [frame.json["usage"] for frame in deltas]
    assert counted == [{"prompt_tokens": 3, "total_tokens": 3 + k, "completion_tokens": k} for k in (1, 2, 3)]
    assert list(counted[0]) == ["prompt_tokens", "total_tokens", "completion_tokens"]
    assert usage.json["usage"]["completion_tokens"] == 3


def test_the_server_may_insist_on_usage(daemon_with: Pool) -> None:
    client = daemon_with("--enable-force-include-usage").client
    events = client.chat_stream(max_tokens=2, ignore_eos=True)
    assert events[-2].json["choices"] == []
    assert events[1].json["usage"]["completion_tokens"] == 1


def test_r34_completion_tokens_are_the_tokens_sent(client: Client) -> None:
    events = client.chat_stream(max_tokens=200, ignore_eos=True, stream_options=USAGE)
    assert events[-2].json["usage"]["completion_tokens"] == 200
    assert len(events) == 1 + 200 + 2


def test_r82_the_role_comes_once_with_empty_content(client: Client) -> None:
    events = client.chat_stream(max_tokens=5, ignore_eos=True)
    deltas = [event.json["choices"][0]["delta"] for event in events[:-1]]
    assert [delta for delta in deltas if "role" in delta] == [{"role": "assistant", "content": ""}]
    assert "role" in deltas[0]


def test_r81_three_choices_end_with_one_done(client: Client) -> None:
    events = client.chat_stream(n=3, max_tokens=4, ignore_eos=True, stream_options=USAGE)
    assert [event.data for event in events].count("[DONE]") == 1
    assert events[-1].data == "[DONE]"
    frames = [event.json["choices"][0] for event in events[:-2]]
    for index in range(3):
        mine = [choice for choice in frames if choice["index"] == index]
        assert mine[0]["delta"] == {"role": "assistant", "content": ""}
        assert len(mine) == 5
        assert [choice["finish_reason"] for choice in mine] == [None] * 4 + ["length"]
    assert events[-2].json["usage"]["completion_tokens"] == 12
    assert len({event.json["id"] for event in events[:-1]}) == 1


def test_the_roles_of_all_choices_come_first(client: Client) -> None:
    """As vLLM sends them: with the first token of any choice, even if another has to wait for a slot."""
    events = client.chat_stream(n=8, max_tokens=2, ignore_eos=True)
    firsts = [event.json["choices"][0] for event in events[:8]]
    assert [choice["index"] for choice in firsts] == list(range(8))
    assert all(choice["delta"] == {"role": "assistant", "content": ""} for choice in firsts)


def test_prompts_stream_under_their_flat_index(daemon_with: Pool) -> None:
    client = daemon_with("--mode", "echo").client
    events = client.text_stream(["a b", "c d e"], n=2)
    assert [text_text(events, index) for index in range(4)] == ["a b", "a b", "c d e", "c d e"]
    assert {c["index"] for e in events[:-1] for c in e.json["choices"]} == {0, 1, 2, 3}


def test_an_echoed_prompt_comes_with_the_first_token(client: Client) -> None:
    first, *rest, _ = client.text_stream("a b c", echo=True, max_tokens=3, ignore_eos=True)
    text = first.json["choices"][0]["text"]
    assert text.startswith("a b c")
    assert len(text) > len("a b c")
    # vLLM tells the prompt's ids here without being asked.
    assert len(first.json["choices"][0]["prompt_token_ids"]) == 3
    assert len(rest) == 2
    for event in rest:
        assert event.json["choices"][0]["prompt_token_ids"] is None
        assert "a b c" not in event.json["choices"][0]["text"]


def test_a_prompt_echoed_alone_is_one_frame(client: Client) -> None:
    first, usage, _ = client.text_stream("a b c", echo=True, max_tokens=0, stream_options=USAGE)
    choice = first.json["choices"][0]
    assert choice["text"] == "a b c"
    assert choice["finish_reason"] == "length"
    assert usage.json["usage"]["completion_tokens"] == 1


def test_chat_echo_is_a_frame_between_role_and_tokens(client: Client) -> None:
    messages = [{"role": "user", "content": "say"}, {"role": "assistant", "content": "Once upon "}]
    role, echo, *deltas, _ = client.stream(
        "/v1/chat/completions",
        {"messages": messages, "echo": True, "max_tokens": 2, "ignore_eos": True},
    )
    assert "role" in role.json["choices"][0]["delta"]
    assert echo.json["choices"][0]["delta"] == {"content": "Once upon "}
    assert tuple(keys(echo.data)) == shapes.CHUNK
    assert choice_keys(echo) == shapes.ROLE_CHOICE
    assert len(deltas) == 2


def test_token_ids_of_a_stream(client: Client) -> None:
    role, *deltas, _ = client.chat_stream("a b", max_tokens=3, ignore_eos=True, return_token_ids=True)
    assert len(role.json["prompt_token_ids"]) == 7
    assert [len(delta.json["choices"][0]["token_ids"]) for delta in deltas] == [1, 1, 1]
    assert all("prompt_token_ids" not in delta.json for delta in deltas)
    first, *rest, _ = client.text_stream("a b", max_tokens=3, ignore_eos=True, return_token_ids=True)
    assert len(first.json["choices"][0]["prompt_token_ids"]) == 2
    assert [len(e.json["choices"][0]["token_ids"]) for e in (first, *rest)] == [1, 1, 1]
    assert [e.json["choices"][0]["prompt_token_ids"] for e in rest] == [None, None]


@pytest.mark.parametrize("seed", range(5))
def test_a_stream_says_what_a_whole_reply_says(client: Client, seed: int) -> None:
    whole = client.chat(seed=seed)
    streamed = client.chat_stream(seed=seed)
    assert chat_text(streamed) == whole.text
    assert streamed[-2].json["choices"][0]["finish_reason"] == whole.json["choices"][0]["finish_reason"]
    assert text_text(client.text_stream(seed=seed)) == client.text(seed=seed).text


def test_the_head_of_a_stream(client: Client) -> None:
    with client.connect() as connection:
        connection.post("/v1/completions", {"prompt": "a", "stream": True})
        status, headers, _ = connection.read_head()
        assert status == 200
        assert headers["content-type"] == "text/event-stream; charset=utf-8"
        assert headers["transfer-encoding"] == "chunked"
        assert "content-length" not in headers
        assert list(connection.events())[-1].data == "[DONE]"
        # The connection is good for another.
        connection.request("GET", "/health")
        assert connection.read_reply().status == 200
