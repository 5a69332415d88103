"""Tool calls, structured output and reasoning through the OpenAI SDK, against a real daemon."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel, Field

from tests.integration.daemon import Pool
from tests.integration.test_openai_sdk import HELLO, sdk_for

pytestmark = pytest.mark.integration


class Step(BaseModel):
    explanation: str = Field(min_length=1)
    output: str | None


class Solution(BaseModel):
    steps: list[Step] = Field(min_length=1, max_length=3)
    answer: int = Field(ge=10, le=20)
    mood: Literal["good", "bad"]


class GetWeather(BaseModel):
    """The weather somewhere."""

    city: str
    unit: Literal["celsius", "fahrenheit"]
    days: int = Field(ge=1, le=7)


TOOL: Any = openai.pydantic_function_tool(GetWeather)


@pytest.fixture(scope="module")
def sdk(daemon_with: Pool) -> Iterator[OpenAI]:
    with sdk_for(daemon_with("--max-model-len", "4096")) as client:
        yield client


def test_r2_a_tool_made_of_a_model_is_called_with_what_it_takes(sdk: OpenAI) -> None:
    for seed in range(10):
        reply = sdk.chat.completions.parse(
            model="m", messages=HELLO, tools=[TOOL], tool_choice="required", seed=seed
        )
        assert reply.choices[0].finish_reason == "tool_calls"
        calls = reply.choices[0].message.tool_calls
        assert calls
        for call in calls:
            arguments = call.function.parsed_arguments
            assert isinstance(arguments, GetWeather)
            assert 1 <= arguments.days <= 7


def test_r39_the_sdks_stream_helper_puts_calls_together(sdk: OpenAI) -> None:
    with sdk.chat.completions.stream(
        model="m", messages=HELLO, tools=[TOOL], tool_choice="required", seed=5
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "tool_calls.function.arguments.delta" in kinds
    assert "tool_calls.function.arguments.done" in kinds
    (choice,) = final.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls
    assert isinstance(choice.message.tool_calls[0].function.parsed_arguments, GetWeather)


def test_a_conversation_with_tool_results_goes_on(sdk: OpenAI) -> None:
    first = sdk.chat.completions.create(model="m", messages=HELLO, tools=[TOOL], tool_choice="required")
    message = first.choices[0].message
    assert message.tool_calls
    results = [{"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in message.tool_calls]
    history: Any = [*HELLO, message.to_dict(), *results]
    second = sdk.chat.completions.create(model="m", messages=history, tools=[TOOL], tool_choice="none")
    assert second.choices[0].message.content
    assert second.usage
    assert first.usage
    assert second.usage.prompt_tokens > first.usage.prompt_tokens


def test_a_named_choice_and_no_choice(sdk: OpenAI) -> None:
    named: Any = {"type": "function", "function": {"name": "GetWeather"}}
    reply = sdk.chat.completions.create(model="m", messages=HELLO, tools=[TOOL], tool_choice=named)
    assert reply.choices[0].finish_reason == "stop"
    assert reply.choices[0].message.tool_calls
    reply = sdk.chat.completions.create(model="m", messages=HELLO, tools=[TOOL], tool_choice="none")
    assert reply.choices[0].message.tool_calls is None


def test_r38_an_impossible_choice_is_a_bad_request(sdk: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        sdk.chat.completions.create(model="m", messages=HELLO, tool_choice="required")
    assert refused.value.param == "tool_choice"


def test_structured_output_parses_into_its_model(sdk: OpenAI) -> None:
    for seed in range(10):
        reply = sdk.chat.completions.parse(model="m", messages=HELLO, response_format=Solution, seed=seed)
        assert isinstance(reply.choices[0].message.parsed, Solution)
    with sdk.chat.completions.stream(model="m", messages=HELLO, response_format=Solution, seed=3) as stream:
        for _ in stream:
            pass
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Solution)


def test_vllms_own_constraints(sdk: OpenAI) -> None:
    extra = {"structured_outputs": {"choice": ["red", "green"]}}
    reply = sdk.chat.completions.create(model="m", messages=HELLO, extra_body=extra)
    assert reply.choices[0].message.content in ("red", "green")
    text = sdk.completions.create(
        model="m", prompt="x", max_tokens=60, extra_body={"guided_json": Solution.model_json_schema()}
    )
    assert text.choices[0].finish_reason == "length" or Solution.model_validate_json(text.choices[0].text)


def test_reasoning_is_apart(daemon_with: Pool) -> None:
    with sdk_for(daemon_with("--reasoning-parser", "qwen3")) as sdk:
        reply = sdk.chat.completions.create(model="m", messages=HELLO, max_tokens=200)
        message: Any = reply.choices[0].message
        assert message.reasoning
        assert message.reasoning == message.reasoning_content
        assert reply.usage
        assert reply.usage.completion_tokens_details
        assert reply.usage.completion_tokens_details.reasoning_tokens
        stream = sdk.chat.completions.create(
            model="m",
            messages=HELLO,
            max_tokens=200,
            stream=True,
            response_format={"type": "json_object"},
        )
        deltas: Any = [chunk.choices[0].delta for chunk in stream]
        assert "".join(getattr(delta, "reasoning", None) or "" for delta in deltas)
        assert type(json.loads("".join(delta.content or "" for delta in deltas))) is dict
