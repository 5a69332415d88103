"""What becomes of connections: clients that send on, send slowly, read late or not at all, offer or leave."""

import contextlib
import json
import os
import resource
import select
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.client import Client, Connection, eventually, request_bytes
from tests.integration.daemon import TWISTD, Daemon, Pool

pytestmark = pytest.mark.integration

TEXT = "/v1/completions"
GET = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
CLOSE = {"Connection": "close"}
RUNNING = "vllm:num_requests_running"


def body(**fields: object) -> bytes:
    return json.dumps({"prompt": "a b", "max_tokens": 2, "ignore_eos": True, **fields}).encode()


def rss(daemon: Daemon) -> float:
    """Megabytes of memory it has."""
    status = Path(f"/proc/{daemon.process.pid}/status")
    if not status.exists():
        pytest.skip("no /proc here")
    (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024


# --- clients that send on


@pytest.fixture
def echo(daemon_with: Pool) -> Client:
    return daemon_with("--mode", "echo", "--max-model-len", "2000k").client


def test_a_reply_survives_what_is_sent_behind_connection_close(echo: Client) -> None:
    """Closing with unread input resets the connection, and what the kernel had still to send is gone."""
    prompt = "x" * 3_000_000
    sent = request_bytes("POST", TEXT, json.dumps({"prompt": prompt}).encode(), CLOSE)
    with echo.connect(narrow=True) as connection:
        connection.send(sent + GET * 20_000)
        connection.send(GET * 20_000)
        time.sleep(0.3)
        reply = connection.read_reply()
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        assert reply.text == prompt
        assert connection.closed_by_server()


@pytest.mark.parametrize("chunked", [True, False])
def test_a_client_that_sends_on_reads_why_it_was_refused(daemon_with: Pool, chunked: bool) -> None:
    client = daemon_with("--max-request-body-size-mb", "1").client
    with client.connect() as connection:
        framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: 20000000"
        connection.send(b"POST /v1/completions HTTP/1.1\r\nHost: t\r\n" + framing + b"\r\n\r\n")
        piece = b"x" * 65536
        for _ in range(300):
            connection.send(b"10000\r\n" + piece + b"\r\n" if chunked else piece)
        assert connection.read_reply().status == 413
        assert connection.closed_by_server()


def test_the_body_limit_is_64_megabytes_unless_said_otherwise(client: Client) -> None:
    with client.connect() as connection:
        head = b"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: %d\r\n\r\n"
        connection.send(head % ((64 << 20) + 1))
        assert connection.read_reply().status == 413
    with client.connect() as connection:
        connection.send(head % (64 << 20))
        connection.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.read_reply()


def test_a_bad_request_behind_a_slow_one_waits_its_turn(daemon_with: Pool) -> None:
    client = daemon_with("--time-to-first-token", "300ms", "--inter-token-latency", "50ms").client
    with client.connect() as connection:
        began = time.monotonic()
        connection.send(
            request_bytes("POST", TEXT, body(stream=True))
            + request_bytes("GET", "/version")
            + b"nonsense\r\n\r\n"
            + GET
        )
        connection.read_head()
        assert list(connection.events())[-1].data == "[DONE]"
        assert time.monotonic() - began > 0.29
        assert connection.read_reply().status == 200
        assert connection.read_reply().status == 400
        assert connection.closed_by_server()


# --- what clients offer and expect


@pytest.mark.parametrize("chunked", [True, False])
def test_an_offer_of_http_2_is_passed_over(client: Client, chunked: bool) -> None:
    """As `curl --http2` and the JDK's client make it."""
    offer = (
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"
    )
    data = body(echo=True)
    framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % len(data)
    framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data) if chunked else data
    with client.connect() as connection:
        message = b"POST /v1/completions HTTP/1.1\r\nHost: t\r\n" + offer + framing + b"\r\n\r\n" + framed
        connection.send(message * 2 + GET)
        for _ in range(2):
            reply = connection.read_reply()
            assert (reply.status, reply.text[:3]) == (200, "a b")
        assert connection.read_reply().status == 200
        connection.send(GET)
        assert connection.read_reply().status == 200


EXPECT = {"Expect": "100-continue"}


def test_continue_waits_for_the_reply_to_the_request_before(daemon_with: Pool) -> None:
    client = daemon_with("--time-to-first-token", "300ms", "--inter-token-latency", "50ms").client
    data = body()
    with client.connect() as connection:
        began = time.monotonic()
        connection.send(request_bytes("POST", TEXT, data))
        connection.send(request_bytes("POST", TEXT, data, EXPECT)[: -len(data)])
        assert connection.read_reply().status == 200
        assert time.monotonic() - began > 0.29
        assert connection.read_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.send(data)
        assert connection.read_reply().status == 200


def test_http_1_0_is_not_told_to_continue(client: Client) -> None:
    data = body()
    with client.connect() as connection:
        connection.send(request_bytes("POST", TEXT, data, EXPECT, version="1.0")[: -len(data)])
        connection.socket.settimeout(0.1)
        with pytest.raises(TimeoutError):
            connection.read_head()
        connection.socket.settimeout(15)
        connection.send(data)
        assert connection.read_reply().status == 200


def test_a_prompt_of_a_megabyte_of_token_ids(daemon_with: Pool) -> None:
    client = daemon_with("--mode", "echo", "--max-model-len", "2000k").client
    ids = [index % 1000 for index in range(260_000)]
    data = json.dumps({"prompt": ids, "max_tokens": 1}).encode()
    assert len(data) > 1_000_000
    reply = client.ask("POST", TEXT, data)
    assert (reply.status, reply.json["usage"]["prompt_tokens"]) == (200, len(ids))


# --- clients that leave

#: What is sent before a client leaves, and what it waits for first.
POINTS = {
    "nothing": b"",
    "in a head": GET[:-2],
    "in a body": request_bytes("POST", TEXT, body())[:-3],
    "in a chunk": b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{",
    "running": request_bytes("POST", TEXT, body(max_tokens=400)),
    "streaming": request_bytes("POST", TEXT, body(max_tokens=400, stream=True)),
    "pipelined": GET + request_bytes("POST", TEXT, body(max_tokens=400, stream=True)) + GET,
    "after the reply": GET,
    "refused": b"nonsense\r\n\r\n",
}


@pytest.mark.parametrize("half_close", ["abort", "serve"])
def test_wherever_a_client_leaves_nothing_is_left_behind(daemon_with: Pool, half_close: str) -> None:
    daemon = daemon_with("--half-close", half_close, "--inter-token-latency", "20ms", "--max-num-seqs", "2")
    client = daemon.client
    client.get("/health")
    descriptors = f"/proc/{daemon.process.pid}/fd"
    before = len(os.listdir(descriptors)) if os.path.isdir(descriptors) else 0
    # With `serve`, one that is gone is taken for one that waits, until the first write to it fails.
    tokens = b"400" if half_close == "abort" else b" 20"
    for point, message in POINTS.items():
        sent = message.replace(b"400", tokens)
        for leave in (Connection.close, Connection.reset):
            # The third of those that generate waits in the queue.
            connections = [client.connect() for _ in range(3)]
            for connection in connections:
                connection.send(sent)
                if point in ("after the reply", "refused", "pipelined"):
                    connection.read_reply()
            if point in ("streaming", "pipelined"):
                connections[0].read_until(b"data: ")
            elif point == "running":
                eventually(lambda: client.metrics().value("vllm:num_requests_waiting") == 1)
            for connection in connections:
                leave(connection)
            eventually(lambda: client.get("/load").json == {"server_load": 0}, 2.0)
    assert client.get("/health").status == 200
    if before:
        # Those that were refused linger, unless their FIN came.
        eventually(lambda: len(os.listdir(descriptors)) <= before + 2)


@pytest.mark.parametrize("leave", [Connection.close, Connection.reset])
def test_a_client_that_leaves_with_too_much_pipelined_is_noticed(
    daemon_with: Pool, leave: Callable[[Connection], None]
) -> None:
    """Though it is not read from meanwhile."""
    client = daemon_with("--keep-alive-timeout", "300ms", "--time-to-first-token", "10s").client
    connection = client.connect()
    connection.send(request_bytes("POST", TEXT, body(n=7)) + GET * 5000)
    eventually(lambda: client.get("/load").json == {"server_load": 7})
    leave(connection)
    eventually(lambda: client.get("/load").json == {"server_load": 0})


@pytest.mark.parametrize("half_close", ["abort", "serve"])
def test_a_fin_between_and_after_requests(daemon_with: Pool, half_close: str) -> None:
    client = daemon_with(
        "--half-close", half_close, "--inter-token-latency", "20ms", "--max-num-seqs", "2"
    ).client
    for sent, replies in ((b"", 0), (GET[:-2], 0), (GET, 1), (GET * 3, 3), (GET + GET[:-2], 1)):
        with client.connect() as connection:
            connection.send(sent)
            connection.socket.shutdown(socket.SHUT_WR)
            for _ in range(replies):
                assert connection.read_reply().status == 200
            assert connection.closed_by_server()
    with client.connect() as connection:
        connection.send(request_bytes("POST", TEXT, body(max_tokens=5, stream=True)) + GET)
        connection.socket.shutdown(socket.SHUT_WR)
        if half_close == "serve":
            assert connection.read_head()[0] == 200
            assert list(connection.events())[-1].data == "[DONE]"
            assert connection.read_reply().status == 200
            assert connection.closed_by_server()
        else:
            assert b"[DONE]" not in connection.read_to_end()


# --- clients that take their time


@pytest.fixture
def impatient(daemon_with: Pool) -> Client:
    """Times connections out after a third of a second."""
    return daemon_with("--keep-alive-timeout", "300ms", "--time-to-first-token", "800ms").client


@pytest.mark.parametrize("point", ["in a head", "in a body", "in a chunk"])
def test_a_stalled_request_is_408_and_the_end(impatient: Client, point: str) -> None:
    with impatient.connect() as connection:
        connection.send(POINTS[point])
        began = time.monotonic()
        reply = connection.read_reply()
        assert (reply.status, reply.headers["connection"]) == (408, "close")
        assert 0.2 < time.monotonic() - began < 3
        assert connection.closed_by_server()


def test_a_head_that_drips_is_408_however_lively(impatient: Client) -> None:
    with impatient.connect() as connection:
        connection.send(b"GET /health HTTP/1.1\r\nHost: a\r\nX: ")
        connection.socket.settimeout(0.03)
        for _ in range(100):
            connection.send(b"a")
            with contextlib.suppress(TimeoutError):
                assert connection.read_reply().status == 408
                break
        else:
            raise AssertionError("three seconds, and it may drip on")


def test_a_body_that_comes_slowly_is_waited_for(impatient: Client) -> None:
    sent = request_bytes("POST", "/nowhere", b"x" * 10)
    with impatient.connect() as connection:
        connection.send(sent[:-10])
        for byte in sent[-10:]:
            time.sleep(0.05)
            connection.send(bytes([byte]))
        assert connection.read_reply().status == 404


def test_idle_connections_end_and_those_with_a_request_do_not(impatient: Client) -> None:
    with impatient.connect() as idle, impatient.connect() as busy:
        busy.request("POST", TEXT, body(max_tokens=1))
        assert idle.closed_by_server()
        # Its first token takes more than twice the time-out.
        assert select.select([busy.socket], [], [], 0)[0] == []
        assert busy.read_reply().status == 200
        assert busy.closed_by_server()


# --- clients that do not read


def test_replies_are_whole_when_they_are_read_at_last_and_memory_stays() -> None:
    with Daemon("--mode", "echo", "--max-model-len", "400k") as daemon:
        client = daemon.client
        words = "word " * 20_000
        streamed = request_bytes("POST", TEXT, json.dumps({"prompt": words, "stream": True}).encode())
        whole = request_bytes("POST", TEXT, json.dumps({"prompt": words}).encode())
        client.ask("POST", TEXT, json.dumps({"prompt": words}).encode())
        before = rss(daemon)
        with contextlib.ExitStack() as stack:
            sleepers = [stack.enter_context(client.connect(narrow=True)) for _ in range(40)]
            for sleeper in sleepers[:20]:
                sleeper.send(streamed)
            for sleeper in sleepers[20:]:
                sleeper.send(whole + GET * 1000)
            eventually(lambda: sum(client.metrics().finished().values()) == 41)
            # The prompt, its reply and what is pipelined; a stream's 5 MB are not made before they are read.
            assert rss(daemon) - before < 40 * 2.0
            began = time.monotonic()
            assert client.get("/health").status == 200
            assert time.monotonic() - began < 2
            for sleeper in (sleepers[0], sleepers[19]):
                sleeper.read_head()
                events = list(sleeper.events())
                assert (len(events), events[-1].data) == (20_001, "[DONE]")
            assert sleepers[20].read_reply().text == words
            for _ in range(1000):
                assert sleepers[20].read_reply().status == 200


def test_a_reader_that_trickles_has_it_all_and_holds_nobody_up(echo: Client) -> None:
    with echo.connect(narrow=True) as slow:
        slow.request("POST", TEXT, json.dumps({"prompt": "word " * 3000, "stream": True}).encode(), CLOSE)
        received = b""
        for _ in range(20):
            received += slow.socket.recv(1000)
            began = time.monotonic()
            assert echo.get("/health").status == 200
            assert time.monotonic() - began < 1
        while data := slow.socket.recv(65536):
            received += data
    assert received.count(b"data: ") == 3001
    assert received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


# --- many


@pytest.fixture
def many_files() -> Iterator[None]:
    """As many open files as this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_more_connections_than_open_files_are_turned_away_until_some_leave() -> None:
    few = ("sh", "-c", 'ulimit -n 60; exec "$@"', "sh", *TWISTD)
    with Daemon(command=few) as daemon, contextlib.ExitStack() as stack:
        client = daemon.client
        served = 0
        connections = [stack.enter_context(client.connect()) for _ in range(100)]
        for connection in connections:
            with contextlib.suppress(ConnectionError, EOFError):
                connection.send(GET)
                served += connection.read_reply().status == 200
        assert 30 < served < 60
        stack.close()
        eventually(lambda: alive(client))


def alive(client: Client) -> bool:
    with contextlib.suppress(ConnectionError, EOFError):
        return client.get("/health").status == 200
    return False


@pytest.mark.usefixtures("many_files")
def test_two_thousand_idle_connections_cost_little_and_hold_nobody_up() -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 2200:
        pytest.skip("too few open files are allowed here")
    with Daemon() as daemon:
        client = daemon.client
        client.chat(max_tokens=1)
        before = rss(daemon)
        with contextlib.ExitStack() as stack:
            idle = [stack.enter_context(client.connect()) for _ in range(2000)]
            for connection in idle[:1000]:
                connection.send(GET)
            for connection in idle[:1000]:
                assert connection.read_reply().status == 200
            # About 5 kB each.
            assert rss(daemon) - before < 2000 * 10 / 1024
            began = time.monotonic()
            for _ in range(50):
                assert client.chat(max_tokens=2).status == 200
            assert client.chat_stream(max_tokens=2)[-1].data == "[DONE]"
            assert time.monotonic() - began < 5
            for connection in idle[::100]:
                connection.send(GET)
                assert connection.read_reply().status == 200
