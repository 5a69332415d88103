"""When things arrive, seen from the client's socket: by order, and by bounds a busy machine keeps."""

import time

import pytest

from tests.integration.client import Client, Connection
from tests.integration.daemon import Daemon, Pool

pytestmark = pytest.mark.integration

SLOW = ("--time-to-first-token", "300ms", "--inter-token-latency", "50ms")


@pytest.fixture
def slow(daemon_with: Pool) -> Client:
    return daemon_with(*SLOW).client


def begin(connection: Connection, **fields: object) -> float:
    """Send a streamed chat; returns when it was sent."""
    body = {"messages": [{"role": "user", "content": "a"}], "stream": True, "ignore_eos": True, **fields}
    connection.post("/v1/chat/completions", body)
    return time.monotonic()


def test_r73_r77_the_head_is_early_and_the_role_comes_with_the_first_token(slow: Client) -> None:
    with slow.connect() as connection:
        sent = begin(connection, max_tokens=3)
        status, _, _ = connection.read_head()
        head_at = time.monotonic()
        assert status == 200
        role, first, second, third, done = connection.events()
        assert "role" in role.json["choices"][0]["delta"]
        assert first.json["choices"][0]["delta"]["content"]
        assert head_at - sent < 0.2, "the head waits for nothing"
        assert 0.29 < role.at - sent < 1.5
        assert first.at - role.at < 0.03, "together"
        assert second.at - first.at > 0.03
        assert third.at - second.at > 0.03
        assert done.at - third.at < 0.03
        assert third.json["choices"][0]["finish_reason"] == "length"


def test_r76_r77_one_token_an_event_each_at_its_time(slow: Client) -> None:
    with slow.connect() as connection:
        sent = begin(connection, max_tokens=10)
        connection.read_head()
        events = [e for e in connection.events() if e.data != "[DONE]"]
        tokens = [e for e in events if e.json["choices"][0]["delta"].get("content")]
        assert len(tokens) == 10
        assert len({event.at for event in tokens}) == 10, "no two in one piece"
        # The last is due 0.3 + 9 * 0.05 s after the request, and lateness does not add up.
        assert 0.74 < tokens[-1].at - sent < 2.0


def test_r74_there_are_n_minus_one_gaps(daemon_with: Pool) -> None:
    client = daemon_with("--inter-token-latency", "50ms").client
    began = time.monotonic()
    with client.connect() as connection:
        begin(connection, max_tokens=5)
        connection.read_head()
        events = list(connection.events())
    assert events[1].at - began < 0.2, "no gap before the first"
    assert 0.19 < events[-1].at - began < 1.0


def test_a_whole_reply_takes_as_long(slow: Client) -> None:
    began = time.monotonic()
    assert slow.chat(max_tokens=5, ignore_eos=True).status == 200
    assert 0.49 < time.monotonic() - began < 2.0


def test_r75_small_writes_on_a_kept_connection_are_not_delayed(daemon_with: Pool) -> None:
    """Nagle's algorithm and delayed acknowledgements would add 40 ms to each reply."""
    client = daemon_with("--time-to-first-token", "5ms").client
    with client.connect() as connection:
        began = time.monotonic()
        for _ in range(20):
            begin(connection, max_tokens=2)
            connection.read_head()
            assert len(list(connection.events())) == 4
        assert time.monotonic() - began < 20 * 0.035


def test_prefill_by_tokens(daemon_with: Pool) -> None:
    client = daemon_with("--prefill-overhead", "50ms", "--prefill-time-per-token", "2ms").client
    took = []
    for words in (1, 150):
        began = time.monotonic()
        client.text("w " * words, max_tokens=1)
        took.append(time.monotonic() - began)
    assert 0.05 < took[0] < 0.3
    assert took[1] > 0.34


def test_more_running_is_slower(daemon_with: Pool) -> None:
    client = daemon_with(
        "--inter-token-latency", "20ms", "--time-factor-under-load", "4", "--max-num-seqs", "4"
    ).client
    began = time.monotonic()
    client.chat(max_tokens=6, ignore_eos=True)
    alone = time.monotonic() - began
    began = time.monotonic()
    client.chat(n=4, max_tokens=6, ignore_eos=True)
    together = time.monotonic() - began
    assert 0.1 < alone < 0.3
    assert together > 0.35


def test_a_slow_reader_loses_nothing_and_delays_nobody() -> None:
    with Daemon("--mode", "echo", "--max-model-len", "400k", "--max-num-seqs", "2") as daemon:
        words = "word " * 40_000
        with daemon.client.connect() as sleeper:
            sleeper.post("/v1/completions", {"prompt": words, "stream": True})
            # It does not read, and its frames (8 MB) do not fit the socket.
            began = time.monotonic()
            assert daemon.client.text("other words").text == "other words"
            assert time.monotonic() - began < 5
            sleeper.read_head()
            events = list(sleeper.events())
        assert events[-1].data == "[DONE]"
        assert "".join(event.json["choices"][0]["text"] for event in events[:-1]) == words
