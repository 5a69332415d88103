"""Operations with `all_ranks`: where they reach, what is answered, and who may order them."""

from __future__ import annotations

import gc
import json
from typing import Any

import pytest
from twisted.logger import capturedLogs

from llmdsim.web.turns import LONG_BODY
from tests.services.ranks_rig import Ranks
from tests.web.access.rig import admin_port
from tests.web.clients import CHAT, fields
from tests.wire.channel import get, post, read_replies

SLOW = ("--time-to-first-token", "1s", "--inter-token-latency", "1s")


@pytest.fixture(params=[False, True], ids=["inline", "process"])
def processes(request: pytest.FixtureRequest) -> bool:
    chosen: bool = request.param
    return chosen


def ranks(processes: bool, *flags: str, size: int = 3) -> Ranks:
    return Ranks("-dp", str(size), *flags, processes=processes).start()


def ttfts(made: Ranks) -> list[float]:
    return [rig.rank.context.config.time_to_first_token for rig in made.rigs]


@pytest.mark.parametrize("asked", [0, 1, 2])
@pytest.mark.parametrize("word", ["1", "true", "yes"])
def test_the_rank_asked_answers_for_all(processes: bool, asked: int, word: str) -> None:
    made = ranks(processes)
    reply = made.post(asked, f"/admin/config?all_ranks={word}", {"time-to-first-token": "2s"})
    assert (reply.status, json.loads(reply.body)["data-parallel-rank"]) == (200, asked)
    assert ttfts(made) == [2, 2, 2]


@pytest.mark.parametrize("query", ["", "?all_ranks=0", "?all_ranks=false", "?other=1"])
def test_without_it_the_rank_asked_is_all(processes: bool, query: str) -> None:
    made = ranks(processes)
    assert made.post(1, f"/admin/config{query}", {"time-to-first-token": "2s"}).status == 200
    assert ttfts(made) == [0, 2, 0]


@pytest.mark.parametrize("query", ["all_ranks=maybe", "all_ranks=", "all_ranks=2", "all_ranks=1&all_ranks=x"])
def test_other_values_are_refused(processes: bool, query: str) -> None:
    made = ranks(processes)
    reply = made.post(0, f"/pause?{query}")
    assert (reply.status, reply.error["error"]["param"]) == (400, "query.all_ranks")
    assert not any(rig.rank.context.suspension.paused for rig in made.rigs)


def test_what_is_refused_here_is_asked_of_nobody(processes: bool) -> None:
    made = ranks(processes)
    reply = made.post(1, "/admin/config?all_ranks=1", {"time-to-first-token": "2s", "nonsense": 1})
    assert reply.status == 400
    assert ttfts(made) == [0, 0, 0]


def test_what_another_rank_refuses_is_told_with_what_was_done(processes: bool) -> None:
    made = ranks(processes)
    adapter = {"lora_name": "l", "lora_path": "/l"}
    assert made.post(2, "/v1/load_lora_adapter", adapter).status == 200
    reply = made.post(1, "/v1/load_lora_adapter?all_ranks=1", adapter)
    assert (reply.status, reply.error["error"]["code"]) == (502, 502)
    message = reply.error["error"]["message"]
    assert message.startswith("Not done on all ranks: rank 2 answered 400: The lora adapter 'l' has already")
    assert message.endswith("(done on rank 0, 1).")
    assert all(rig.rank.context.adapters.get("l") for rig in made.rigs)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/fake_metrics", {"running-requests": 7}, 204),
        ("/sleep?level=2", None, 200),
        ("/wake_up?tags=weights&tags=kv_cache", None, 200),
        ("/pause?mode=keep", None, 200),
        ("/resume", None, 200),
        ("/abort_requests", {}, 200),
        ("/inference/v1/abort_requests", {"request_ids": ["x"]}, 200),
        ("/reset_prefix_cache", None, 200),
        ("/reset_mm_cache", None, 200),
        ("/v1/load_lora_adapter", {"lora_name": "l", "lora_path": "/l"}, 200),
        ("/start_profile", None, 200),
        ("/collective_rpc", {"method": "x"}, 200),
    ],
)
def test_every_operation_reaches_all_ranks_as_it_was_put(
    processes: bool, path: str, body: Any, status: int
) -> None:
    made = ranks(processes, "--fake-metrics", "{}", size=2)
    asked: list[Any] = []
    other = made.rigs[1].rank.operations
    route = other._route
    other._route = lambda request: (asked.append(request), route(request))  # type: ignore[assignment, func-returns-value]
    separator = "&" if "?" in path else "?"
    reply = made.post(0, f"{path}{separator}all_ranks=1", body)
    assert reply.status == status
    (relayed,) = asked
    assert relayed.method == b"POST"
    assert relayed.uri == f"{path}{separator}all_ranks=1".encode()
    assert relayed.body == (b"" if body is None else json.dumps(body).encode())
    alone = ranks(False, "--fake-metrics", "{}", size=1).post(0, path, body)
    assert (reply.status, reply.body) == (alone.status, alone.body)
    assert reply.headers.get(b"content-type") == alone.headers.get(b"content-type")


def test_a_server_without_ranks_is_all_of_them() -> None:
    made = Ranks().start()
    assert made.post(0, "/admin/config?all_ranks=1", {"time-to-first-token": "2s"}).status == 200
    assert ttfts(made) == [2]


def test_other_routes_do_not_know_it(processes: bool) -> None:
    made = ranks(processes)
    client = made.rigs[0].connect().send(get(b"/is_paused?all_ranks=x"))
    (reply,) = read_replies(client.received, [b"GET"], ended=False)
    assert reply.status == 200
    assert made.post(0, f"{CHAT}?all_ranks=x", fields(CHAT)).status == 200


@pytest.mark.parametrize("slowest", [0, 1])
def test_all_are_asked_at_once_and_the_answer_waits_for_the_slowest(processes: bool, slowest: int) -> None:
    made = ranks(processes, *SLOW, size=2)
    clients = [made.send(rank, CHAT, fields(CHAT)) for rank in range(2)]
    client = made.send(0, "/pause?all_ranks=1&mode=wait")
    made.settle()
    assert [rig.rank.context.suspension.paused for rig in made.rigs] == [True, True]
    for rank in (1 - slowest, slowest):
        assert client.received == b""
        with capturedLogs():
            made.rigs[rank].clock.pump([0.5] * 12)
        made.settle()
    (reply,) = read_replies(client.received, [b"POST"], ended=False)
    assert (reply.status, json.loads(reply.body)) == (200, {"status": "paused"})
    assert [each.statuses() for each in clients] == [[200], [200]]


def test_it_is_done_everywhere_though_its_client_leaves(processes: bool) -> None:
    made = ranks(processes, *SLOW, size=2)
    for rank in range(2):
        made.send(rank, CHAT, fields(CHAT))
    client = made.send(1, "/pause?all_ranks=1&mode=wait")
    client.rst()
    made.settle()
    assert [rig.rank.context.suspension.paused for rig in made.rigs] == [True, True]
    with capturedLogs() as logged:
        for process in made.processes:
            assert process.control is not None
            process.control.connectionLost()
        made.rigs[1].clock.pump([0.5] * 12)
        gc.collect()
    assert [event for event in logged if event.get("log_failure")] == [], "what comes of it is heard"


def test_no_more_are_under_way_than_a_bound(processes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """They stay, with what they hold, though their clients leave."""
    monkeypatch.setattr("llmdsim.web.operations.MOST_UNDER_WAY", 3)
    made = ranks(processes, *SLOW, size=2)
    made.send(1, CHAT, fields(CHAT))
    for _ in range(3):
        made.send(0, "/pause?all_ranks=1&mode=wait").rst()
        made.settle()
    assert made.post(0, "/pause?all_ranks=1").status == 503
    assert made.post(0, "/admin/config", {}).status == 200, "of this rank alone"
    assert made.post(1, "/admin/config?all_ranks=1", {}).status == 200, "each rank has its own bound"
    with capturedLogs():
        made.rigs[1].clock.pump([0.5] * 12)
    made.settle()
    for _ in range(4):
        assert made.post(0, "/resume?all_ranks=1").status == 200
        assert made.post(0, "/admin/config?all_ranks=1", {"speed": "x"}).status == 400


def test_the_gate_is_passed_once(processes: bool) -> None:
    """Whoever has no key reaches no rank, and the root path of a proxy is none of theirs."""
    made = ranks(processes, "--api-key", "k", "--root-path", "/llm")
    assert made.post(0, "/llm/pause?all_ranks=1").status == 401
    assert not any(rig.rank.context.suspension.paused for rig in made.rigs)
    assert made.post(0, "/llm/pause?all_ranks=1", None, b"X-Api-Key: k").status == 200
    assert all(rig.rank.context.suspension.paused for rig in made.rigs)


def test_ports_for_administration_reach_each_other(processes: bool) -> None:
    made = ranks(processes, "--admin-listen", "tcp:1", "--admin-listen", "tcp:2", size=2)
    assert made.post(0, "/pause?all_ranks=1").status == 404
    client = admin_port(made.rigs[0]).connect().send(post(b"", path=b"/pause?all_ranks=1"))
    made.settle()
    (reply,) = read_replies(client.received, [b"POST"], ended=False)
    assert reply.status == 200
    assert all(rig.rank.context.suspension.paused for rig in made.rigs)


def test_more_than_an_operation_needs_is_not_passed_on(processes: bool) -> None:
    made = ranks(processes)
    body = {"lora_name": "l", "lora_path": "/l", "more": "x" * LONG_BODY}
    assert made.post(0, "/v1/load_lora_adapter?all_ranks=1", body).status == 413
    assert made.rigs[0].rank.context.adapters.get("l") is None


@pytest.mark.parametrize("broken", [0, 1])
def test_a_fault_of_ours_is_a_logged_500(
    processes: bool, broken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ranks(processes, size=2)

    def fault() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(made.rigs[broken].rank.context, "suspension", None)
    with capturedLogs() as logged:
        reply = made.post(0, "/resume?all_ranks=1")
    assert reply.status == (500 if broken == 0 else 502)
    assert [event for event in logged if event.get("log_failure") is not None]
    assert b"NoneType" not in reply.body
