"""Bodies of every kind to the other routes of a real daemon: none is a 500, and nothing is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import cycle, islice

import pytest

from tests.integration.client import Connection, eventually
from tests.integration.daemon import Daemon
from tests.web.anthropic.test_fuzz import case as message_case
from tests.web.fuzz import Case
from tests.web.generate.test_fuzz import generate_case
from tests.web.pooling.test_fuzz import FITS as POOLING
from tests.web.pooling.test_fuzz import pooling_case
from tests.web.responses.fuzz import response_case
from tests.web.test_tokens_fuzz import PATHS as TOKENS
from tests.web.test_tokens_fuzz import token_case

pytestmark = pytest.mark.integration

FLAGS = ("--max-model-len", "600", "--max-n", "8", "--max-prompts", "8", "--reasoning-parser", "x")
BODIES = 1000


def cases() -> list[Callable[[int], Case]]:
    """A maker of requests for each route."""
    return [
        lambda number: message_case(f"daemon {number}"),
        lambda number: response_case(f"daemon {number}"),
        lambda number: generate_case(f"daemon {number}"),
        *(lambda number, path=path: pooling_case(path, number) for path in POOLING),  # type: ignore[misc]
        *(lambda number, path=path: token_case(path, number) for path in TOKENS),  # type: ignore[misc]
    ]


def test_a_daemon_survives_every_body_of_every_route() -> None:
    statuses: Counter[int] = Counter()
    connection: Connection | None = None
    with Daemon(*FLAGS) as daemon:
        for number, make in enumerate(islice(cycle(cases()), BODIES)):
            made = make(number)
            connection = connection or daemon.client.connect()
            try:
                for packet in made.packets:
                    connection.send(packet)
            except (BrokenPipeError, ConnectionResetError):
                pass  # refused in the middle; the refusal can be read all the same
            reply = connection.read_reply()
            if reply.status == 100:
                reply = connection.read_reply()
            statuses[reply.status] += 1
            assert reply.status == 200 or 400 <= reply.status < 500, (made, reply)
            if reply.headers.get("connection") == "close":
                connection.close()
                connection = None
        for gauge in ("vllm:num_requests_running", "vllm:num_requests_waiting"):
            eventually(lambda gauge=gauge: daemon.client.metrics().value(gauge) == 0)
        assert daemon.process.poll() is None
        assert daemon.client.chat("still there?").status == 200
        assert not daemon.client.metrics().finished().get("error")
    assert min(statuses[200], statuses[400]) > BODIES // 8
