"""What a rank tells at debug and trace level, and what it costs when nobody asks."""

from __future__ import annotations

import re

import pytest

from tests.logs.rig import LoggedRank, of
from tests.web.access.rig import admin_port, ask
from tests.web.clients import CHAT, TEXT, fields


@pytest.mark.parametrize(("path", "prefix"), [(CHAT, "chatcmpl-"), (TEXT, "cmpl-")])
@pytest.mark.parametrize("stream", [False, True])
def test_a_generation_is_told_at_debug_level(path: str, prefix: str, stream: bool) -> None:
    with LoggedRank("-v", "4") as rig:
        rig.post(path, fields(path, n=2, stream=stream, request_id="mine", prompt="a b"))
        (told,) = of("account", rig.log.lines)
    expected = rf"{prefix}mine: m, \d+ prompt tokens, at most 5 more, stream {stream}, 2 choices"
    assert re.fullmatch(expected, told)


@pytest.mark.parametrize("stream", [False, True])
def test_so_is_a_client_that_leaves(stream: bool) -> None:
    with LoggedRank(
        "--vmodule", "account=4", "--time-to-first-token", "1s", "--inter-token-latency", "1s"
    ) as rig:
        client = rig.post(CHAT, fields(CHAT, stream=stream, request_id="mine"))
        rig.clock.pump([0.5] * 5)
        client.rst()
        assert of("account", rig.log.lines)[1:] == ["chatcmpl-mine: the client left after 2 tokens"]


def test_a_request_that_was_refused_is_not_told() -> None:
    with LoggedRank("-v", "4", "--max-num-seqs", "1", "--max-waiting-queue-length", "0") as rig:
        rig.post(CHAT, fields(CHAT, n=2))
        rig.post(CHAT, {})
        assert rig.log.lines == []


def test_connections_are_told_at_trace_level() -> None:
    with LoggedRank("-v", "5") as rig:
        rig.connect().rst()
        assert of("site", rig.log.lines) == ["192.168.1.1:54321 connected", "192.168.1.1:54321 disconnected"]
    with LoggedRank("-v", "4") as rig:
        rig.connect().rst()
        assert rig.log.lines == []


def test_by_default_requests_leave_no_trace() -> None:
    with LoggedRank() as rig:
        assert len(rig.site.on_ended) == 1, "the count for /metrics, and nothing that writes"
        assert not rig.rank.context.accounted
        assert not rig.rank.context.tells_generations
        rig.post(CHAT, fields(CHAT))
        rig.post(CHAT, fields(CHAT)).rst()
        assert rig.log.lines == []


def test_the_port_for_administration_is_logged_as_well() -> None:
    with LoggedRank("--admin-listen", "tcp:0", "--access-log", "--log-http", "-v", "5") as rig:
        ask(rig, b"/v1/models")
        ask(admin_port(rig), b"/admin/config")
        lines = rig.access_lines()
        assert [re.findall(r'"(.*?) HTTP', line) for line in lines] == [
            ["GET /v1/models"],
            ["GET /admin/config"],
        ]
        dumped = of("http_dump", rig.log.lines)
        assert [line.split()[:3] for line in dumped[2:]] == [
            ["request:", "GET", "/admin/config"],
            ["response:", "200", "to"],
        ]
        assert len(of("site", rig.log.lines)) >= 2
