"""Errors on purpose, before anything is generated: what they say, and what comes first."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmdsim.engine.faults import FAILURE_TYPES
from tests.web.clients import CHAT, TEXT, fields, post, reply_of, request
from tests.web.rig import RankRig
from tests.wire.channel import Client, Reply

BOTH = pytest.mark.parametrize("path", [CHAT, TEXT])
KINDS = pytest.mark.parametrize("stream", [False, True])

ERRORS = {
    "rate_limit": (429, "RateLimitError", None),
    "invalid_api_key": (401, "AuthenticationError", None),
    "context_length": (400, "BadRequestError", "messages"),
    "server_error": (503, "InternalServerError", None),
    "invalid_request": (400, "BadRequestError", "model"),
    "model_not_found": (404, "NotFoundError", "model"),
}


def shown(rig: RankRig) -> dict[str, int]:
    return {kind: number for kind, number in rig.rank.stats.faults.items() if number}


def error_of(client: Client) -> tuple[Reply, dict[str, Any]]:
    reply = reply_of(client)
    assert reply.complete
    assert reply.headers[b"content-type"] == b"application/json"
    error = json.loads(reply.body)["error"]
    assert error["code"] == reply.status
    assert list(error) == ["message", "type", "param", "code"]
    return reply, error


# --- injected


@BOTH
@KINDS
@pytest.mark.parametrize("kind", FAILURE_TYPES)
def test_every_failure_has_its_error(path: str, stream: bool, kind: str) -> None:
    rig = RankRig("--failure-injection-rate", "100", "--failure-types", kind, "--served-model-name", "alias")
    reply, error = error_of(post(rig, path, stream=stream))
    assert (reply.status, error["type"], error["param"]) == ERRORS[kind]
    assert shown(rig) == {kind: 1}
    assert rig.rank.engine.idle
    assert not any(rig.rank.stats.finished.values())


def test_errors_name_the_configured_model() -> None:
    def message(kind: str) -> str:
        flags = ("--failure-types", kind, "--served-model-name", "alias", "--model", "org/name")
        rig = RankRig("--failure-injection-rate", "100", *flags)
        return str(error_of(post(rig, CHAT, model="alias"))[1]["message"])

    assert "org/name" in message("rate_limit")
    assert "`org/name-nonexistent`" in message("model_not_found")
    assert "4096" in message("context_length")
    assert "4500" in message("context_length")


def test_r86_a_429_says_when_to_come_back() -> None:
    rig = RankRig("--failure-injection-rate", "100", "--failure-types", "rate_limit")
    reply, _ = error_of(post(rig, CHAT))
    assert reply.headers[b"retry-after"] == b"1"
    reply, _ = error_of(post(RankRig(), CHAT, "X-Return-Error: 429"))
    assert reply.headers[b"retry-after"] == b"1"
    reply, _ = error_of(post(RankRig(), CHAT, "X-Fault: error; code=429"))
    assert reply.headers[b"retry-after"] == b"1"
    reply, _ = error_of(post(RankRig(), CHAT, "X-Fault: error; code=429; retry-after=30"))
    assert reply.headers[b"retry-after"] == b"30"
    reply, _ = error_of(post(RankRig(), CHAT, "X-Return-Error: 500"))
    assert b"retry-after" not in reply.headers


def test_replies_are_the_same_with_and_without_failures() -> None:
    def replies(*flags: str) -> list[bytes]:
        rig = RankRig("--seed", "5", *flags)
        bodies = [json.loads(reply_of(post(rig, TEXT)).body) for _ in range(40)]
        return [body["choices"] for body in bodies if "choices" in body]

    plain = replies()
    some = replies("--failure-injection-rate", "50")
    assert 5 < len(some) < 35
    assert some == plain[: len(some)]
    assert some == replies("--failure-injection-rate", "50")


# --- asked for


@KINDS
@BOTH
@pytest.mark.parametrize(
    ("value", "status", "type_"),
    [
        ("400", 400, "BadRequestError"),
        ("404", 404, "NotFoundError"),
        ("+418", 418, "APIConnectionError"),
        (" 429 ", 429, "RateLimitError"),
        ("500", 500, "InternalServerError"),
        ("0503", 503, "ServiceUnavailableError"),
        ("599", 599, "InternalServerError"),
    ],
)
def test_r50_a_failure_before_the_first_token_is_an_http_error(
    path: str, stream: bool, value: str, status: int, type_: str
) -> None:
    rig = RankRig()
    reply, error = error_of(post(rig, path, f"X-Return-Error: {value}", stream=stream))
    assert (reply.status, error["type"], error["param"]) == (status, type_, None)
    assert "X-Return-Error" in error["message"]
    assert shown(rig) == {"return_error": 1}
    assert rig.rank.engine.idle


@pytest.mark.parametrize(
    "value", ["0", "-1", "42", "200", "204", "304", "399", "600", "700", "1000", "4 4", "5e2", "429.0", "x"]
)
def test_what_is_no_error_status_is_refused(value: str) -> None:
    rig = RankRig()
    reply, error = error_of(post(rig, CHAT, f"X-Return-Error: {value}"))
    assert reply.status == 400
    assert "Invalid X-Return-Error" in error["message"]
    assert shown(rig) == {}


def test_what_is_no_fault_is_refused() -> None:
    rig = RankRig()
    reply, error = error_of(post(rig, CHAT, "X-Fault: explode", stream=True))
    assert reply.status == 400
    assert error["message"].startswith("Invalid X-Fault header: 'explode' is not a kind of fault")
    assert "no-done" in error["message"]
    for value in ("reset, reset", "stall; for=9h", "\u00e9t\u00e9", "reset" + " " * 200 + ";after=1"):
        data = request(CHAT, fields(CHAT), f"X-Fault: {value}")
        assert reply_of(rig.connect().send(data)).status == 400
    assert shown(rig) == {}


def test_empty_headers_ask_for_nothing() -> None:
    assert reply_of(post(RankRig(), CHAT, "X-Return-Error:", "X-Fault: ")).status == 200


def test_headers_can_be_turned_off() -> None:
    rig = RankRig("--no-fault-headers")
    assert reply_of(post(rig, CHAT, "X-Return-Error: 500", "X-Fault: reset")).status == 200
    rig = RankRig("--no-fault-headers", "--failure-injection-rate", "100")
    assert reply_of(post(rig, CHAT, "X-Fault: no-done")).status >= 400


# --- what comes first


def test_the_order_of_failures() -> None:
    rig = RankRig("--failure-injection-rate", "100", "--failure-types", "rate_limit", "--faults", "status")

    def status(*headers: str, **body: Any) -> int:
        return reply_of(post(rig, CHAT, *headers, **body)).status

    assert status(max_tokens="many") == 400, "a body that cannot be read"
    assert status("X-Return-Error: 418", "X-Fault: error; code=411") == 418
    assert status("X-Fault: error; code=411") == 411
    assert status("X-Fault: error; code=411; times=1") == 411
    assert status("X-Fault: error; code=411; times=1") == 200, "who asks is spared what others meet"
    assert status() == 429
    assert status(model="unknown") == 429
    assert status(model="unknown", temperature=-1) == 429
    rig.rank.context.draining = True
    assert status("X-Return-Error: 418") == 503


def test_only_generation_fails() -> None:
    rig = RankRig("--failure-injection-rate", "100", "--faults", "reset")
    for path in ("/v1/models", "/health", "/metrics", "/version"):
        client = rig.connect().send(b"GET %b HTTP/1.1\r\nHost: x\r\nX-Fault: reset\r\n\r\n" % path.encode())
        assert client.replies(b"GET")[0].status == 200


# --- statuses and errors before the first byte


@KINDS
def test_a_status_without_a_body(stream: bool) -> None:
    rig = RankRig()
    reply = reply_of(post(rig, CHAT, "X-Fault: status", stream=stream))
    assert (reply.status, reply.body, reply.headers[b"content-length"]) == (503, b"", b"0")
    reply = reply_of(post(rig, CHAT, "X-Fault: status; code=502; retry-after=5", stream=stream))
    assert (reply.status, reply.body, reply.headers[b"retry-after"]) == (502, b"", b"5")
    assert shown(rig) == {"status": 2}


@KINDS
def test_fail_twice_then_work(stream: bool) -> None:
    rig = RankRig()
    client = rig.connect()
    data = request(CHAT, fields(CHAT, stream=stream), "X-Fault: error; code=500; times=2; key=k")
    client.send(data, data, data, data)
    assert [reply.status for reply in client.replies(*[b"POST"] * 4)] == [500, 500, 200, 200]
    assert shown(rig) == {"error": 2}


def test_a_fault_by_chance_comes_with_every_request_or_a_part_of_them() -> None:
    rig = RankRig("--faults", "status; code=502", "error; code=504", "--seed", "1")
    statuses = [reply_of(post(rig, TEXT)).status for _ in range(40)]
    assert set(statuses) == {502, 504}
    rig = RankRig("--faults", "status; code=502", "--fault-rate", "25", "--seed", "1")
    statuses = [reply_of(post(rig, TEXT)).status for _ in range(80)]
    assert 8 < statuses.count(502) < 35
    assert statuses.count(200) == 80 - statuses.count(502)
