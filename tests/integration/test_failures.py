"""Failures on purpose as clients meet them: sockets, the OpenAI SDK and its retries, curl, treq."""

import json
import shutil
import subprocess
import time
from collections.abc import Generator, Iterator
from itertools import count
from typing import Any

import openai
import pytest
import pytest_twisted
from openai import OpenAI

from tests.integration.client import chat_of, eventually
from tests.integration.daemon import Daemon, Pool

pytestmark = pytest.mark.integration

HELLO = [{"role": "user", "content": "Hello there, how are you?"}]
CHAT = "/v1/chat/completions"
KINDS = pytest.mark.parametrize("stream", [False, True])

#: A key of its own for each test.
keys = count()


@pytest.fixture
def sdk(daemon: Daemon) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{daemon.base_url}/v1", api_key="none", max_retries=0, timeout=10) as client:
        yield client


def ask(sdk: OpenAI, fault: str, stream: bool, **options: Any) -> list[str]:
    """The texts of a chat that meets `fault`; as many of a stream as there were before it fails."""
    texts: list[str] = []
    reply = sdk.with_options(**options).chat.completions.create(
        model="m",
        messages=HELLO,
        max_tokens=6,
        stream=stream,
        extra_headers={"X-Fault": fault},
        extra_body={"ignore_eos": True},
    )
    if stream:
        texts += [chunk.choices[0].delta.content for chunk in reply if chunk.choices]
        return [text for text in texts if text]
    return [reply.choices[0].message.content]


def received(daemon: Daemon, fault: str, stream: bool = True, **fields: Any) -> tuple[bytes, bool]:
    """Everything a plain socket is sent, and whether it ends with a reset."""
    with daemon.client.connect() as connection:
        body = chat_of("hi", stream=stream, max_tokens=6, ignore_eos=True, **fields)
        connection.post(CHAT, body, **{"X-Fault": fault})
        data = b""
        try:
            while piece := connection.socket.recv(65536):
                data += piece
        except ConnectionResetError:
            return data, True
        return data, False


def all_is_free(daemon: Daemon) -> None:
    def free() -> bool:
        metrics = daemon.client.metrics()
        return not metrics.value("vllm:num_requests_running") + metrics.value("vllm:num_requests_waiting")

    eventually(free)


# --- sockets


@KINDS
def test_r86_a_reset_without_an_answer(daemon: Daemon, stream: bool) -> None:
    assert received(daemon, "reset", stream) == (b"", True)
    assert received(daemon, "hang; for=0.2s", stream) == (b"", True)


def test_r86_a_reset_after_tokens(daemon_with: Pool) -> None:
    daemon = daemon_with("--inter-token-latency", "20ms")
    for after in (0, 2, 4):
        data, reset = received(daemon, f"reset; after={after}")
        assert reset
        assert data.count(b'"delta":{"content"') == after
        assert data.startswith(b"HTTP/1.1 200 OK\r\n")
    all_is_free(daemon)
    assert daemon.client.metrics().finished()["abort"] >= 3


@KINDS
def test_r86_a_body_that_ends_too_soon(daemon: Daemon, stream: bool) -> None:
    for fault, resets in (("truncate; after=2", False), ("reset; after=2", True)):
        data, reset = received(daemon, fault, stream)
        assert reset == resets
        head, _, body = data.partition(b"\r\n\r\n")
        assert b"200 OK" in head
        assert body
        assert not body.endswith((b"0\r\n\r\n", b"}"))
    all_is_free(daemon)


@KINDS
def test_a_client_that_leaves_while_it_is_kept_waiting(daemon: Daemon, stream: bool) -> None:
    before = daemon.client.metrics().value("llmdsim:faults_injected_total", kind="hang")
    for _ in range(3):
        with daemon.client.connect() as connection:
            connection.post(CHAT, chat_of("hi", stream=stream), **{"X-Fault": "hang"})
    eventually(
        lambda: daemon.client.metrics().value("llmdsim:faults_injected_total", kind="hang") == before + 3
    )
    all_is_free(daemon)


# --- the OpenAI SDK


@KINDS
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("reset", openai.APIConnectionError),
        ("reset; after=2", openai.APIConnectionError),
        ("truncate; after=2", openai.APIConnectionError),
        ("garble; after=2", json.JSONDecodeError),
        ("error; code=401", openai.AuthenticationError),
        ("error; code=429", openai.RateLimitError),
        ("error; after=2; code=500", openai.APIError),
        ("status; code=502", openai.InternalServerError),
    ],
)
def test_what_the_sdk_raises(sdk: OpenAI, fault: str, error: type[Exception], stream: bool) -> None:
    with pytest.raises(error):
        ask(sdk, fault, stream)


@KINDS
@pytest.mark.parametrize("fault", ["stall; for=2s", "stall; after=2; for=2s", "hang"])
def test_a_wait_is_a_timeout_to_the_sdk(sdk: OpenAI, fault: str, stream: bool) -> None:
    started = time.monotonic()
    with pytest.raises(openai.APITimeoutError):
        ask(sdk, fault, stream, timeout=0.4)
    assert time.monotonic() - started < 2


@KINDS
@pytest.mark.parametrize(
    "fault", ["stall; for=0.2s", "stall; after=2; for=0.2s", "slow-headers; for=0.2s", "slow-body; for=0.2s"]
)
def test_what_is_only_slow_is_whole(sdk: OpenAI, fault: str, stream: bool) -> None:
    started = time.monotonic()
    assert len(ask(sdk, fault, stream)) == (6 if stream else 1)
    assert time.monotonic() - started > 0.15


def test_r50_a_stream_without_its_end_or_with_an_error_in_it(sdk: OpenAI) -> None:
    assert len(ask(sdk, "no-done", stream=True)) == 6
    with pytest.raises(openai.APIError) as failed:
        ask(sdk, "error; after=2; code=503", stream=True)
    assert failed.value.body == {
        "message": "This error was injected on purpose.",
        "type": "ServiceUnavailableError",
        "param": None,
        "code": 503,
    }
    with pytest.raises(openai.InternalServerError):
        sdk.chat.completions.create(
            model="m", messages=HELLO, stream=True, extra_headers={"X-Return-Error": "500"}
        )


@pytest.mark.parametrize(
    ("fault", "stream"),
    [("status; code=503", True), ("error; code=429; retry-after=0", False), ("reset", True)],
)
def test_r86_retries_succeed_when_two_fail(sdk: OpenAI, fault: str, stream: bool) -> None:
    fault = f"{fault}; times=2; key={next(keys)}"
    assert len(ask(sdk, fault, stream, max_retries=2)) == (6 if stream else 1)
    fault = f"{fault}b"
    with pytest.raises(openai.APIError):
        ask(sdk, fault, stream, max_retries=1)
    assert ask(sdk, fault, stream)


def test_r86_retry_after_is_heeded(sdk: OpenAI) -> None:
    started = time.monotonic()
    assert ask(sdk, f"error; code=429; times=1; key={next(keys)}", False, max_retries=1)
    assert time.monotonic() - started > 0.9


# --- by chance


def test_failures_by_chance_repeat_with_the_seed(daemon_with: Pool) -> None:
    def statuses() -> list[int]:
        flags = ("--failure-injection-rate", "40", "--faults", "status; code=502", "--fault-rate", "30")
        with Daemon("--seed", "11", *flags) as daemon:
            return [daemon.client.text(max_tokens=1).status for _ in range(40)]

    first = statuses()
    assert {200, 502, 429} <= set(first)
    assert first == statuses()


# --- others


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@KINDS
@pytest.mark.parametrize(
    ("fault", "code"), [("reset", 56), ("reset; after=2", 56), ("truncate", 18), ("hang", 28), ("status", 0)]
)
def test_the_exit_code_of_curl(daemon: Daemon, fault: str, code: int, stream: bool) -> None:
    body = json.dumps({"prompt": "a", "max_tokens": 5, "ignore_eos": True, "stream": stream})
    done = subprocess.run(
        ["curl", "-sS", "--noproxy", "*", "--max-time", "1", "-H", f"X-Fault: {fault}", "-d", body,
         f"{daemon.base_url}/v1/completions"],
        capture_output=True,
        timeout=20,
        check=False,
    )  # fmt: skip
    assert done.returncode == code


@pytest_twisted.inlineCallbacks
def test_treq_sees_bodies_that_are_incomplete(daemon: Daemon) -> Generator[Any, Any, None]:
    import treq
    from twisted.internet import reactor
    from twisted.web.client import Agent, ResponseFailed, ResponseNeverReceived

    agent = Agent(reactor, connectTimeout=10)
    url = f"{daemon.base_url}/v1/completions"
    for stream in (False, True):
        body = {"prompt": "a b c", "max_tokens": 6, "ignore_eos": True, "stream": stream}
        with pytest.raises(ResponseNeverReceived):
            yield treq.post(url, json=body, headers={"X-Fault": "reset"}, agent=agent, timeout=10)
        for fault in ("truncate; after=2", "reset; after=2"):
            reply = yield treq.post(url, json=body, headers={"X-Fault": fault}, agent=agent, timeout=10)
            assert reply.code == 200
            pieces: list[bytes] = []
            with pytest.raises(ResponseFailed):
                yield treq.collect(reply, pieces.append)
            assert b"".join(pieces).count(b'"text":"') == (2 + (fault[0] == "t") if stream else 1)
