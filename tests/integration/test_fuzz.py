"""Thousands of bodies to a real daemon, from clients of which some leave: it lives, and it can count."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random

import pytest

from tests.integration.client import Client, Connection, eventually
from tests.integration.daemon import Daemon
from tests.web.answers import judge
from tests.web.fuzz import Case, case

pytestmark = pytest.mark.integration

FLAGS = (
    *("--max-model-len", "600", "--max-n", "8", "--max-prompts", "8", "--max-num-seqs", "6", "--seed", "1"),
    *("--time-to-first-token", "2ms", "--inter-token-latency", "200us", "--max-waiting-queue-length", "8"),
)
CLIENTS = 8
BODIES = 2000


@dataclass
class Visitor:
    """One client with a keep-alive connection, and what it knows of what it caused."""

    client: Client
    random: Random
    connection: Connection | None = None
    #: Choices of its complete answers, and those of requests it left, which may or may not have run.
    choices: int = 0
    left: int = 0
    tokens: int = 0
    statuses: set[int] = field(default_factory=set)
    #: Requests that were accepted, with their choices.
    known: list[tuple[bytes, int]] = field(default_factory=list)

    def leave(self) -> None:
        if self.connection is not None:
            if self.random.random() < 0.5:
                self.connection.reset()
            else:
                self.connection.close()
            self.connection = None

    def send(self, *packets: bytes) -> Connection:
        if self.connection is None:
            self.connection = self.client.connect()
        try:
            for packet in packets:
                self.connection.send(packet)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused in the middle; the refusal can be read all the same
        return self.connection

    def visit(self, seed: str) -> None:
        made = case(seed)
        draw = self.random.random()
        if draw < 0.08:
            self.send(made.wire[: self.random.randrange(len(made.wire))])
            self.leave()
        elif draw < 0.2 and self.known:
            wire, choices = self.random.choice(self.known)
            connection = self.send(wire)
            self.left += choices
            if draw < 0.15:
                connection.read_head()
                if draw < 0.12:
                    connection.read_exactly(1)
            self.leave()
        else:
            self.ask(made)

    def ask(self, made: Case) -> None:
        connection = self.send(*made.packets)
        reply = connection.read_reply()
        if reply.status == 100:
            reply = connection.read_reply()
        found = judge(made.path, reply.status, reply.headers, reply.body)
        self.statuses.add(found.status)
        if found.status == 200:
            self.choices += len(found.texts)
            self.tokens += found.tokens or 0
            self.known = [*self.known[-30:], (made.wire, len(found.texts))]
        if reply.headers.get("connection") == "close":
            connection.close()
            self.connection = None


def visits(visitor: Visitor, mode: str, numbers: range) -> Visitor:
    try:
        for number in numbers:
            seed = f"daemon {mode} {number}"
            try:
                visitor.visit(seed)
            except BaseException:
                print(f"case({seed!r}):\n{case(seed).wire!r}")
                raise
    finally:
        visitor.leave()
    return visitor


@pytest.mark.parametrize("mode", ["echo", "random"])
def test_a_daemon_survives_every_body_and_counts_every_choice(mode: str) -> None:
    with Daemon(*FLAGS, "--mode", mode) as daemon:
        client = daemon.client
        visitors = [Visitor(client, Random(f"{mode} {number}")) for number in range(CLIENTS)]
        with ThreadPoolExecutor(CLIENTS) as pool:
            jobs = [
                pool.submit(visits, visitor, mode, range(number, BODIES, CLIENTS))
                for number, visitor in enumerate(visitors)
            ]
            for job in jobs:
                job.result()
        for gauge in ("vllm:num_requests_running", "vllm:num_requests_waiting"):
            eventually(lambda gauge=gauge: client.metrics().value(gauge) == 0)
        assert daemon.process.poll() is None
        assert client.chat("still there?").status == 200
        metrics = client.metrics()
        finished = metrics.finished()
        assert set(finished) <= {"stop", "length", "abort"}
        choices = sum(visitor.choices for visitor in visitors) + 1
        left = sum(visitor.left for visitor in visitors)
        assert choices > BODIES // 8
        assert left > BODIES // 40
        assert choices <= finished["stop"] + finished["length"]
        assert choices <= sum(finished.values()) <= choices + left
        assert metrics.value("vllm:generation_tokens_total") >= sum(visitor.tokens for visitor in visitors)
        assert metrics.value("vllm:request_generation_tokens_count") == finished["stop"] + finished["length"]
        assert {200, 400} <= set().union(*(visitor.statuses for visitor in visitors))
