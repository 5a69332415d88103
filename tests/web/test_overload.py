"""Requests that the engine has no room for: 429 for a full queue, 503 for vLLM's limits, on every route."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.metrics.pages import value
from tests.web.anthropic.answers import refused as refused_message
from tests.web.clients import CHAT, TEXT, fields, post, reply_of, request, watched
from tests.web.pooling.test_routes_state import BODIES as POOLING
from tests.web.rig import RankRig
from tests.wire.channel import Client

SLOW = ("--time-to-first-token", "1s", "--max-num-seqs", "1")
GENERATE, MESSAGES, RESPONSES = "/inference/v1/generate", "/v1/messages", "/v1/responses"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: fields(CHAT),
    TEXT: fields(TEXT),
    GENERATE: {"token_ids": [1, 2, 3], "sampling_params": {"max_tokens": 5}},
    MESSAGES: {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "one two"}]},
    RESPONSES: {"input": "one two", "max_output_tokens": 5},
}
ROUTES = pytest.mark.parametrize("path", BODIES)
KINDS = pytest.mark.parametrize("stream", [False, True])
REASONS = ("max_num_queued_reqs", "max_num_queued_tokens")


def ask(rig: RankRig, path: str, *headers: str, **more: Any) -> Client:
    return watched(rig).send(request(path, {**BODIES[path], **more}, *headers))


def counted(rig: RankRig) -> tuple[float, float, float]:
    """Refusals by each limit, and for want of a place."""
    page = rig.rank.metrics.collector
    limits = [value(page, "vllm:admission_rejections_total", reason=reason) for reason in REASONS]
    return (*limits, value(page, "llmdsim:queue_full_refusals_total"))  # type: ignore[return-value]


@ROUTES
@KINDS
@pytest.mark.parametrize("limit", REASONS)
def test_a_limit_is_a_503_that_leaves_the_connection_open(path: str, stream: bool, limit: str) -> None:
    rig = RankRig(*SLOW, f"--{limit.replace('_', '-')}", "1")
    post(rig, TEXT)
    client = ask(rig, path, stream=stream)
    rig.settle()
    reply = reply_of(client)
    assert (reply.status, client.fate) == (503, "open")
    assert b"connection" not in reply.headers
    assert b"retry-after" not in reply.headers
    if path == MESSAGES:
        refused_message(503, reply.body)
    else:
        error = reply.error["error"]
        assert (error["type"], error["param"], error["code"]) == ("Service Unavailable", None, 503)
    assert b"--" + limit.replace("_", "-").encode() in reply.body
    assert counted(rig) == (limit == REASONS[0], limit == REASONS[1], 0)
    assert rig.rank.stats.running + rig.rank.stats.waiting == 1
    rig.clock.pump([1.0] * 3)
    # The same connection is served when there is room again.
    client.transport.clear()
    client.send(request(path, {**BODIES[path], "stream": stream}))
    rig.clock.pump([1.0] * 3)
    assert reply_of(client).status == 200
    assert rig.rank.engine.prefill_tokens == 0


@ROUTES
@KINDS
def test_r25_a_full_queue_is_a_429_counted_elsewhere(path: str, stream: bool) -> None:
    rig = RankRig(*SLOW, "--max-waiting-queue-length", "0")
    post(rig, TEXT)
    client = ask(rig, path, stream=stream)
    rig.settle()
    reply = reply_of(client)
    assert (reply.status, reply.headers[b"retry-after"], client.fate) == (429, b"1", "open")
    assert counted(rig) == (0, 0, 1)


def test_r52_one_slot_and_two_places_are_for_three_of_five() -> None:
    rig = RankRig(*SLOW, "--max-waiting-queue-length", "2")
    clients = [post(rig, TEXT, stream=stream) for stream in (False, True, False, False, True)]
    rig.clock.pump([1.0] * 5)
    assert [reply_of(client).status for client in clients] == [200, 200, 200, 429, 429]


def test_one_slot_and_one_place_are_for_two_of_five() -> None:
    rig = RankRig(*SLOW, "--max-waiting-queue-length", "1")
    clients = [post(rig, CHAT, stream=stream) for stream in (False, True, False, True, False)]
    assert [reply_of(client).status for client in clients[2:]] == [429] * 3
    rig.clock.pump([1.0] * 5)
    assert [reply_of(client).status for client in clients[:2]] == [200] * 2
    assert value(rig.rank.metrics.collector, "vllm:request_queue_time_seconds_count") == 2


@pytest.mark.parametrize("flags", [["--max-num-queued-reqs", "5"], ["--max-waiting-queue-length", "4"]])
@pytest.mark.parametrize(("prompts", "n", "fits"), [(1, 5, True), (5, 1, True), (2, 3, False), (6, 1, False)])
def test_choices_and_prompts_are_taken_together_or_not_at_all(
    flags: list[str], prompts: int, n: int, fits: bool
) -> None:
    rig = RankRig(*SLOW, *flags)
    client = post(rig, TEXT, prompt=["a"] * prompts, n=n)
    stats = rig.rank.stats
    assert stats.running + stats.waiting == (5 if fits else 0)
    rig.clock.pump([1.0] * 6)
    reply = reply_of(client)
    assert (reply.status == 200) == fits
    assert sum(counted(rig)) == (not fits), "a request counts once"


def test_a_batch_whose_prompts_would_be_too_much_together_is_refused_whole() -> None:
    rig = RankRig(*SLOW, "--max-num-queued-tokens", "6")
    assert reply_of(post(rig, TEXT, prompt=["a b c", "a b c", "a b c"])).status == 503
    assert (rig.rank.engine.idle, rig.rank.engine.prefill_tokens) == (True, 0)
    post(rig, TEXT, prompt=["a b c", "a b c"])
    assert rig.rank.engine.prefill_tokens == 6


@pytest.mark.parametrize("path", POOLING)
@pytest.mark.parametrize("limit", REASONS)
def test_pooling_meets_the_limits_and_not_the_queue(path: str, limit: str) -> None:
    def status(rig: RankRig) -> int:
        post(rig, TEXT)
        client = watched(rig).send(request(path, POOLING[path]))
        rig.clock.pump([0.001] * 3)
        return reply_of(client).status

    assert status(RankRig(*SLOW, "--max-waiting-queue-length", "0")) == 200
    rig = RankRig(*SLOW, f"--{limit.replace('_', '-')}", "1")
    assert status(rig) == 503
    assert counted(rig) == (limit == REASONS[0], limit == REASONS[1], 0)


def test_inputs_of_one_pooling_request_count_one_by_one() -> None:
    rig = RankRig("--max-num-queued-reqs", "2")
    client = watched(rig)
    for inputs, status in ((2, 200), (3, 503)):
        client.transport.clear()
        client.send(request("/v1/embeddings", {"input": ["a"] * inputs}))
        rig.clock.pump([0.001] * 5)
        assert reply_of(client).status == status


def test_a_background_response_that_is_refused_is_not_kept() -> None:
    rig = RankRig(*SLOW, "--max-num-queued-reqs", "1")
    post(rig, TEXT)
    client = ask(rig, RESPONSES, background=True, store=True)
    rig.settle()
    assert reply_of(client).status == 503


def started(rig: RankRig) -> list[str]:
    """What runs or waits, in order, by request id."""
    return [sequence.request_id.removeprefix("cmpl-") for sequence in rig.rank.engine.sequences]


# --- priorities


def test_the_body_says_the_priority_and_a_number_in_the_header_says_it_better() -> None:
    rig = RankRig(*SLOW, "--scheduling-policy", "priority")
    for name, priority, headers in (
        ("first", 9, []),
        ("low", 7, []),
        ("high", -7, []),
        ("header", 7, ["X-Vllm-Priority: -8"]),
        ("nonsense", 1, ["X-Vllm-Priority: high"]),
        ("empty", 2, ["X-Vllm-Priority:"]),
        ("none", 0, []),
        ("none too", 0, []),
    ):
        post(rig, TEXT, f"X-Request-Id: {name}", *headers, priority=priority)
    order = ["first", "header", "high", "none", "none too", "nonsense", "empty", "low"]
    assert [name.rpartition("-")[0] or name for name in started(rig)] == order


@ROUTES
def test_every_route_has_priorities(path: str) -> None:
    rig = RankRig(*SLOW, "--scheduling-policy", "priority")
    post(rig, TEXT)
    post(rig, TEXT)
    ask(rig, path, "X-Vllm-Priority: -1")
    if path != MESSAGES:  # which has no such field
        ask(rig, path, priority=-2)
    rig.settle()
    priorities = [sequence.priority for sequence in rig.rank.engine.sequences]
    assert priorities == ([0, -1, 0] if path == MESSAGES else [0, -2, -1, 0])


@ROUTES
def test_first_come_first_served_takes_any_priority_and_heeds_none(path: str) -> None:
    """Its description has vLLM refuse what is not 0; it does not."""
    rig = RankRig(*SLOW)
    post(rig, TEXT)
    post(rig, TEXT)
    more = {} if path == MESSAGES else {"priority": -5}
    client = ask(rig, path, "X-Vllm-Priority: -5", **more)
    rig.settle()
    assert [sequence.prompt_tokens for sequence in rig.rank.engine.sequences][:2] == [2, 2]
    rig.clock.pump([1.0] * 9)
    assert reply_of(client).status == 200


@pytest.mark.parametrize("priority", [2**63 - 1, -(2**63)])
def test_priorities_are_64_bits_wide_in_bodies(priority: int) -> None:
    rig = RankRig("--scheduling-policy", "priority")
    assert reply_of(post(rig, TEXT, priority=priority)).status == 200
    assert reply_of(post(rig, TEXT, priority=priority * 4)).status == 400
    assert reply_of(post(rig, TEXT, "X-Vllm-Priority: " + "9" * 6000)).status == 200


def test_the_documents_of_errors_are_json() -> None:
    rig = RankRig("--max-num-queued-reqs", "0")
    reply = reply_of(post(rig, CHAT))
    assert list(json.loads(reply.body)["error"]) == ["message", "type", "param", "code"]
