"""The OpenAI SDK against a real daemon: sync and async, streamed and not, and its exceptions."""

import asyncio
from collections.abc import Iterator

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.integration.daemon import Daemon, Pool
from tests.integration.sdk import sdk_for

pytestmark = pytest.mark.integration

HELLO = [{"role": "user", "content": "Hello there, how are you?"}]


@pytest.fixture(scope="module")
def sdk(daemon_with: Pool) -> Iterator[OpenAI]:
    with sdk_for(daemon_with()) as client:
        yield client


def async_sdk_for(daemon: Daemon) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{daemon.base_url}/v1", api_key="none", max_retries=0, timeout=15)


def test_a_chat(sdk: OpenAI) -> None:
    reply = sdk.chat.completions.create(model="m", messages=HELLO, max_tokens=9, seed=3)
    assert reply.id.startswith("chatcmpl-")
    assert reply.choices[0].message.role == "assistant"
    assert reply.choices[0].message.content
    assert reply.choices[0].finish_reason in ("stop", "length")
    assert reply.usage is not None
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens


def test_r80_r83_a_streamed_chat_says_the_same(sdk: OpenAI) -> None:
    whole = sdk.chat.completions.create(model="m", messages=HELLO, max_completion_tokens=40, seed=3)
    chunks = list(
        sdk.chat.completions.create(
            model="m",
            messages=HELLO,
            max_completion_tokens=40,
            seed=3,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == (
        whole.choices[0].message.content
    )
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason


def test_the_sdks_own_accumulator_understands_the_stream(sdk: OpenAI) -> None:
    with sdk.chat.completions.stream(model="m", messages=HELLO, max_tokens=12, seed=3) as stream:
        final = stream.get_final_completion()
    whole = sdk.chat.completions.create(model="m", messages=HELLO, max_tokens=12, seed=3)
    assert final.choices[0].message.content == whole.choices[0].message.content
    assert final.choices[0].finish_reason == whole.choices[0].finish_reason


def test_a_text_completion_streamed_and_not(sdk: OpenAI) -> None:
    whole = sdk.completions.create(model="m", prompt="Once upon a time", max_tokens=20, seed=4)
    chunks = list(
        sdk.completions.create(model="m", prompt="Once upon a time", max_tokens=20, seed=4, stream=True)
    )
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    assert all(chunk.id == chunks[0].id for chunk in chunks)


def test_several_choices(sdk: OpenAI) -> None:
    reply = sdk.chat.completions.create(model="m", messages=HELLO, n=4, max_tokens=6)
    assert [choice.index for choice in reply.choices] == [0, 1, 2, 3]
    chunks = sdk.chat.completions.create(model="m", messages=HELLO, n=4, max_tokens=6, stream=True)
    assert {choice.index for chunk in chunks for choice in chunk.choices} == {0, 1, 2, 3}


def test_stop_and_logprobs(daemon_with: Pool) -> None:
    with sdk_for(daemon_with("--mode", "echo")) as sdk:
        reply = sdk.chat.completions.create(
            model="m",
            messages=[{"role": "user", "content": "one two END three"}],
            stop=["END"],
            logprobs=True,
            top_logprobs=2,
        )
        assert reply.choices[0].message.content == "one two "
        assert reply.choices[0].finish_reason == "stop"
        logprobs = reply.choices[0].logprobs
        assert logprobs is not None
        assert logprobs.content is not None
        assert [entry.token for entry in logprobs.content][:2] == ["one ", "two "]
        assert [len(entry.top_logprobs) for entry in logprobs.content][:2] == [2, 2]


def test_models(sdk: OpenAI) -> None:
    assert [model.id for model in sdk.models.list()] == ["m"]
    assert sdk.models.retrieve("m").owned_by == "vllm"


def test_models_with_slashes(daemon_with: Pool) -> None:
    with sdk_for(daemon_with("--served-model-name", "first/name", "second")) as sdk:
        assert sdk.models.retrieve("first/name").id == "first/name"


def test_errors_are_the_sdks_exceptions(sdk: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        sdk.chat.completions.create(model="nobody", messages=HELLO)
    assert unknown.value.param == "model"
    assert unknown.value.type == "NotFoundError"
    with pytest.raises(openai.NotFoundError):
        sdk.models.retrieve("nobody")
    with pytest.raises(openai.BadRequestError) as hot:
        sdk.chat.completions.create(model="m", messages=HELLO, temperature=3)
    assert hot.value.param == "temperature"
    with pytest.raises(openai.BadRequestError):
        sdk.chat.completions.create(model="m", messages=HELLO, temperature=3, stream=True)
    with pytest.raises(openai.BadRequestError):
        sdk.completions.create(model="m", prompt="")


def test_r25_a_full_server_is_a_rate_limit_error(daemon_with: Pool) -> None:
    flags = ("--max-num-seqs", "1", "--max-waiting-queue-length", "0", "--inter-token-latency", "50ms")
    daemon = daemon_with(*flags)
    with sdk_for(daemon) as sdk, sdk_for(daemon, retries=3) as patient:
        running = sdk.chat.completions.create(
            model="m", messages=HELLO, max_tokens=20, stream=True, extra_body={"ignore_eos": True}
        )
        next(iter(running))
        with pytest.raises(openai.RateLimitError) as full:
            sdk.chat.completions.create(model="m", messages=HELLO)
        assert full.value.response.headers["retry-after"] == "1"
        # One that heeds Retry-After gets through: the stream is over within a second.
        reply = patient.chat.completions.create(model="m", messages=HELLO, max_tokens=1)
        assert reply.choices[0].message.content
        running.close()


def test_a_limit_of_the_queue_is_an_error_of_the_server_and_tried_again(daemon_with: Pool) -> None:
    flags = ("--max-num-queued-reqs", "1", "--inter-token-latency", "50ms")
    daemon = daemon_with(*flags)
    with sdk_for(daemon) as sdk, sdk_for(daemon, retries=5) as patient:
        running = sdk.chat.completions.create(
            model="m", messages=HELLO, max_tokens=10, stream=True, extra_body={"ignore_eos": True}
        )
        next(iter(running))
        with pytest.raises(openai.InternalServerError) as full:
            sdk.chat.completions.create(model="m", messages=HELLO)
        assert (full.value.status_code, full.value.type) == (503, "Service Unavailable")
        assert patient.chat.completions.create(model="m", messages=HELLO, max_tokens=1).choices
        running.close()


SILENT = (
    "--sse-keep-alive-interval",
    "40ms",
    "--time-to-first-token",
    "300ms",
    "--inter-token-latency",
    "100ms",
)


def test_comments_in_silent_streams_are_nothing_to_it(daemon_with: Pool) -> None:
    daemon = daemon_with(*SILENT)
    with sdk_for(daemon) as sdk:
        whole = sdk.chat.completions.create(model="m", messages=HELLO, max_tokens=6, seed=3)
        stream = sdk.chat.completions.create(model="m", messages=HELLO, max_tokens=6, seed=3, stream=True)
        assert "".join(c.choices[0].delta.content or "" for c in stream) == whole.choices[0].message.content
        text = sdk.completions.create(model="m", prompt="a", max_tokens=3, seed=3)
        pieces = sdk.completions.create(model="m", prompt="a", max_tokens=3, seed=3, stream=True)
        assert "".join(c.choices[0].text for c in pieces) == text.choices[0].text
    with daemon.client.connect() as connection:
        connection.post("/v1/completions", {"prompt": "a", "max_tokens": 2, "stream": True})
        assert connection.read_reply().body.count(b": keep-alive\n\n") >= 3, "there were some"


def test_several_tokens_in_a_chunk_say_the_same(daemon_with: Pool) -> None:
    with sdk_for(daemon_with("--stream-interval", "4")) as sdk:
        whole = sdk.chat.completions.create(
            model="m", messages=HELLO, max_tokens=20, seed=3, extra_body={"ignore_eos": True}
        )
        for interval, chunks in ((1, 7), (10, 4)):
            with sdk.chat.completions.stream(
                model="m",
                messages=HELLO,
                max_tokens=20,
                seed=3,
                extra_body={"stream_interval": interval, "ignore_eos": True},
            ) as stream:
                deltas = [event.delta for event in stream if event.type == "content.delta"]
            # The first token, and then the rest.
            assert len(deltas) in (chunks - 1, chunks)
            assert "".join(deltas) == whole.choices[0].message.content


def test_the_async_client(daemon: Daemon) -> None:
    async def scenario() -> None:
        async with async_sdk_for(daemon) as sdk:
            whole = await sdk.chat.completions.create(model="m", messages=HELLO, max_tokens=30, seed=3)
            stream = await sdk.chat.completions.create(
                model="m", messages=HELLO, max_tokens=30, seed=3, stream=True
            )
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
            assert text == whole.choices[0].message.content
            completion = await sdk.completions.create(model="m", prompt="a b c", max_tokens=5, seed=1)
            pieces = await sdk.completions.create(
                model="m", prompt="a b c", max_tokens=5, seed=1, stream=True
            )
            assert "".join([c.choices[0].text async for c in pieces]) == completion.choices[0].text
            with pytest.raises(openai.NotFoundError):
                await sdk.chat.completions.create(model="nobody", messages=HELLO)

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_r12_many_streams_at_once_are_all_whole(daemon_with: Pool) -> None:
    daemon = daemon_with("--mode", "echo", "--max-num-seqs", "50", "--inter-token-latency", "1ms")

    async def one(sdk: AsyncOpenAI, number: int) -> None:
        said = f"stream {number} " + "word " * 58
        stream = await sdk.chat.completions.create(
            model="m",
            messages=[{"role": "user", "content": said}],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == said
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens == len(chunks) - 2 == 60

    async def scenario() -> None:
        async with async_sdk_for(daemon) as sdk:
            await asyncio.gather(*(one(sdk, number) for number in range(100)))

    asyncio.run(asyncio.wait_for(scenario(), 60))
