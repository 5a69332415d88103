"""OpenAI's own client over HTTP/2, in clear and over TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.integration.client import Client, Connection, eventually
from tests.integration.daemon import Pool
from tests.integration.secure import SecureClient
from tests.wire.http2.client import H2Client

pytestmark = pytest.mark.integration

FLAGS = ("--mode", "echo", "--inter-token-latency", "20ms", "--max-num-seqs", "128")
HELLO: list[Any] = [{"role": "user", "content": "one two three four five"}]
LONG: list[Any] = [{"role": "user", "content": "word " * 500}]  # repeating it takes ten seconds
BODY = b'{"prompt": "%b", "stream": true}' % (b"word " * 500)

#: HTTP/2 is known to be spoken there; it could not be agreed on in clear.
HTTP2: dict[str, Any] = {"http1": False, "http2": True, "verify": False, "trust_env": False}


@pytest.fixture(params=["http", "https"])
def client(request: pytest.FixtureRequest, daemon_with: Pool) -> Client:
    """A plain client of the daemon that the tests speak HTTP/2 to, with nothing running on it."""
    if request.param == "http":
        client = daemon_with(*FLAGS).client
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        client = SecureClient(daemon_with(*FLAGS, "--self-signed-certs").port, context)
    eventually(lambda: load(client) == (0, 0))
    return client


@pytest.fixture
def kwargs(client: Client) -> dict[str, Any]:
    """What the SDK is told of the daemon."""
    scheme = "https" if isinstance(client, SecureClient) else "http"
    url = f"{scheme}://127.0.0.1:{client.port}/v1"
    return {"base_url": url, "api_key": "none", "max_retries": 0, "timeout": 20}


def load(client: Client) -> tuple[float, float]:
    metrics = client.metrics()
    return metrics.value("vllm:num_requests_running"), metrics.value("vllm:num_requests_waiting")


def aborted(client: Client) -> float:
    return client.metrics().value("vllm:request_success_total", finished_reason="abort")


def test_whole_and_streamed(kwargs: dict[str, Any]) -> None:
    with OpenAI(**kwargs, http_client=openai.DefaultHttpxClient(**HTTP2)) as sdk:
        raw = sdk.chat.completions.with_raw_response.create(model="m", messages=HELLO)
        assert raw.http_response.http_version == "HTTP/2"
        assert raw.parse().choices[0].message.content == "one two three four five"
        stream = sdk.chat.completions.create(model="m", messages=HELLO, stream=True)
        assert stream.response.http_version == "HTTP/2"
        pieces = [chunk.choices[0].delta.content for chunk in stream if chunk.choices[0].delta.content]
        assert pieces == ["one ", "two ", "three ", "four ", "five"]
        assert sdk.models.list().data[0].id == "m"
        assert len(sdk.embeddings.create(model="m", input="a", encoding_format="float").data[0].embedding)


def test_errors_are_told_and_the_connection_goes_on(kwargs: dict[str, Any]) -> None:
    with OpenAI(**kwargs, http_client=openai.DefaultHttpxClient(**HTTP2)) as sdk:
        with pytest.raises(openai.NotFoundError, match="nobody"):
            sdk.chat.completions.create(model="nobody", messages=HELLO)
        with pytest.raises(openai.BadRequestError, match="maximum context length"):
            sdk.completions.create(model="m", prompt="word " * 1_000_000)
        with pytest.raises(openai.InternalServerError) as problem:
            sdk.completions.create(model="m", prompt="a", extra_headers={"X-Return-Error": "500"})
        stream_id = problem.value.response.extensions["stream_id"]
        assert stream_id == 5, "all three came over one connection"


def test_100_streams_share_a_connection(kwargs: dict[str, Any]) -> None:
    addresses = set()

    async def one(sdk: AsyncOpenAI, number: int) -> None:
        said = f"stream {number} " + "word " * 18
        stream = await sdk.chat.completions.create(
            model="m",
            messages=[{"role": "user", "content": said}],
            stream=True,
            stream_options={"include_usage": True},
        )
        addresses.add(stream.response.extensions["network_stream"].get_extra_info("client_addr"))
        chunks = [chunk async for chunk in stream]
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == said
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens == len(chunks) - 2 == 20

    async def scenario() -> None:
        async with AsyncOpenAI(**kwargs, http_client=openai.DefaultAsyncHttpxClient(**HTTP2)) as sdk:
            await asyncio.gather(*(one(sdk, number) for number in range(100)))

    asyncio.run(asyncio.wait_for(scenario(), 60))
    assert len(addresses) == 1


def test_a_client_that_is_closed_ends_all_that_it_asked_for(client: Client, kwargs: dict[str, Any]) -> None:
    """Closing one stream of several does not: httpx tells the server nothing of it."""
    before = aborted(client)

    async def scenario() -> None:
        async with AsyncOpenAI(**kwargs, http_client=openai.DefaultAsyncHttpxClient(**HTTP2)) as sdk:
            for _ in range(5):
                stream = await sdk.chat.completions.create(model="m", messages=LONG, stream=True)
                assert (await anext(stream)).choices[0].delta.role == "assistant"
            assert load(client) == (5, 0)

    asyncio.run(asyncio.wait_for(scenario(), 20))
    eventually(lambda: load(client) == (0, 0), 1.0)
    assert aborted(client) - before == 5


class Wire:
    """A connection to a daemon, as `H2Client` has those in memory."""

    transport = None

    def __init__(self, connection: Connection) -> None:
        self._socket = connection.socket
        self._socket.settimeout(None)  # or Python would wait in spite of MSG_DONTWAIT
        self._received = b""

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    @property
    def received(self) -> bytes:
        """All that has come so far."""
        try:
            while data := self._socket.recv(65536, socket.MSG_DONTWAIT):
                self._received += data
        except BlockingIOError:
            pass
        return self._received


@pytest.mark.parametrize("client", ["http"], indirect=True)
def test_a_stream_that_is_reset_ends_alone(client: Client) -> None:
    before = aborted(client)
    with client.connect() as connection:
        speaker = H2Client(None, Wire(connection))  # type: ignore[arg-type]
        first, second = (
            speaker.post(BODY, b"/v1/completions", {b"content-type": b"application/json"}) for _ in range(2)
        )
        eventually(lambda: speaker.flush().answers[first].body.startswith(b"data: "))
        assert load(client) == (2, 0)
        speaker.h2.reset_stream(first)
        speaker.flush()
        eventually(lambda: load(client) == (1, 0), 1.0)
        assert aborted(client) - before == 1
        had = len(speaker.flush().answers[second].body)
        eventually(lambda: len(speaker.flush().answers[second].body) > had)
    eventually(lambda: load(client) == (0, 0), 1.0)
    assert aborted(client) - before == 2
