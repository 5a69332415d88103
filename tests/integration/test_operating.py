"""A daemon that is paused, put to sleep and reconfigured while clients use it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import openai
import pytest

from tests.integration.client import Client, Connection
from tests.integration.daemon import Daemon

pytestmark = pytest.mark.integration

PACED = ("--time-to-first-token", "50ms", "--inter-token-latency", "50ms", "--enable-sleep-mode")
STATE = "vllm:engine_sleep_state"


@pytest.fixture(scope="module")
def operated() -> Iterator[Daemon]:
    with Daemon(*PACED, environ={"VLLM_SERVER_DEV_MODE": "1"}) as daemon:
        yield daemon


def begin(connection: Connection, tokens: int) -> None:
    body = {"messages": [{"role": "user", "content": "a"}], "stream": True, "ignore_eos": True}
    connection.post("/v1/chat/completions", {**body, "max_tokens": tokens})
    connection.read_head()


def told(client: Client, path: str, body: bytes | None = b"") -> object:
    reply = client.ask("GET" if body is None else "POST", path, body)
    assert reply.status == 200
    return reply.json


def test_a_pause_keeps_a_stream_standing_until_it_resumes(operated: Daemon) -> None:
    client = operated.client
    with client.connect() as connection:
        begin(connection, tokens=10)
        events = connection.events()
        for _ in range(4):
            next(events)
        assert told(client, "/pause?mode=keep") == {"status": "paused"}
        paused = time.monotonic()
        assert told(client, "/is_paused", None) == {"is_paused": True}
        time.sleep(0.4)
        assert told(client, "/resume") == {"status": "resumed"}
        resumed = time.monotonic()
        rest = [event for event in events if event.data != "[DONE]"]
    assert rest[-1].json["choices"][0]["finish_reason"] == "length"
    during = [event for event in rest if paused + 0.02 < event.at < resumed]
    # What the pause was overtaken by.
    assert len(during) <= 1
    assert rest[-1].at - resumed > 0.1


def test_an_sdk_sees_a_reply_that_was_cut_short_and_then_a_503(operated: Daemon) -> None:
    client = operated.client
    with openai.OpenAI(base_url=f"{operated.base_url}/v1", api_key="k", max_retries=0) as sdk:
        stream = sdk.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "a"}], stream=True, max_completion_tokens=500
        )
        next(stream)
        assert told(client, "/sleep?level=2") == {"status": "sleeping", "level": 2}
        reasons = [chunk.choices[0].finish_reason for chunk in stream]
        assert reasons[-1] == "abort"
        assert client.metrics().value(STATE, sleep_state="discard_all") == 1
        with pytest.raises(openai.InternalServerError) as raised:
            sdk.completions.create(model="m", prompt="a")
        assert raised.value.status_code == 503
        assert told(client, "/wake_up?tags=weights") == {"status": "sleeping", "tags": ["weights"]}
        assert told(client, "/wake_up?tags=kv_cache") == {"status": "awake", "tags": ["kv_cache"]}
        assert client.metrics().value(STATE, sleep_state="awake") == 1
        assert (
            sdk.completions.create(model="m", prompt="a", max_tokens=1).choices[0].finish_reason == "length"
        )


def test_the_pace_changes_at_run_time(operated: Daemon) -> None:
    client = operated.client
    shown = client.post("/admin/config", {"time-to-first-token": "0", "inter-token-latency": 2_000_000})
    assert (shown.status, shown.json["inter-token-latency"]) == (200, "2ms")
    began = time.monotonic()
    assert client.chat(max_tokens=20, ignore_eos=True).status == 200
    assert time.monotonic() - began < 0.8  # it was a second before
    assert client.post("/admin/config", {"inter-token-latency": "50ms", "port": 1}).status == 400
    assert client.get("/admin/config").json["inter-token-latency"] == "2ms"


def test_a_daemon_ends_although_it_is_paused() -> None:
    with Daemon("--time-to-first-token", "10s", "--shutdown-timeout", "1") as daemon:
        with daemon.client.connect() as connection:
            begin(connection, tokens=5)
            told(daemon.client, "/pause?mode=keep")
            began = time.monotonic()
            daemon.end()
            assert time.monotonic() - began < 4
            error, done = connection.events()
        assert (error.json["error"]["code"], done.data) == (503, "[DONE]")
