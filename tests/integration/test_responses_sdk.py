"""The OpenAI SDK's Responses against a real daemon: typed, streamed, parsed, kept and cancelled."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import openai
import pydantic
import pytest
from openai import OpenAI
from openai.types.responses import Response

from tests.integration.daemon import Daemon, Pool
from tests.integration.test_openai_sdk import async_sdk_for, sdk_for

pytestmark = pytest.mark.integration

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"],
        "additionalProperties": False,
    },
}
SLOW = ("--time-to-first-token", "20ms", "--inter-token-latency", "20ms", "--mode", "echo")
THINKING = ("--reasoning-parser", "qwen3", "--seed", "7")


class Event(pydantic.BaseModel):
    name: str
    participants: list[str]
    day: int


@pytest.fixture(scope="module")
def sdk(daemon_with: Pool) -> Iterator[OpenAI]:
    with sdk_for(daemon_with()) as client:
        yield client


def checked(response: Response) -> Response:
    """The response, all of which is of its type (the SDK itself does not look)."""
    document = json.loads(response.to_json(exclude_unset=False))
    # vLLM's last event has calls and reasoning by themselves; both are in the SDK's union of items.
    Response.model_validate(document)
    assert response.object == "response"
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    assert response.usage.input_tokens_details.cached_tokens == 0
    return response


def test_text_in_and_out(sdk: OpenAI) -> None:
    response = checked(
        sdk.responses.create(
            model="m",
            input="Hello there",
            instructions="Be brief.",
            metadata={"a": "b"},
            temperature=0.5,
            max_output_tokens=200,
        )
    )
    assert response.output_text
    assert (response.instructions, response.metadata, response.temperature) == ("Be brief.", {"a": "b"}, 0.5)
    assert response.status in ("completed", "incomplete")
    assert response.max_output_tokens == 200
    assert response.error is None


INPUTS: dict[str, Any] = {
    "text": "Hello there",
    "messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
    "parts": [{"role": "user", "content": [{"type": "input_text", "text": "Hello"}]}],
    "image": [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "What is this?"},
                {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"},
            ],
        }
    ],
    "calls": [
        {"role": "user", "content": "What is the weather?"},
        {"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": '{"city": "Rome"}'},
        {"type": "function_call_output", "call_id": "c", "output": "fine"},
    ],
    "custom calls": [
        {"type": "custom_tool_call", "call_id": "c", "name": "run", "input": "ls"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "a b"},
    ],
    "reasoning": [
        {"role": "user", "content": "Why?"},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "So."}]},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Because.", "annotations": []}],
        },
        {"role": "user", "content": "Oh."},
    ],
}


@pytest.mark.parametrize("form", INPUTS)
def test_every_form_of_input(sdk: OpenAI, form: str) -> None:
    response = checked(sdk.responses.create(model="m", input=INPUTS[form], max_output_tokens=20))
    assert [item.type for item in response.output] == ["message"]


def test_what_came_out_goes_in_again(sdk: OpenAI) -> None:
    conversation: Any = [{"role": "user", "content": "Hello"}]
    for _ in range(3):
        response = checked(sdk.responses.create(model="m", input=conversation, max_output_tokens=20))
        conversation += response.output
        conversation.append({"role": "user", "content": "Go on"})
    assert len(conversation) == 7


def test_an_agents_loop_ends(sdk: OpenAI) -> None:
    conversation: Any = [{"role": "user", "content": "What is the weather in Rome?"}]
    choice: Any = "required"
    for turn in range(2):
        response = checked(
            sdk.responses.create(model="m", input=conversation, tools=[WEATHER], tool_choice=choice)
        )
        choice = "auto"
        calls = [item for item in response.output if item.type == "function_call"]
        assert bool(calls) == (turn == 0)
        for call in calls:
            assert call.name == "get_weather"
            assert call.status == "completed"
            arguments = json.loads(call.arguments)
            assert isinstance(arguments["city"], str)
            assert isinstance(arguments["days"], int)
            conversation += [
                call,
                {"type": "function_call_output", "call_id": call.call_id, "output": "fine"},
            ]
    assert response.output_text


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "function", "name": "get_weather"},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "get_weather"}]},
        {"type": "custom", "name": "run"},
    ],
)
def test_tools_that_are_chosen(sdk: OpenAI, choice: Any) -> None:
    other = {**WEATHER, "name": "other"}
    run = {"type": "custom", "name": "run", "description": "Run a command"}
    response = checked(
        sdk.responses.create(
            model="m", input="go", tools=[other, WEATHER, run], tool_choice=choice, parallel_tool_calls=False
        )
    )
    (call,) = response.output
    if choice["type"] == "custom":
        assert call.type == "custom_tool_call"
        assert (call.name, type(call.input)) == ("run", str)
        assert not call.input.startswith("{")
    else:
        assert call.type == "function_call"
        assert call.name == "get_weather"
        assert call.call_id.startswith("chatcmpl-tool-")


@pytest.mark.parametrize("required", [False, True])
def test_the_streaming_helper_gathers_what_a_whole_response_says(sdk: OpenAI, required: bool) -> None:
    fields: dict[str, Any] = {
        **{"model": "m", "input": "Hello there", "extra_body": {"seed": 11, "request_id": "one"}},
        **({"tools": [WEATHER], "tool_choice": "required"} if required else {"max_output_tokens": 50}),
    }
    whole = checked(sdk.responses.create(**fields))
    with sdk.responses.stream(**fields) as stream:
        events = list(stream)
        if whole.status == "completed":
            final = stream.get_final_response()
        else:
            assert events[-1].type == "response.incomplete"
            final = events[-1].response
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = "".join(event.delta for event in events if event.type.endswith(".delta"))
    texts = [
        item.arguments if item.type == "function_call" else item.content[0].text for item in final.output
    ]
    assert deltas == "".join(texts)
    if required:
        assert [(item.name, item.arguments) for item in final.output] == [
            (item.name, item.arguments) for item in whole.output
        ]
    else:
        assert final.output_text == whole.output_text
    assert final.usage == whole.usage


def test_raw_events_are_typed(sdk: OpenAI) -> None:
    stream = sdk.responses.create(
        model="m",
        input="Hello",
        stream=True,
        max_output_tokens=5,
        include=["message.output_text.logprobs"],
        top_logprobs=2,
        extra_body={"ignore_eos": True},
    )
    events = list(stream)
    for event in events:
        type(event).model_validate(json.loads(event.to_json(exclude_unset=False)))
    assert [event.type.removeprefix("response.") for event in events] == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *["output_text.delta"] * 5,
        *("output_text.done", "content_part.done", "output_item.done", "incomplete"),
    ]
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    assert all(len(event.logprobs) == 1 for event in deltas)
    assert events[-1].response.incomplete_details.reason == "max_output_tokens"


def test_structured_output_is_parsed(sdk: OpenAI) -> None:
    parsed = sdk.responses.parse(model="m", input="Alice and Bob meet", text_format=Event)
    assert isinstance(parsed.output_parsed, Event)
    checked(sdk.responses.create(model="m", input="x", text={"format": {"type": "json_object"}}))
    with sdk.responses.stream(model="m", input="Alice and Bob meet", text_format=Event) as stream:
        for event in stream:
            if event.type == "response.output_text.done":
                assert isinstance(event.parsed, Event)
        assert isinstance(stream.get_final_response().output_parsed, Event)


def test_functions_are_parsed(sdk: OpenAI) -> None:
    parsed = sdk.responses.parse(model="m", input="go", tools=[WEATHER], tool_choice="required")
    for item in parsed.output:
        assert item.type == "function_call"
        assert set(item.parsed_arguments) == {"city", "days"}


def test_reasoning_is_an_item_of_its_own(daemon_with: Pool) -> None:
    with sdk_for(daemon_with(*THINKING)) as sdk:
        fields: dict[str, Any] = {"model": "m", "input": "Why?", "max_output_tokens": 200}
        response = checked(sdk.responses.create(**fields, reasoning={"effort": "low"}))
        assert response.output[0].type == "reasoning"
        assert response.usage is not None
        assert response.usage.output_tokens_details.reasoning_tokens > 0
        hidden = checked(sdk.responses.create(**fields, extra_body={"include_reasoning": False}))
        assert "reasoning" not in [item.type for item in hidden.output]
        with sdk.responses.stream(**fields) as stream:
            kinds = {event.type for event in stream}
        assert "response.reasoning_text.delta" in kinds
        conversation: Any = [{"role": "user", "content": "Why?"}, *response.output]
        checked(sdk.responses.create(model="m", input=conversation))


def test_a_chain_of_responses(sdk: OpenAI) -> None:
    first = checked(sdk.responses.create(model="m", input="one two three", max_output_tokens=20))
    second = checked(
        sdk.responses.create(
            model="m", input="and", previous_response_id=first.id, max_output_tokens=20, store=True
        )
    )
    assert second.previous_response_id == first.id
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens
    with pytest.raises(openai.NotFoundError):
        sdk.responses.create(model="m", input="x", previous_response_id="resp_none")


def test_responses_are_kept_until_they_are_deleted(sdk: OpenAI) -> None:
    made = checked(sdk.responses.create(model="m", input="Hello", max_output_tokens=20))
    assert sdk.responses.retrieve(made.id) == made
    (item,) = sdk.responses.input_items.list(made.id).data
    assert item.type == "message"
    with pytest.raises(openai.BadRequestError):
        sdk.responses.cancel(made.id)
    sdk.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        sdk.responses.retrieve(made.id)


def test_a_response_in_the_background(daemon_with: Pool) -> None:
    with sdk_for(daemon_with(*SLOW)) as sdk:
        made = sdk.responses.create(model="m", input="one two three", background=True)
        assert made.status == "queued"
        seen = {made.status}
        deadline = time.monotonic() + 10
        while made.status in ("queued", "in_progress") and time.monotonic() < deadline:
            made = sdk.responses.retrieve(made.id)
            seen.add(made.status)
        assert made.output_text == "one two three"
        assert seen == {"queued", "in_progress", "completed"}


def test_a_stream_that_is_broken_off_and_taken_up_again(daemon_with: Pool) -> None:
    with sdk_for(daemon_with(*SLOW)) as sdk:
        words = " ".join(map(str, range(30)))
        stream = sdk.responses.create(model="m", input=words, background=True, stream=True)
        events = []
        for event in stream:
            events.append(event)
            if len(events) == 10:
                break
        stream.close()
        (name,) = (event.response.id for event in events if event.type == "response.created")
        rest = sdk.responses.retrieve(name, stream=True, starting_after=events[-1].sequence_number)
        events += rest
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == words
        assert events[-1].type == "response.completed"


def test_a_response_in_the_background_is_cancelled(daemon_with: Pool) -> None:
    daemon: Daemon = daemon_with(*SLOW)
    with sdk_for(daemon) as sdk:
        stream = sdk.responses.create(model="m", input="a " * 200, background=True, stream=True)
        created = next(iter(stream))
        assert created.type == "response.created"
        assert sdk.responses.cancel(created.response.id).status == "cancelled"
        *_, last = stream
        assert last.type == "response.failed"
        assert sdk.responses.retrieve(created.response.id).status == "cancelled"


def test_refusals_are_the_sdks_exceptions(sdk: OpenAI) -> None:
    for wrong, expected in (
        ({"input": [{"type": "what"}]}, openai.BadRequestError),
        ({"input": "x", "model": "other"}, openai.NotFoundError),
        ({"input": "x", "tool_choice": "required"}, openai.BadRequestError),
        ({"input": "x", "max_output_tokens": 100_000}, openai.BadRequestError),
    ):
        with pytest.raises(expected):
            sdk.responses.create(**{"model": "m", **wrong})  # type: ignore[call-overload]


def test_many_at_once_without_blocking(daemon_with: Pool) -> None:
    async def run() -> None:
        async with async_sdk_for(daemon_with(*SLOW)) as sdk:

            async def one(number: int) -> None:
                text = f"number {number} of twenty"
                async with sdk.responses.stream(model="m", input=text) as stream:
                    response = await stream.get_final_response()
                assert response.output_text == text
                assert (await sdk.responses.retrieve(response.id)).output_text == text

            await asyncio.gather(*map(one, range(20)))

    asyncio.run(run())
