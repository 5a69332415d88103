"""Several tokens in one delta: where deltas end, and that their streams say what others say."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdsim.engine.pacing import BURST
from llmdsim.web.deltas import MOST_JOINED, last_end, spans
from tests.web.anthropic import answers as anthropic
from tests.web.anthropic.requests import MESSAGES
from tests.web.clients import CHAT, TEXT, choices_of, events, finishes, reply_of, request, said, watched
from tests.web.generate.asking import GENERATE
from tests.web.responses import events as responses
from tests.web.rig import RankRig
from tests.web.test_slow_readers import read_on
from tests.wire.channel import Client

RESPONSES = "/v1/responses"
PACED = ("--time-to-first-token", "1s", "--inter-token-latency", "1s")
PACES = pytest.mark.parametrize("pace", [(), PACED], ids=["at once", "paced"])
INTERVALS = pytest.mark.parametrize("interval", [2, 3, 7, 1000])
TOOL = {
    "name": "weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "array", "items": {"type": "integer"}}},
        "required": ["city", "days"],
    },
}
CHAT_TOOL = {"type": "function", "function": TOOL}
HELLO = [{"role": "user", "content": "one two three"}]
USAGE = {"stream_options": {"include_usage": True}}
CONTINUOUS = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
LOGPROBS = {"logprobs": True, "top_logprobs": 2}
SAYS = "--mode=echo"
THINKS = "--reasoning-parser=any"


# --- where deltas end


@given(st.integers(1, 9), st.integers(0, 60), st.integers(0, 60))
def test_spans_are_the_same_however_they_are_asked_for(interval: int, some: int, more: int) -> None:
    first, stop = sorted((last_end(some, interval), more))
    found = spans(0, stop, interval)
    assert [step for span in found for step in range(*span)] == list(range(stop))
    assert [end - start for start, end in found[1:-1]] == [interval] * len(found[1:-1])
    assert found[:1] == ([(0, 1)] if stop else [])
    assert all(end - start <= interval for start, end in found)
    if last_end(first, interval) == first:
        assert spans(0, first, interval) + spans(first, stop, interval) == found


@given(st.integers(1, 9), st.integers(0, 60))
def test_a_delta_ends_where_it_is_complete(interval: int, steps: int) -> None:
    complete = [end for start, end in spans(0, 100, interval) if end <= steps and end < 100]
    assert last_end(steps, interval) == max(complete, default=0)


# --- streams


def stream(rig: RankRig, path: str, body: dict[str, Any]) -> Client:
    client = watched(rig).send(request(path, {"stream": True, "seed": 3, **body}))
    for _ in range(400):
        if rig.rank.engine.idle and not rig.rank.context.turns.busy:
            break
        rig.clock.advance(1.0)
    rig.settle()
    reply = reply_of(client)
    assert (reply.status, reply.complete) == (200, True), reply.body
    return client


def of_choices(body: bytes) -> Any:
    """What all frames of a stream of OpenAI's chunks say together, and their last usage."""
    found: dict[int, Any] = {}
    frames = events(body)
    for choice in choices_of(frames):
        mine = found.setdefault(choice["index"], {"calls": {}, "listed": [], "ids": [], "prompt_ids": []})
        delta = choice.get("delta", choice)
        if isinstance(delta.get("content"), list):
            for part in delta.pop("content"):
                mine["image"] = mine.get("image", 0) + (part["type"] == "image_url")
                mine["content"] += part.get("text", "")
        for key in ("content", "reasoning", "text"):
            mine[key] = mine.get(key, "") + (delta.get(key) or "")
        for call in delta.get("tool_calls", ()):
            known = mine["calls"].setdefault(call["index"], {"arguments": ""})
            assert ("id" in call) == ("name" not in known)
            known["name"] = call["function"].get("name") or known["name"]
            known["arguments"] += call["function"]["arguments"]
        listed = choice["logprobs"] or {}
        for key, values in listed.items():
            assert isinstance(values, list), key
        mine["listed"].append(listed)
        mine["ids"] += choice.get("token_ids") or []
        mine["prompt_ids"] += choice.get("prompt_token_ids") or []
        if choice["finish_reason"] is not None:
            mine["end"] = [choice["finish_reason"], choice.get("stop_reason")]
    for mine in found.values():
        keys = {key for listed in mine["listed"] for key in listed}
        mine["listed"] = {
            key: [value for listed in mine["listed"] for value in listed.get(key, ())] for key in keys
        }
    return found, [frame.get("usage") for frame in frames[:-1]][-1]


def of_message(body: bytes) -> Any:
    made = anthropic.assembled(anthropic.events(body))
    for block in made["content"]:
        block.pop("id", None)
        block.pop("signature", None)
    return {key: value for key, value in made.items() if key != "id"}


def of_response(body: bytes) -> Any:
    """Each item's deltas put together, with the log probabilities of its text, and the usage."""
    found = responses.parse(body)
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    texts: dict[int, Any] = {}
    for event in found:
        if event["type"].endswith(".delta"):
            text, listed = texts.setdefault(event["output_index"], ["", []])
            texts[event["output_index"]] = [text + event["delta"], listed + event.get("logprobs", [])]
    last = found[-1]["response"]
    told = [(item["type"], item.get("arguments"), item.get("content")) for item in last["output"]]
    for _, _, content in told:
        for part in content or ():
            for entry in part.get("logprobs") or ():
                entry.pop("bytes", None)
    return texts, told, last["usage"], last["status"]


#: What is asked for, how the server is set up for that, and what is made of the stream.
CASES: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    "chat": (CHAT, (), {"messages": HELLO, **USAGE}),
    "chat n": (CHAT, (), {"messages": HELLO, "n": 3, **USAGE}),
    "chat ids": (CHAT, (), {"messages": HELLO, "return_token_ids": True}),
    "chat logprobs": (CHAT, (), {"messages": HELLO, **LOGPROBS, **CONTINUOUS}),
    "chat stop": (CHAT, (SAYS,), {"messages": [{"role": "user", "content": "a bc" * 9}], "stop": ["c" * 9]}),
    "chat stopped": (CHAT, (SAYS,), {"messages": [{"role": "user", "content": "a b c d e"}], "stop": "d"}),
    "chat tools": (CHAT, (), {"messages": HELLO, "tools": [CHAT_TOOL], "tool_choice": "required", **USAGE}),
    "chat all": (
        CHAT,
        (THINKS, "--tool-call-extra-call-probability=100"),
        {"messages": HELLO, "tools": [CHAT_TOOL], "return_token_ids": True, **LOGPROBS, **CONTINUOUS},
    ),
    "chat thinks": (CHAT, (THINKS,), {"messages": HELLO, **CONTINUOUS}),
    "chat image": (CHAT, ("--omni", "--image-emission-rate=100"), {"messages": HELLO, **USAGE}),
    "text": (TEXT, (), {"prompt": "one two"}),
    "text batch": (TEXT, (), {"prompt": ["one two", "three"], "n": 2, "logprobs": 2, **CONTINUOUS}),
    "text echo": (TEXT, (), {"prompt": "one two", "echo": True, "logprobs": 1, "return_token_ids": True}),
    "text prompt": (TEXT, (), {"prompt": "one two", "echo": True, "logprobs": 1, "max_tokens": 0}),
    "text made": (TEXT, (), {"prompt": "a", "structured_outputs": {"regex": "([0-9] ){9}(yes|no)"}}),
    "tokens": (GENERATE, (), {"token_ids": [1, 2], "sampling_params": {"max_tokens": 20, "seed": 3}}),
    "tokens all": (
        GENERATE,
        (),
        {
            "token_ids": [1, 2],
            "sampling_params": {"max_tokens": 20, "seed": 3, "n": 2, "logprobs": 1},
            "output_mode": "text",
            **CONTINUOUS,
        },
    ),
    "message": (MESSAGES, (), {"messages": HELLO, "max_tokens": 20}),
    "message all": (
        MESSAGES,
        (THINKS, "--tool-call-extra-call-probability=100", "--max-model-len=4000"),
        {
            "messages": HELLO,
            "max_tokens": 2000,
            "tools": [{"name": "w", "input_schema": TOOL["parameters"]}],
            "thinking": {"type": "enabled", "budget_tokens": 1024},
        },
    ),
    "response": (RESPONSES, (), {"input": "one two", "max_output_tokens": 20}),
    "response all": (
        RESPONSES,
        (THINKS, "--tool-call-extra-call-probability=100"),
        {
            "input": "one two",
            "tools": [{"type": "function", **TOOL}],
            "include": ["message.output_text.logprobs"],
            "top_logprobs": 2,
        },
    ),
    "response thinks": (
        RESPONSES,
        (THINKS,),
        {"input": "one", "include": ["message.output_text.logprobs"], "top_logprobs": 2},
    ),
}


@cache
def told(name: str, *flags: str) -> tuple[Any, bytes]:
    path, more, body = CASES[name]
    if path == MESSAGES:
        body = {"model": "m", **body}
    elif path in (CHAT, TEXT) and "max_tokens" not in body:
        body = {"max_tokens": 400 if "tools" in body else 20, **body}
    data = reply_of(stream(RankRig("--seed", "1", *more, *flags), path, body)).body
    read = {MESSAGES: of_message, RESPONSES: of_response}.get(path, of_choices)
    return read(data), data


@pytest.mark.parametrize("name", CASES)
@PACES
@INTERVALS
def test_all_that_is_said_is_the_same(name: str, pace: tuple[str, ...], interval: int) -> None:
    single, frames = told(name)
    joined, fewer = told(name, "--stream-interval", str(interval), *pace)
    assert joined == single
    assert len(fewer) < len(frames) or name == "text prompt"


@pytest.mark.parametrize("path", [CHAT, TEXT, GENERATE])
@PACES
@pytest.mark.parametrize(("tokens", "sizes"), [(1, [1]), (2, [1, 1]), (7, [1, 3, 3]), (9, [1, 3, 3, 2])])
def test_the_first_token_goes_alone_and_then_so_many_together(
    path: str, pace: tuple[str, ...], tokens: int, sizes: list[int]
) -> None:
    params = {"max_tokens": tokens, "ignore_eos": True}
    body: dict[str, Any] = {"token_ids": [1], "sampling_params": params}
    if path != GENERATE:
        body = {**params, "return_token_ids": True, "n": 2, "prompt": "a", "messages": HELLO}
        del body["messages" if path == TEXT else "prompt"]
    rig = RankRig("--stream-interval", "3", *pace)
    choices = choices_of(events(reply_of(stream(rig, path, body)).body))
    for index in {choice["index"] for choice in choices}:
        mine = [choice for choice in choices if choice["index"] == index]
        assert [len(choice["token_ids"]) for choice in mine if choice.get("token_ids")] == sizes


def test_each_delta_leaves_when_its_last_token_is_due() -> None:
    rig = RankRig("--stream-interval", "3", *PACED)
    client = watched(rig).send(
        request(TEXT, {"prompt": "a", "max_tokens": 6, "ignore_eos": True, "stream": True})
    )
    writes = []
    for _ in range(7):
        before = len(client.transport.writes)  # type: ignore[attr-defined]
        rig.clock.advance(1.0)
        writes.append(len(client.transport.writes) - before)  # type: ignore[attr-defined]
    assert writes == [1, 0, 0, 1, 0, 1, 0]


@pytest.mark.parametrize(
    ("server", "asked", "sizes"),
    [(1, 4, [1, 4, 4, 1]), (2, 4, [1, 4, 4, 1]), (4, 2, [1, 4, 4, 1]), (1, None, [1] * 10)],
)
@pytest.mark.parametrize("path", [TEXT, GENERATE])
def test_a_request_may_have_more_of_them_together_and_not_fewer(
    path: str, server: int, asked: int | None, sizes: list[int]
) -> None:
    params = {"max_tokens": 10, "ignore_eos": True, "stream_interval": asked}
    body = {"prompt": "a", "return_token_ids": True, **params}
    if path == GENERATE:
        body = {"token_ids": [1], "sampling_params": params}
    rig = RankRig("--stream-interval", str(server))
    choices = choices_of(events(reply_of(stream(rig, path, body)).body))
    assert [len(choice["token_ids"]) for choice in choices] == sizes


def test_an_interval_without_a_stream_means_nothing() -> None:
    rig = RankRig("--stream-interval", "3")
    client = watched(rig).send(
        request(TEXT, {"prompt": "a", "max_tokens": 6, "ignore_eos": True, "stream_interval": 9})
    )
    assert json.loads(reply_of(client).body)["usage"]["completion_tokens"] == 6


@pytest.mark.parametrize(("listed", "most"), [(0, MOST_JOINED), (20, MOST_JOINED // 22)])
def test_no_delta_takes_long(listed: int, most: int) -> None:
    rig = RankRig("--stream-interval", str(10**18), "--max-model-len", "8000")
    more = {"logprobs": True, "top_logprobs": listed} if listed else {}
    body = {"messages": HELLO, "max_tokens": 3000, "ignore_eos": True, "return_token_ids": True, **more}
    choices = choices_of(events(reply_of(stream(rig, CHAT, body)).body))
    counts = [len(choice.get("token_ids") or ()) for choice in choices]
    assert most <= max(counts) <= MOST_JOINED // (1 + listed)
    assert sum(counts) == 3000


@pytest.mark.parametrize("interval", [2, 100, BURST + 1])
@pytest.mark.parametrize("n", [1, 2])
def test_slow_readers_get_the_same_deltas(interval: int, n: int) -> None:
    def frames(pause: bool) -> list[list[Any]]:
        rig = RankRig("--stream-interval", str(interval))
        client = watched(rig)
        if pause:
            client.transport.stop_reading()
        body = {"prompt": "a", "max_tokens": 700, "ignore_eos": True, "stream": True, "seed": 1, "n": n}
        client.send(request(TEXT, {**body, "return_token_ids": True}))
        rig.clock.pump([0.01] * 9)
        if pause:
            read_on(client)
            rig.clock.pump([0.01] * 99)
        assert reply_of(client).complete
        found = choices_of(events(reply_of(client).body))
        return [[choice for choice in found if choice["index"] == index] for index in range(n)]

    assert frames(True) == frames(False)


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_a_stream_that_is_cut_short_has_all_that_was_due(path: str) -> None:
    rig = RankRig("--stream-interval", "4", *PACED)
    body = {"messages": HELLO} if path == CHAT else {"prompt": "a"}
    client = watched(rig).send(
        request(path, {**body, "max_tokens": 9, "ignore_eos": True, "stream": True, **USAGE})
    )
    rig.clock.pump([1.0] * 4)
    before = said(events(reply_of(client).body))
    rig.rank.context.suspension.pause("abort", False)
    frames = events(reply_of(client).body)
    assert finishes(frames) == [(0, "abort")]
    assert said(frames).startswith(before)
    assert len(said(frames)) > len(before)
    assert frames[-2]["usage"]["completion_tokens"] == 4


def test_events_of_a_response_in_the_background_have_the_same_numbers_for_all() -> None:
    rig = RankRig("--stream-interval", "3", *PACED)
    body = {"input": "one", "max_output_tokens": 12, "background": True, "stream": True}
    client = watched(rig).send(request(RESPONSES, body))
    rig.clock.pump([1.0] * 5)
    (response_id,) = {
        event["response"]["id"] for event in responses.parse(reply_of(client).body) if "response" in event
    }
    path = f"{RESPONSES}/{response_id}?stream=true"
    late = watched(rig).send(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    rig.clock.pump([1.0] * 12)
    whole = responses.parse(reply_of(client).body)
    assert [event["sequence_number"] for event in whole] == list(range(len(whole)))
    assert responses.parse(reply_of(late).body) == whole
    kinds = [event["type"] for event in whole]
    tokens = whole[-1]["response"]["usage"]["output_tokens"]
    assert kinds.count("response.output_text.delta") == len(spans(0, tokens, 3))


def test_deltas_of_tools_name_a_call_once_however_many_tokens_they_take() -> None:
    for interval in range(2, 40, 5):
        rig = RankRig("--stream-interval", str(interval), "--seed", "1")
        body = {"messages": HELLO, "tools": [CHAT_TOOL], "tool_choice": "required", "max_tokens": 400}
        for choice in choices_of(events(reply_of(stream(rig, CHAT, body)).body)):
            indexes = [call["index"] for call in choice["delta"].get("tool_calls", ())]
            assert all(later > earlier for earlier, later in pairwise(indexes))
