"""A start-up that takes its time, an engine that dies, and a configuration that is read again."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest

from tests.integration.client import eventually
from tests.integration.daemon import CONSOLE_SCRIPT, TWISTD, Daemon

pytestmark = pytest.mark.integration

CRASHES = ("--inter-token-latency", "100ms", "--max-num-seqs", "2", "--vllm-server-dev-mode")
LONG = {"prompt": "a", "max_tokens": 300, "ignore_eos": True}


@contextmanager
def starting(*flags: str) -> Iterator[Daemon]:
    """A daemon whose port is open, and which is not ready yet."""
    daemon = Daemon(*flags)
    try:
        eventually(lambda: "loading for" in daemon.stderr)
        yield daemon
    finally:
        daemon.kill()


def test_until_the_start_is_over_only_liveness_is_answered() -> None:
    began = time.monotonic()
    with starting("--startup-duration", "1500ms") as daemon:
        with daemon.client.connect() as kept:
            seen = set()
            while True:
                statuses = []
                for path in ("/health", "/health/ready", "/v1/models", "/metrics"):
                    kept.request("GET", path)
                    reply = kept.read_reply()
                    statuses.append(reply.status)
                seen.add(tuple(statuses))
                if statuses[-1] == 200:
                    break
                if reply.status == 503:
                    assert int(reply.headers["retry-after"]) in (1, 2)
                assert time.monotonic() - began < 20
                time.sleep(0.02)
            assert time.monotonic() - began > 1.5
            assert (200, 503, 503, 503) in seen
            # The start may be over between two of them.
            assert all(list(statuses[1:]) == sorted(statuses[1:], reverse=True) for statuses in seen)
            kept.post("/v1/completions", {"prompt": "a", "max_tokens": 1})
            assert kept.read_reply().status == 200
        daemon.end()


@pytest.mark.parametrize(("more", "status"), [((), 503), (("--startup-serves",), 200)])
def test_a_daemon_that_is_still_starting_ends_at_once(more: tuple[str, ...], status: int) -> None:
    with starting("--startup-duration", "10m", *more) as daemon:
        client = daemon.client
        assert [client.get(path).status for path in ("/health", "/ready")] == [200, 503]
        assert client.text(max_tokens=1).status == status
        began = time.monotonic()
        daemon.end()
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("command", [TWISTD, CONSOLE_SCRIPT], ids=["twistd", "llmdsim"])
def test_an_engine_that_dies_takes_everything_with_it(command: tuple[str, ...]) -> None:
    with Daemon(*CRASHES, command=command) as daemon:
        sdk = openai.OpenAI(base_url=f"{daemon.base_url}/v1", api_key="k", max_retries=0)
        with sdk, daemon.client.connect() as stream, ThreadPoolExecutor() as pool:
            stream.post("/v1/completions", {**LONG, "stream": True})
            stream.read_head()
            calls = [
                pool.submit(sdk.completions.create, model="m", prompt="a", max_tokens=300) for _ in range(2)
            ]
            metrics = daemon.client.metrics
            eventually(lambda: metrics().value("vllm:num_requests_waiting") == 1)
            assert metrics().value("vllm:num_requests_running") == 2
            began = time.monotonic()
            assert daemon.client.post("/admin/crash", {"message": "on purpose"}).status == 200
            for call in calls:
                with pytest.raises(openai.InternalServerError) as raised:
                    call.result()
                assert raised.value.status_code == 500
                assert raised.value.type == "InternalServerError"
            *_, error, done = stream.events()
            assert (error.json["error"]["code"], done.data) == (500, "[DONE]")
        assert daemon.wait() == 1
        assert time.monotonic() - began < 5
        assert "CRITICAL crash: the engine died: on purpose" in daemon.stderr
        assert "Traceback" not in daemon.stderr
        daemon.kill()
        daemon.ended = True


def test_a_server_without_an_engine_may_be_kept() -> None:
    with Daemon(*CRASHES, environ={"VLLM_KEEP_ALIVE_ON_ENGINE_DEATH": "1"}) as daemon:
        client = daemon.client
        assert client.post("/admin/crash", {}).status == 200
        for reply in (client.text(), client.chat(stream=True)):
            assert (reply.status, reply.error["type"]) == (500, "InternalServerError")
        statuses = [client.get(path).status for path in ("/health", "/ready", "/v1/models", "/metrics")]
        assert statuses == [503, 503, 200, 200]
        time.sleep(0.3)
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 0
        daemon.kill()


def test_on_a_hangup_the_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "llmdsim.yaml"
    file.write_text("inter-token-latency: 50ms\n")
    with Daemon("--config", str(file)) as daemon:
        client = daemon.client

        def reload(text: str, told: str) -> dict[str, object]:
            file.write_text(text)
            before = daemon.stderr.count(told)
            daemon.signal(signal.SIGHUP)
            eventually(lambda: daemon.stderr.count(told) == before + 1)
            shown: dict[str, object] = client.get("/admin/config").json
            return shown

        body = {"prompt": "a", "max_tokens": 100, "ignore_eos": True, "stream": True}
        with client.connect() as stream:
            stream.post("/v1/completions", body)
            stream.read_head()
            shown = reload(
                "inter-token-latency: 1ms\nfaults: [stall]\nfault-rate: 0\n", "changed: inter-token"
            )
            assert (shown["inter-token-latency"], shown["faults"]) == ("1ms", ["stall"])
            assert list(stream.events())[-1].data == "[DONE]"
        shown = reload("inter-token-latency: 2ms\nfault-rate: 101\n", "stays as it is")
        assert shown["inter-token-latency"] == "1ms"
        shown = reload("max-num-seqs: 9\n", "need a restart to change: max-num-seqs")
        assert (shown["inter-token-latency"], shown["max-num-seqs"]) == ("0s", 5)
