"""curl and treq against a real daemon."""

import json
import shutil
import subprocess
from collections.abc import Generator
from typing import Any

import pytest
import pytest_twisted

from tests.integration.daemon import Daemon, Pool

pytestmark = pytest.mark.integration

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def curl(*arguments: str) -> str:
    done = subprocess.run(
        ["curl", "--silent", "--show-error", "--noproxy", "*", "--max-time", "15", *arguments],
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    return done.stdout


@needs_curl
def test_the_quick_starts_curl(daemon: Daemon) -> None:
    body = '{"model": "m", "messages": [{"role": "user", "content": "Hello!"}]}'
    said = json.loads(curl(f"{daemon.base_url}/v1/chat/completions", "-d", body))
    assert said["choices"][0]["message"]["content"]


@needs_curl
def test_the_curl_that_the_daemon_announces(daemon: Daemon) -> None:
    """The line on stderr holds a command that works as it stands."""
    (line,) = [line for line in daemon.stderr.splitlines() if "llmdsim serves" in line]
    assert f":{daemon.port}" in line
    command = line.partition(" - try: ")[2]
    assert command.startswith("curl http://localhost")
    done = subprocess.run(
        ["sh", "-c", f"{command} --silent --noproxy '*' --max-time 15"],
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    assert json.loads(done.stdout)["object"] == "chat.completion"


@needs_curl
def test_curl_with_max_tokens_and_seed_as_text(daemon_with: Pool) -> None:
    daemon = daemon_with("--served-model-name", "deepseek-ai/DeepSeek-R1-0528")
    body = """{
        "model": "deepseek-ai/DeepSeek-R1-0528",
        "prompt": "Hi, how are you?",
        "max_tokens": "1"
    }"""
    url = f"{daemon.base_url}/v1/completions"
    said = json.loads(curl(url, "-H", "Content-Type: application/json", "-d", body))
    assert said["usage"]["completion_tokens"] == 1
    assert json.loads(curl(url, "-d", body))["usage"]["completion_tokens"] == 1
    seeded = body.replace('"max_tokens": "1"', '"seed": "5917172"')
    assert json.loads(curl(url, "-d", seeded))["choices"] == json.loads(curl(url, "-d", seeded))["choices"]


@needs_curl
def test_curl_streams(daemon: Daemon) -> None:
    body = '{"prompt": "a", "max_tokens": 3, "ignore_eos": true, "stream": true}'
    out = curl("--no-buffer", f"{daemon.base_url}/v1/completions", "-d", body)
    frames = out.split("\n\n")
    assert frames[-1] == ""
    assert frames[-2] == "data: [DONE]"
    assert len(frames) == 5


@needs_curl
def test_curl_that_offers_http2_is_served_its_body(daemon: Daemon) -> None:
    body = '{"prompt": "a", "max_tokens": 1}'
    said = json.loads(curl("--http2", f"{daemon.base_url}/v1/completions", "-d", body))
    assert said["object"] == "text_completion"


@needs_curl
def test_curl_with_a_large_body_waits_for_100_continue(daemon_with: Pool) -> None:
    daemon = daemon_with("--mode", "echo", "--max-model-len", "4M")
    words = "word " * 400_000
    done = subprocess.run(
        ["curl", "-sS", "--noproxy", "*", "--max-time", "30", "-H", "Expect: 100-continue", "-d", "@-",
         "-v", f"{daemon.base_url}/v1/completions"],
        input=json.dumps({"prompt": words}),
        capture_output=True,
        text=True,
        timeout=40,
        check=True,
    )  # fmt: skip
    assert "HTTP/1.1 100 Continue" in done.stderr
    assert json.loads(done.stdout)["choices"][0]["text"] == words


@pytest_twisted.inlineCallbacks
def test_treq_streamed_and_not(daemon: Daemon) -> Generator[Any, Any, None]:
    import treq
    from twisted.internet import reactor
    from twisted.web.client import Agent, HTTPConnectionPool

    pool = HTTPConnectionPool(reactor)
    agent = Agent(reactor, connectTimeout=10, pool=pool)
    url = f"{daemon.base_url}/v1/completions"
    body = {"prompt": "a b c", "seed": 1, "max_tokens": 6}
    try:
        reply = yield treq.post(url, json=body, agent=agent, timeout=10)
        assert reply.code == 200
        whole = yield reply.json()
        pieces: list[bytes] = []
        reply = yield treq.post(url, json={**body, "stream": True}, agent=agent, timeout=10)
        assert reply.headers.getRawHeaders("content-type") == ["text/event-stream; charset=utf-8"]
        yield treq.collect(reply, pieces.append)
        *frames, done, rest = b"".join(pieces).split(b"\n\n")
        assert (done, rest) == (b"data: [DONE]", b"")
        texts = [json.loads(frame.removeprefix(b"data: "))["choices"][0]["text"] for frame in frames]
        assert "".join(texts) == whole["choices"][0]["text"]
        reply = yield treq.post(url, json={**body, "model": "nobody"}, agent=agent, timeout=10)
        assert reply.code == 404
        yield reply.content()
    finally:
        yield pool.closeCachedConnections()
