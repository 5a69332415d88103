"""SIGTERM and SIGINT: what runs may finish, what comes is refused, and the exit code is 0."""

import signal
import socket
import time

import pytest

from tests.integration.client import Connection, eventually
from tests.integration.daemon import CONSOLE_SCRIPT, TWISTD, Daemon

pytestmark = pytest.mark.integration

#: Takes about a second.
STREAM = {"prompt": "a", "max_tokens": 20, "ignore_eos": True, "stream": True}
PACE = ("--inter-token-latency", "50ms", "--max-num-seqs", "2")


def stream_from(daemon: Daemon) -> Connection:
    connection = daemon.client.connect()
    connection.post("/v1/completions", STREAM)
    connection.read_head()
    return connection


def drains(daemon: Daemon) -> bool:
    return daemon.client.get("/health/ready").status == 503


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("command", [TWISTD, CONSOLE_SCRIPT], ids=["twistd", "llmdsim"])
def test_what_runs_finishes_and_what_comes_is_refused(number: int, command: tuple[str, ...]) -> None:
    with Daemon(*PACE, command=command) as daemon:
        with stream_from(daemon) as running, daemon.client.connect() as kept:
            kept.request("GET", "/health")
            assert kept.read_reply().status == 200
            daemon.signal(number)
            eventually(lambda: drains(daemon))
            for reply in (daemon.client.chat(), daemon.client.chat(stream=True), daemon.client.text()):
                assert reply.status == 503
                assert reply.error["type"] == "ServiceUnavailableError"
            assert daemon.client.get("/ready").status == 503
            # Alive, and still to be observed.
            assert daemon.client.get("/health").status == 200
            assert daemon.client.metrics().value("vllm:num_requests_running") == 1
            # A connection from before is refused as well.
            kept.post("/v1/completions", {"prompt": "a"})
            assert kept.read_reply().status == 503
            events = list(running.events())
            assert events[-1].data == "[DONE]"
            assert len(events) == 21
        assert daemon.wait() == 0


def test_what_waits_in_the_queue_finishes_too() -> None:
    with Daemon("--inter-token-latency", "20ms", "--max-num-seqs", "1") as daemon:
        with stream_from(daemon) as first, stream_from(daemon) as queued:
            daemon.signal(signal.SIGTERM)
            for connection in (first, queued):
                events = list(connection.events())
                assert events[-1].data == "[DONE]"
                assert len(events) == 21
        assert daemon.wait() == 0


def test_an_idle_daemon_ends_at_once() -> None:
    with Daemon() as daemon, daemon.client.connect() as idle:
        idle.request("GET", "/health")
        assert idle.read_reply().status == 200
        began = time.monotonic()
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 0
        assert time.monotonic() - began < 5
        assert idle.closed_by_server()


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(second: int) -> None:
    with Daemon("--inter-token-latency", "1s") as daemon, stream_from(daemon) as running:
        daemon.signal(signal.SIGTERM)
        eventually(lambda: drains(daemon))
        began = time.monotonic()
        daemon.signal(second)
        assert daemon.wait() == 0
        assert time.monotonic() - began < 5
        running.read_to_end()


def test_the_time_for_draining_is_bounded() -> None:
    with Daemon("--inter-token-latency", "1s", "--shutdown-timeout", "300ms") as daemon:
        with stream_from(daemon) as running, daemon.client.connect() as whole:
            whole.post("/v1/completions", {**STREAM, "stream": False})
            eventually(lambda: daemon.client.metrics().value("vllm:num_requests_running") == 2)
            began = time.monotonic()
            daemon.signal(signal.SIGTERM)
            events = list(running.events())
            assert 0.29 < time.monotonic() - began < 5
            # Whoever is cut off is told so.
            assert events[-1].data == "[DONE]"
            assert events[-2].json["error"]["code"] == 503
            assert whole.read_reply().error["code"] == 503
        assert daemon.wait() == 0


def test_a_client_that_never_reads_does_not_hold_up_the_end() -> None:
    flags = ("--mode", "echo", "--max-model-len", "400k", "--shutdown-timeout", "1s")
    with Daemon(*flags) as daemon, daemon.client.connect() as sleeper:
        sleeper.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sleeper.post("/v1/completions", {"prompt": "word " * 40_000, "stream": True})
        time.sleep(0.3)
        daemon.signal(signal.SIGTERM)
        assert daemon.wait(10) == 0
