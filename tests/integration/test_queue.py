"""Slots, the queue, and 429 when both are full."""

import threading
import time

import pytest

from tests.integration.client import Client, Connection, eventually
from tests.integration.daemon import Pool

pytestmark = pytest.mark.integration

LONG = {"prompt": "a", "max_tokens": 200, "ignore_eos": True, "stream": True}


def load(client: Client) -> tuple[float, float]:
    metrics = client.metrics()
    return metrics.value("vllm:num_requests_running"), metrics.value("vllm:num_requests_waiting")


def hold(client: Client, **fields: object) -> Connection:
    connection = client.connect()
    connection.post("/v1/completions", {**LONG, **fields})
    return connection


@pytest.fixture
def narrow(daemon_with: Pool) -> Client:
    """One slot, two places in the queue."""
    client = daemon_with(
        "--max-num-seqs", "1", "--max-waiting-queue-length", "2", "--inter-token-latency", "20ms"
    ).client
    eventually(lambda: load(client) == (0, 0))
    return client


def test_r20_gauges_are_true(narrow: Client) -> None:
    with hold(narrow), hold(narrow):
        eventually(lambda: load(narrow) == (1, 1))
        assert narrow.get("/load").json == {"server_load": 2}


def test_r52_a_full_queue_is_429_with_retry_after(narrow: Client) -> None:
    with hold(narrow), hold(narrow), hold(narrow):
        eventually(lambda: load(narrow) == (1, 2))
        for stream in (False, True):
            for reply in (narrow.chat(stream=stream), narrow.text(stream=stream)):
                assert reply.status == 429
                assert int(reply.headers["retry-after"]) >= 1
                assert reply.error["type"] == "RateLimitError"
                assert "waiting requests queue is full" in reply.error["message"]
        assert load(narrow) == (1, 2)
        # Everything else is answered.
        assert narrow.get("/health").status == 200
    eventually(lambda: load(narrow) == (0, 0))
    assert narrow.text(max_tokens=1).status == 200


def test_choices_are_all_taken_or_none(narrow: Client) -> None:
    assert narrow.text(n=4, max_tokens=1).status == 429
    assert load(narrow) == (0, 0)
    reply = narrow.text(n=3, max_tokens=1)
    assert reply.status == 200
    assert len(reply.json["choices"]) == 3
    with hold(narrow), hold(narrow):
        eventually(lambda: load(narrow) == (1, 1))
        assert narrow.text(n=2, max_tokens=1).status == 429
        assert load(narrow) == (1, 1)


def test_r25_a_limit_of_zero_means_no_waiting(daemon_with: Pool) -> None:
    client = daemon_with(
        "--max-num-seqs", "1", "--max-waiting-queue-length", "0", "--inter-token-latency", "50ms"
    ).client
    eventually(lambda: load(client) == (0, 0))
    with hold(client):
        eventually(lambda: load(client) == (1, 0))
        refused = client.text()
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
    eventually(lambda: load(client) == (0, 0))
    assert client.text(max_tokens=1).status == 200


def test_limits_are_503_over_a_connection_that_goes_on(daemon_with: Pool) -> None:
    flags = ("--max-num-queued-reqs", "2", "--max-num-queued-tokens", "3", "--time-to-first-token", "300ms")
    client = daemon_with(*flags).client
    name = "vllm:admission_rejections_total"
    before = client.metrics()
    with client.connect() as connection:

        def refusal(**fields: object) -> str:
            connection.post("/v1/completions", {"prompt": "a", **fields})
            reply = connection.read_reply()
            assert (reply.status, reply.error["type"]) == (503, "Service Unavailable")
            assert "connection" not in reply.headers
            return str(reply.error["message"])

        with hold(client, prompt="a b c"):
            eventually(lambda: load(client) == (1, 0))
            assert "--max-num-queued-tokens" in refusal()
            assert "--max-num-queued-reqs" in refusal(n=2, stream=True)
        eventually(lambda: load(client) == (0, 0))
        connection.post("/v1/completions", {"prompt": "a b c d", "max_tokens": 1})
        assert connection.read_reply().status == 200
    after = client.metrics()
    for reason in ("max_num_queued_reqs", "max_num_queued_tokens"):
        assert after.value(name, reason=reason) - before.value(name, reason=reason) == 1


def test_the_least_priority_is_served_first(daemon_with: Pool) -> None:
    pace = ("--time-to-first-token", "100ms", "--inter-token-latency", "50ms")
    client = daemon_with("--max-num-seqs", "1", "--scheduling-policy", "priority", *pace).client
    eventually(lambda: load(client) == (0, 0))
    with hold(client) as running:
        eventually(lambda: load(client) == (1, 0))
        waiting = []
        for place, (priority, header) in enumerate([(5, {}), (0, {}), (5, {"X_Vllm_Priority": "-1"})], 1):
            connection = client.connect()
            fields = {"prompt": "a", "max_tokens": 1, "priority": priority}
            connection.post("/v1/completions", fields, **header)
            waiting.append(connection)
            eventually(lambda place=place: load(client) == (1, place))  # type: ignore[misc]
        ended: list[int] = []

        def collect(number: int) -> None:
            assert waiting[number].read_reply().status == 200
            ended.append(number)

        threads = [threading.Thread(target=collect, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        running.close()
        for thread in threads:
            thread.join(20)
    assert ended == [2, 1, 0]


def test_r78_first_come_first_served_and_never_more_than_the_slots(daemon_with: Pool) -> None:
    client = daemon_with("--max-num-seqs", "1", "--time-to-first-token", "15ms").client
    finished: list[int] = []
    connections = []
    for number in range(20):
        connection = client.connect()
        connection.post("/v1/completions", {"prompt": "a", "max_tokens": 1, "request_id": str(number)})
        connections.append(connection)
        # One connection's request may overtake another's on its way in, unless each is seen first.
        if number == 0:
            eventually(lambda: load(client)[0] == 1)
    seen: list[float] = []

    def watch() -> None:
        for _ in range(1000):
            if len(finished) == 20:
                return
            seen.append(load(client)[0])

    def collect(number: int) -> None:
        reply = connections[number].read_reply()
        finished.append(int(reply.json["id"].removeprefix("cmpl-")))

    threads = [threading.Thread(target=collect, args=(number,)) for number in range(20)]
    threads.append(threading.Thread(target=watch))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    for connection in connections:
        connection.close()
    assert sorted(finished) == list(range(20))
    assert max(seen) == 1


def test_the_queue_is_served_in_order_of_arrival(narrow: Client) -> None:
    before = time.monotonic()
    first, second, third = (
        hold(narrow, max_tokens=10),
        hold(narrow, max_tokens=1),
        hold(narrow, max_tokens=1),
    )
    with first, second, third:
        arrivals = []
        for connection in (first, second, third):
            connection.read_head()
            arrivals.append(list(connection.events())[-1].at)
        assert arrivals[0] - before > 0.17
        assert arrivals == sorted(arrivals)


def test_a_queued_stream_has_its_head_at_once(narrow: Client) -> None:
    with hold(narrow), hold(narrow) as queued:
        eventually(lambda: load(narrow) == (1, 1))
        queued.socket.settimeout(2)
        status, _, _ = queued.read_head()
        assert status == 200
        assert load(narrow) == (1, 1)


def test_zero_load_has_no_queue_time(narrow: Client) -> None:
    before = narrow.metrics()
    with hold(narrow, max_tokens=10) as running:
        running.read_head()
        assert narrow.text(max_tokens=1).status == 200
        assert list(running.events())[-1].data == "[DONE]"
    after = narrow.metrics()
    name = "vllm:request_queue_time_seconds"
    assert after.value(f"{name}_count") - before.value(f"{name}_count") == 2
    # The first did not wait; the second waited for nine gaps of 20 ms, less what it took to ask.
    assert 0.05 < after.value(f"{name}_sum") - before.value(f"{name}_sum") < 2
