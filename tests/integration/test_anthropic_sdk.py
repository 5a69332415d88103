"""The Anthropic SDK against a real daemon: sync and async, streamed and not, and its exceptions."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from typing import Any

import anthropic
import jsonschema
import pytest
from anthropic import Anthropic, AsyncAnthropic
from anthropic.types import Message, RawMessageStreamEvent, ToolUseBlock
from pydantic import TypeAdapter

from tests.integration.client import eventually
from tests.integration.daemon import Daemon, Pool

pytestmark = pytest.mark.integration

HELLO: list[Any] = [{"role": "user", "content": "Hello there, how are you?"}]
WEATHER: Any = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city", "days"],
    },
}
ECHO = ("--mode", "echo")
EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


def sdk_for(daemon: Daemon, retries: int = 0) -> Anthropic:
    return Anthropic(base_url=daemon.base_url, api_key="none", max_retries=retries, timeout=15)


@pytest.fixture(scope="module")
def sdk(daemon_with: Pool) -> Iterator[Anthropic]:
    with sdk_for(daemon_with()) as client:
        yield client


@pytest.fixture(scope="module")
def echo(daemon_with: Pool) -> Iterator[Anthropic]:
    with sdk_for(daemon_with(*ECHO)) as client:
        yield client


def text_of(message: Message) -> str:
    """The text of a message, which must be just what the SDK's types say."""
    Message.model_validate(message.model_dump(warnings="error"), strict=True)
    return "".join(block.text for block in message.content if block.type == "text")


def test_a_message(echo: Anthropic) -> None:
    message = echo.messages.create(model="m", max_tokens=50, messages=HELLO)
    assert text_of(message) == HELLO[0]["content"]
    assert (message.type, message.role, message.model) == ("message", "assistant", "m")
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    usage = message.usage
    assert (usage.cache_creation_input_tokens, usage.cache_read_input_tokens) == (0, 0)
    count = echo.messages.count_tokens(model="m", messages=HELLO)
    assert count.input_tokens == usage.input_tokens


def test_a_stream(echo: Anthropic) -> None:
    with echo.messages.stream(model="m", max_tokens=50, messages=HELLO) as stream:
        assert "".join(stream.text_stream) == HELLO[0]["content"]
        final = stream.get_final_message()
    assert text_of(final) == HELLO[0]["content"]
    whole = echo.messages.create(model="m", max_tokens=50, messages=HELLO)
    assert (final.stop_reason, final.usage) == (whole.stop_reason, whole.usage)
    events = list(echo.messages.create(model="m", max_tokens=50, messages=HELLO, stream=True))
    for event in events:
        EVENT.validate_python(event.model_dump(warnings="error"))
    assert [event.type for event in events][:2] == ["message_start", "content_block_start"]
    assert [event.type for event in events][-3:] == ["content_block_stop", "message_delta", "message_stop"]


def test_options(echo: Anthropic) -> None:
    message = echo.messages.create(
        model="m",
        max_tokens=50,
        messages=[{"role": "user", "content": "one two END three"}],
        stop_sequences=["END"],
        system=[{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}],
        metadata={"user_id": "u"},
        service_tier="auto",
        extra_body={"temperature": 0.5, "top_k": 3, "top_p": 0.9},
    )
    assert text_of(message) == "one two "
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "END")
    cut = echo.messages.create(model="m", max_tokens=2, messages=HELLO)
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 2)


def test_a_long_conversation_of_every_kind_of_block(echo: Anthropic) -> None:
    messages: list[Any] = [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is on these?"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
                {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"city": "Bern"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "sun"}]},
                {"type": "text", "text": "And now?"},
            ],
        },
    ]
    asked: Any = {"model": "m", "messages": messages, "system": "Be kind.", "tools": [WEATHER]}
    asked["tool_choice"] = {"type": "none"}
    message = echo.messages.create(max_tokens=50, **asked)
    assert text_of(message) == "And now?"
    assert echo.messages.count_tokens(**asked).input_tokens == message.usage.input_tokens


ALWAYS = ("--tool-call-extra-call-probability", "100")


def use_of(message: Message) -> ToolUseBlock:
    """The one call of a message."""
    (use,) = (block for block in message.content if block.type == "tool_use")
    assert message.stop_reason == "tool_use"
    jsonschema.validate(use.input, WEATHER["input_schema"])
    return use


@pytest.mark.parametrize("streamed", [False, True])
def test_a_loop_with_a_tool(sdk: Anthropic, streamed: bool) -> None:
    asked: Any = {"model": "m", "max_tokens": 300, "tools": [WEATHER], "messages": list(HELLO)}

    def ask(**more: Any) -> Message:
        if not streamed:
            return sdk.messages.create(**asked, **more)
        with sdk.messages.stream(**asked, **more) as stream:
            return stream.get_final_message()

    first = ask(tool_choice={"type": "tool", "name": "get_weather"})
    use = use_of(first)
    Message.model_validate(first.model_dump(warnings="error"), strict=True)
    result = {"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": "sun"}]}
    asked["messages"] += [
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]
    last = ask(tool_choice={"type": "none"})
    assert text_of(last)
    assert last.stop_reason in ("end_turn", "max_tokens")


def test_calls_of_the_models_own_choice(daemon_with: Pool) -> None:
    with sdk_for(daemon_with(*ALWAYS)) as sdk:
        asked: Any = {"model": "m", "max_tokens": 300, "tools": [WEATHER], "messages": HELLO}
        use_of(sdk.messages.create(**asked))
        with sdk.messages.stream(**asked) as stream:
            pieces = [event.partial_json for event in stream if event.type == "input_json"]
            use = use_of(stream.get_final_message())
        assert json.loads("".join(pieces)) == use.input
        assert len(pieces) > 1


def test_thinking(daemon_with: Pool) -> None:
    flags = ("--reasoning-parser", "qwen3", "--max-model-len", "4096")
    with sdk_for(daemon_with(*flags)) as sdk:
        asked: Any = {"model": "m", "max_tokens": 2000, "messages": list(HELLO)}
        asked["thinking"] = {"type": "enabled", "budget_tokens": 1024}
        message = sdk.messages.create(**asked)
        assert [block.type for block in message.content] == ["thinking", "text"]
        assert text_of(message)
        for event in sdk.messages.create(**asked, stream=True):
            EVENT.validate_python(event.model_dump(warnings="error"))
        with sdk.messages.stream(**asked) as stream:
            final = stream.get_final_message()
        thought, _ = final.content
        assert thought.type == "thinking"
        assert thought.thinking
        assert thought.signature
        asked["messages"] += [{"role": "assistant", "content": final.content}, *HELLO]
        assert text_of(sdk.messages.create(**asked))


def test_structured_output(sdk: Anthropic) -> None:
    schema = WEATHER["input_schema"]
    message = sdk.messages.create(
        model="m",
        max_tokens=300,
        messages=HELLO,
        output_config={"format": {"type": "json_schema", "schema": schema}},
    )
    jsonschema.validate(json.loads(text_of(message)), schema)


def test_errors_are_the_sdks_exceptions(sdk: Anthropic) -> None:
    ask: Any = {"model": "m", "max_tokens": 9, "messages": HELLO}
    with pytest.raises(anthropic.NotFoundError) as unknown:
        sdk.messages.create(**{**ask, "model": "nobody"})
    assert unknown.value.type == "not_found_error"
    for wrong in (
        {"model": ""},
        {"max_tokens": 0},
        {"messages": []},
        {"extra_body": {"temperature": 3}},
        {"stop_sequences": [""]},
    ):
        for stream in (False, True):
            with pytest.raises(anthropic.BadRequestError) as bad:
                sdk.messages.create(**{**ask, **wrong}, stream=stream)
            assert bad.value.type == "invalid_request_error"
    with pytest.raises(anthropic.BadRequestError, match="input_schema"):
        sdk.messages.create(**ask, tools=[{"type": "web_search_20250305", "name": "web_search"}])
    with pytest.raises(anthropic.NotFoundError):
        sdk.messages.count_tokens(model="nobody", messages=HELLO)
    with pytest.raises(anthropic.NotFoundError):
        sdk.post("/v1/messages/batches", cast_to=object, body={})


def test_a_full_server_is_a_rate_limit_error(daemon_with: Pool) -> None:
    flags = ("--max-num-seqs", "1", "--max-waiting-queue-length", "0", "--inter-token-latency", "50ms", *ECHO)
    said: Any = [{"role": "user", "content": "word " * 15}]
    with sdk_for(daemon_with(*flags)) as sdk, sdk_for(daemon_with(*flags), retries=3) as patient:
        running = sdk.messages.create(model="m", max_tokens=50, messages=said, stream=True)
        next(iter(running))
        with pytest.raises(anthropic.RateLimitError) as full:
            sdk.messages.create(model="m", max_tokens=1, messages=HELLO)
        assert full.value.type == "rate_limit_error"
        # One that heeds Retry-After gets through.
        assert text_of(patient.messages.create(model="m", max_tokens=1, messages=HELLO)) == "Hello "
        running.close()


def test_a_client_that_leaves_frees_its_slot(daemon_with: Pool) -> None:
    daemon = daemon_with("--inter-token-latency", "50ms", *ECHO)
    with sdk_for(daemon) as sdk:
        said: Any = [{"role": "user", "content": "word " * 200}]
        with sdk.messages.stream(model="m", max_tokens=500, messages=said) as stream:
            next(iter(stream))
            assert daemon.client.metrics().value("vllm:num_requests_running") == 1
        eventually(lambda: daemon.client.metrics().value("vllm:num_requests_running") == 0)


def test_a_server_that_goes_down_is_overloaded_and_ends_streams_with_an_error() -> None:
    flags = ("--inter-token-latency", "100ms", "--shutdown-timeout", "1s", *ECHO)
    with Daemon(*flags) as daemon, sdk_for(daemon) as sdk:
        said: Any = [{"role": "user", "content": "word " * 200}]
        running = sdk.messages.create(model="m", max_tokens=500, messages=said, stream=True)
        next(iter(running))
        daemon.process.send_signal(signal.SIGTERM)
        eventually(lambda: daemon.client.get("/ready").status == 503)
        with pytest.raises(anthropic.InternalServerError) as refused:
            sdk.messages.create(model="m", max_tokens=1, messages=HELLO)
        assert (refused.value.status_code, refused.value.type) == (503, "overloaded_error")
        with pytest.raises(anthropic.APIStatusError) as cut_off:
            list(running)
        assert cut_off.value.type == "overloaded_error"


def test_the_async_client(daemon_with: Pool) -> None:
    async def scenario(base_url: str) -> None:
        async with AsyncAnthropic(base_url=base_url, api_key="none", max_retries=0, timeout=15) as sdk:
            said: list[Any] = [
                [{"role": "user", "content": f"stream {number} " + "word " * 30}] for number in range(20)
            ]

            async def one(messages: Any) -> Message:
                async with sdk.messages.stream(model="m", max_tokens=90, messages=messages) as stream:
                    return await stream.get_final_message()

            finals = await asyncio.gather(*map(one, said))
            assert [text_of(final) for final in finals] == [messages[0]["content"] for messages in said]

    asyncio.run(asyncio.wait_for(scenario(daemon_with(*ECHO).base_url), 30))
