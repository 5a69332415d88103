"""Two hundred clients that do whatever comes to their mind: afterwards all is free, and all is counted."""

import contextlib
import json
import random
import selectors
import socket
import time

import pytest

from tests.integration.client import Client, Metrics, eventually, request_bytes, reset
from tests.integration.daemon import Daemon
from tests.wire.channel import pieces, post, post_chunks

pytestmark = pytest.mark.integration

FLAGS = (
    *("--max-num-seqs", "8", "--max-waiting-queue-length", "20", "--keep-alive-timeout", "500ms"),
    *("--time-to-first-token", "20ms", "--inter-token-latency", "5ms", "--max-request-body-size-mb", "1"),
)
RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"


def message(dice: random.Random) -> bytes:
    """One request, or something that is none."""
    kind = dice.random()
    if kind < 0.1:
        return b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"
    if kind < 0.15:
        return dice.choice([b"nonsense\r\n\r\n", dice.randbytes(50), b"GET / HTTP/1.1\r\n\r\n"])
    if kind < 0.2:
        return b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n" + b"x" * 100_000
    fields: dict[str, object] = {"max_tokens": dice.randint(1, 60), "ignore_eos": True}
    fields["stream"] = dice.random() < 0.6
    if dice.random() < 0.3:
        fields["n"] = dice.randint(2, 4)
    if dice.random() < 0.5:
        path, fields["prompt"] = b"/v1/completions", dice.choice(["a", ["a", "b"], [1, 2, 3]])
    else:
        path, fields["messages"] = b"/v1/chat/completions", [{"role": "user", "content": "a b c"}]
    if dice.random() < 0.1:
        fields["max_tokens"] = "many"
    body = json.dumps(fields).encode()
    offers = (b"Connection: close", b"Expect: 100-continue")
    headers = [offer for offer in offers if dice.random() < 0.1]
    if dice.random() < 0.2:
        return post_chunks(pieces(body, 15), *headers, path=path)
    return post(body, *headers, path=path)


def script(dice: random.Random) -> list[tuple[float, str, bytes]]:
    """What one client does, each step so many seconds after the one before."""
    steps: list[tuple[float, str, bytes]] = []
    for _ in range(dice.randint(1, 4)):
        sent = b"".join(message(dice) for _ in range(dice.choice([1, 1, 1, 2, 3])))
        if dice.random() < 0.3:
            cut = dice.randint(1, len(sent) - 1)
            steps.append((dice.random() * 0.1, "send", sent[:cut]))
            if dice.random() < 0.6:
                steps.append((dice.random() * 0.3, "send", sent[cut:]))
        else:
            steps.append((dice.random() * 0.2, "send", sent))
        if dice.random() < 0.7:
            steps.append((dice.random() * 0.2, "read", b""))
    steps.append((dice.random() * 0.4, dice.choice(["close", "reset", "fin", "stay"]), b""))
    return steps


def act(client: socket.socket, kind: str, data: bytes) -> None:
    # The server may have had enough of it; what does not fit into the socket at once is not sent.
    with contextlib.suppress(OSError):
        if kind == "send":
            client.send(data)
        elif kind == "read":
            client.recv(1 << 20)
        elif kind == "fin":
            client.shutdown(socket.SHUT_WR)
        elif kind == "reset":
            reset(client)
        elif kind == "close":
            client.close()


def run(client: Client, dice: random.Random, count: int) -> list[socket.socket]:
    """Play `count` clients at once, to the end of all their scripts."""
    sockets, steps = [], []
    for number in range(count):
        one = socket.create_connection((client.host, client.port), timeout=5)
        one.setblocking(False)
        sockets.append(one)
        at = dice.random()
        for wait, kind, data in script(dice):
            at += wait
            steps.append((at, number, kind, data))
    began = time.monotonic()
    for at, number, kind, data in sorted(steps, key=lambda step: step[:2]):
        time.sleep(max(0.0, began + at - time.monotonic()))
        act(sockets[number], kind, data)
    return sockets


def read_all(sockets: list[socket.socket]) -> None:
    """Read from those that stayed until the server has closed them all."""
    with selectors.DefaultSelector() as selector:
        for one in sockets:
            if one.fileno() >= 0:
                selector.register(one, selectors.EVENT_READ)
        deadline = time.monotonic() + 10
        while selector.get_map():
            assert time.monotonic() < deadline, "some are open still"
            for key, _ in selector.select(0.1):
                assert isinstance(key.fileobj, socket.socket)
                data = b""
                with contextlib.suppress(OSError):
                    data = key.fileobj.recv(1 << 20)
                if not data:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()


@pytest.mark.parametrize("half_close", ["abort", "serve"])
def test_r88_whatever_they_do(half_close: str) -> None:
    dice = random.Random(half_close)
    with Daemon(*FLAGS, "--half-close", half_close) as daemon:
        client = daemon.client
        sockets = run(client, dice, 200)
        read_all(sockets)
        eventually(lambda: client.get("/load").json == {"server_load": 0})
        metrics = client.metrics()
        assert (metrics.value(RUNNING), metrics.value(WAITING)) == (0, 0)
        finished = metrics.finished()
        # Each choice that was begun has queued once, and those that were waiting have ended as aborts.
        assert finished["abort"] > 10
        assert finished["length"] > 20
        assert set(finished) == {"abort", "length"}
        assert metrics.value("vllm:e2e_request_latency_seconds_count") == finished["length"]
        assert metrics.value("vllm:request_generation_tokens_count") == finished["length"]
        # All slots and places are there for others, and nothing was logged (`Daemon` looks).
        assert client.chat(n=28, max_tokens=1).status == 200
        assert client.metrics().finished()["length"] == finished["length"] + 28
        assert daemon.process.poll() is None


def accepted(metrics: Metrics) -> float:
    """Choices that run, wait, or have ended."""
    under_way = metrics.value(RUNNING) + metrics.value(WAITING)
    return under_way + sum(metrics.finished().values())


def test_each_choice_that_was_accepted_ends_once() -> None:
    """Clients that leave by FIN at some time after their requests were accepted."""
    dice = random.Random(7)
    flags = ("--max-num-seqs", "8", "--inter-token-latency", "3ms")
    with Daemon(*flags) as daemon:
        client = daemon.client
        leaving: list[tuple[float, socket.socket]] = []
        choices = 0
        for number in range(200):
            n, prompts = dice.randint(1, 3), dice.randint(1, 2)
            fields = {
                "prompt": ["a"] * prompts,
                "n": n,
                "max_tokens": dice.randint(1, 40),
                "ignore_eos": True,
            }
            body = json.dumps({**fields, "stream": number % 2 == 0}).encode()
            one = socket.create_connection((client.host, client.port), timeout=5)
            one.sendall(request_bytes("POST", "/v1/completions", body))
            choices += n * prompts
            leaving.append((dice.random(), one))
        eventually(lambda: accepted(client.metrics()) == choices)
        began = time.monotonic()
        for at, one in sorted(leaving, key=lambda leaver: leaver[0]):
            time.sleep(max(0.0, began + at - time.monotonic()))
            one.close()
        eventually(lambda: client.get("/load").json == {"server_load": 0})
        metrics = client.metrics()
        finished = metrics.finished()
        assert set(finished) == {"abort", "length"}
        assert min(finished.values()) > 20
        assert sum(finished.values()) == choices
        assert metrics.value("vllm:e2e_request_latency_seconds_count") == finished["length"]
