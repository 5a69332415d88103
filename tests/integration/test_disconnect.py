"""Clients that leave: slots, queue places and gauges are free at once, and aborts are counted as such."""

import socket
import time
from collections.abc import Iterator

import pytest

from tests.integration.client import Client, Connection, Metrics, eventually
from tests.integration.daemon import Daemon, Pool

pytestmark = pytest.mark.integration

#: One slot would be held by any of these requests for twenty seconds.
SLOW = ("--inter-token-latency", "100ms", "--max-num-seqs", "3")
LONG = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 200, "ignore_eos": True}
RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"


@pytest.fixture
def client(daemon_with: Pool) -> Iterator[Client]:
    client = daemon_with(*SLOW).client
    eventually(lambda: load(client) == (0, 0))
    yield client
    eventually(lambda: load(client) == (0, 0))


def load(client: Client) -> tuple[float, float]:
    metrics = client.metrics()
    return metrics.value(RUNNING), metrics.value(WAITING)


def aborted(metrics: Metrics) -> float:
    return metrics.value("vllm:request_success_total", finished_reason="abort")


def send(client: Client, **fields: object) -> Connection:
    connection = client.connect()
    connection.post("/v1/chat/completions", {**LONG, **fields})
    return connection


def free_within_a_second(client: Client) -> None:
    left = time.monotonic()
    eventually(lambda: load(client) == (0, 0), 1.0)
    assert time.monotonic() - left < 1.0


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("stream", [True, False])
def test_r40_r41_leaving_while_running(client: Client, stream: bool, n: int) -> None:
    before = client.metrics()
    connection = send(client, stream=stream, n=n)
    eventually(lambda: load(client) == (n, 0))
    if stream:
        connection.read_head()
        connection.read_until(b"data: ")
    connection.close()
    free_within_a_second(client)
    after = client.metrics()
    assert aborted(after) - aborted(before) == n
    for reason in ("length", "stop"):
        assert after.finished().get(reason) == before.finished().get(reason)
    # The slots are good for others.
    assert client.chat(n=3, max_tokens=1).status == 200


def test_r42_an_aborted_request_is_in_no_per_request_histogram(client: Client) -> None:
    """The tokens sent are counted, the request itself only as an abort."""
    before = client.metrics()
    for _ in range(2):
        connection = send(client, stream=True)
        connection.read_head()
        for _ in range(3):
            connection.read_until(b"\n\n")
        connection.close()
    free_within_a_second(client)
    after = client.metrics()
    tokens = "vllm:generation_tokens_total"
    assert after.value(tokens) - before.value(tokens) >= 4
    for histogram in ("vllm:request_generation_tokens_count", "vllm:e2e_request_latency_seconds_count"):
        assert after.value(histogram) == before.value(histogram)
    assert aborted(after) - aborted(before) == 2


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("stream", [True, False])
def test_leaving_while_queued(client: Client, stream: bool, n: int) -> None:
    before = client.metrics()
    with send(client, n=3):
        eventually(lambda: load(client) == (3, 0))
        waiting = send(client, stream=stream, n=n)
        eventually(lambda: load(client) == (3, n))
        waiting.close()
        eventually(lambda: load(client) == (3, 0), 1.0)
    free_within_a_second(client)
    assert aborted(client.metrics()) - aborted(before) == 3 + n


def test_one_that_leaves_lets_the_next_one_in(client: Client) -> None:
    with send(client, n=2):
        eventually(lambda: load(client) == (2, 0))
        leaver = send(client)
        eventually(lambda: load(client) == (3, 0))
        began = time.monotonic()
        with client.connect() as next_one:
            next_one.post("/v1/completions", {"prompt": "a", "max_tokens": 1})
            eventually(lambda: load(client) == (3, 1))
            leaver.close()
            assert next_one.read_reply().status == 200
        assert time.monotonic() - began < 3


def test_a_reset_is_a_disconnect_too(client: Client) -> None:
    connection = send(client, stream=True)
    connection.read_head()
    connection.reset()
    free_within_a_second(client)


def test_a_fin_is_a_disconnect(client: Client) -> None:
    """It cannot be told from `close()`; other servers do the same."""
    with send(client, stream=True) as connection:
        connection.read_head()
        connection.read_until(b"\n\n")
        connection.socket.shutdown(socket.SHUT_WR)
        free_within_a_second(client)
        assert b"[DONE]" not in connection.read_to_end()


def test_what_is_due_is_written_before_a_fin_aborts(daemon: Daemon) -> None:
    """A client that sends its request and closes its side at once is answered, if there is no wait."""
    with daemon.client.connect() as connection:
        connection.post("/v1/completions", {"prompt": "a", "max_tokens": 4})
        connection.socket.shutdown(socket.SHUT_WR)
        assert connection.read_reply().status == 200
        assert connection.closed_by_server()
    with daemon.client.connect() as connection:
        connection.request("GET", "/health")
        connection.socket.shutdown(socket.SHUT_WR)
        assert connection.read_reply().status == 200


def test_half_closed_clients_may_be_served(daemon_with: Pool) -> None:
    client = daemon_with("--half-close", "serve", "--inter-token-latency", "20ms").client
    for stream in (True, False):
        with client.connect() as connection:
            connection.post("/v1/completions", {"prompt": "a", "max_tokens": 5, "stream": stream})
            connection.socket.shutdown(socket.SHUT_WR)
            assert connection.read_reply().status == 200
            assert connection.closed_by_server()
    # One that is gone altogether is still noticed, at the next write.
    connection = client.connect()
    connection.post("/v1/completions", {"prompt": "a", "max_tokens": 500, "ignore_eos": True, "stream": True})
    connection.read_head()
    connection.reset()
    free_within_a_second(client)


def test_a_pipelined_request_behind_one_that_left_is_not_run(client: Client) -> None:
    before = client.metrics().value("vllm:prompt_tokens_total")
    connection = send(client)
    eventually(lambda: load(client) == (1, 0))
    connection.post("/v1/chat/completions", LONG)
    connection.close()
    free_within_a_second(client)
    assert client.metrics().value("vllm:prompt_tokens_total") - before <= 20


def test_many_that_leave_at_once(client: Client) -> None:
    before = aborted(client.metrics())
    connections = [send(client, stream=index % 2 == 0) for index in range(60)]
    eventually(lambda: load(client) == (3, 57))
    for connection in connections:
        connection.close()
    free_within_a_second(client)
    assert aborted(client.metrics()) - before == 60
