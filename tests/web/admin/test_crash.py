"""The death of the engine: everything that generates is 500, the rest of the server goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from twisted.logger import LogLevel, capturedLogs

from tests.web.access.rig import ask
from tests.web.admin.operator import PACED, SLEEPY, answer, begin, call, told
from tests.web.clients import CHAT, TEXT, events, post, reply_of
from tests.web.rig import RankRig
from tests.wire.channel import Client

GENERATE = "/inference/v1/generate"


def crash_rig(*flags: str) -> RankRig:
    return RankRig(*PACED, "--max-num-seqs", "1", *SLEEPY, *flags)


def crash(rig: RankRig, *body: Any) -> None:
    with capturedLogs():
        assert told(rig, "POST", "/admin/crash", *body) == {"status": "crashed"}


def failed(client: Client) -> None:
    reply = answer(client)
    assert (reply.status, reply.headers[b"content-type"]) == (500, b"application/json")
    error = reply.error["error"]
    assert (error["type"], error["param"], error["code"]) == ("InternalServerError", None, 500)
    assert "engine failed" in error["message"]


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("n", [1, 2])
def test_open_calls_are_told_whether_they_run_or_wait(path: str, n: int) -> None:
    rig = crash_rig("--max-num-seqs", "2")
    clients = [post(rig, path, stream=stream, n=n) for _ in range(2) for stream in (False, True)]
    rig.clock.pump([1.0] * 2)
    crash(rig)
    for client in clients[::2]:
        failed(client)
    for client in clients[1::2]:
        reply = reply_of(client)
        assert (reply.status, reply.complete) == (200, True)
        error, done = events(reply.body)[-2:]
        assert (error["error"]["code"], error["error"]["type"]) == (500, "InternalServerError")
        assert done == "[DONE]"
    stats = rig.rank.stats
    assert (stats.running, stats.waiting, rig.rank.engine.idle) == (0, 0, True)
    assert (stats.finished["error"], stats.finished["abort"]) == (4 * n, 0)
    assert rig.clock.getDelayedCalls() == []


def test_streams_of_other_apis_are_told_in_their_own_way() -> None:
    rig = crash_rig("--max-num-seqs", "9", "--seed", "1")
    message = {"model": "m", "max_tokens": 500, "messages": [{"role": "user", "content": "a"}]}
    of_messages = begin(rig, "POST", "/v1/messages", {**message, "stream": True})
    of_responses = begin(
        rig, "POST", "/v1/responses", {"input": "a", "max_output_tokens": 500, "stream": True}
    )
    ids = {"token_ids": [1, 2], "sampling_params": {"max_tokens": 500, "ignore_eos": True}}
    of_generate = begin(rig, "POST", GENERATE, {**ids, "stream": True})
    in_background = told(
        rig, "POST", "/v1/responses", {"input": "a", "max_output_tokens": 500, "background": True}
    )["id"]
    rig.clock.pump([1.0] * 2)
    crash(rig)
    body = answer(of_messages).body
    assert b"event: error" in body
    assert b'"api_error"' in body
    body = answer(of_responses).body
    assert b'"response.failed"' in body
    assert b'"server_error"' in body
    body = answer(of_generate).body
    assert b'"code":500' in body
    kept = told(rig, "GET", f"/v1/responses/{in_background}")
    assert kept["status"] == "failed"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "a"}]}),
        (CHAT, {"messages": [{"role": "user", "content": "a"}], "stream": True}),
        (TEXT, {"prompt": "a"}),
        (TEXT, {"prompt": "word " * 60_000, "max_tokens": 1}),
        (GENERATE, {"token_ids": [1], "sampling_params": {"max_tokens": 5}}),
        ("/v1/responses", {"input": "a"}),
        ("/v1/embeddings", {"input": "a"}),
        ("/pause", {}),
        ("/pause?mode=wait", {}),
        ("/resume", {}),
        ("/sleep", {}),
        ("/wake_up", {}),
        ("/reset_prefix_cache", {}),
        ("/admin/crash", {}),
    ],
)
def test_what_the_engine_is_asked_from_then_on_is_500(path: str, body: dict[str, Any]) -> None:
    rig = crash_rig("--max-model-len", "100000")
    crash(rig)
    client = begin(rig, "POST", path, body)
    rig.clock.pump([0.0] * 2000)
    failed(client)


def test_messages_have_anthropics_shape() -> None:
    rig = crash_rig()
    crash(rig)
    body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "a"}]}
    reply = call(rig, "POST", "/v1/messages", body)
    assert (reply.status, reply.error["error"]["type"]) == (500, "api_error")


def test_a_long_prompt_that_was_being_read_is_told_too() -> None:
    rig = crash_rig("--max-model-len", "300000")
    client = post(rig, TEXT, prompt="世" * 100_000, max_tokens=1)
    crash(rig)
    rig.clock.pump([0.0] * 3000)
    failed(client)


def test_probes_tell_and_the_rest_answers() -> None:
    rig = crash_rig()
    rig.rank.context.ready = True
    health = (b"/health", b"/ping", b"/ready", b"/health/ready")
    assert [ask(rig, path).status for path in health] == [200] * 4
    crash(rig)
    assert [ask(rig, path).status for path in health] == [503] * 4
    for path in (b"/v1/models", b"/version", b"/load", b"/metrics", b"/admin/config", b"/server_info"):
        assert ask(rig, path).status == 200
    assert [ask(rig, path).status for path in (b"/is_paused", b"/is_sleeping")] == [500] * 2
    assert told(rig, "POST", "/tokenize", {"prompt": "a b"})["count"] == 2
    assert told(rig, "POST", "/abort_requests", {})["aborted"] == 0
    page = ask(rig, b"/metrics").body.decode()
    (running,) = [line for line in page.splitlines() if line.startswith("vllm:num_requests_running{")]
    assert running.endswith(" 0.0") or running.endswith(" 0")


@pytest.mark.parametrize("before", ["/pause?mode=keep", "/pause?mode=abort", "/sleep"])
def test_a_paused_engine_can_die_too(before: str) -> None:
    rig = crash_rig()
    told(rig, "POST", before)
    client = post(rig, CHAT)
    crash(rig)
    assert reply_of(client).status == (500 if "keep" in before else 503)
    failed(post(rig, CHAT))


def test_who_waits_for_the_engine_to_pause_is_told() -> None:
    rig = crash_rig()
    running = post(rig, CHAT)
    waits = begin(rig, "POST", "/pause?mode=wait")
    left = begin(rig, "POST", "/pause?mode=wait")
    left.rst()
    crash(rig)
    failed(running)
    failed(waits)
    assert rig.clock.getDelayedCalls() == []


def test_it_takes_development_mode() -> None:
    rig = RankRig(*PACED)
    client = post(rig, CHAT)
    reply = call(rig, "POST", "/admin/crash")
    assert reply.status == 403
    assert "VLLM_SERVER_DEV_MODE" in reply.error["error"]["message"]
    assert not rig.rank.context.suspension.dead
    rig.clock.pump([1.0] * 5)
    assert reply_of(client).status == 200


@pytest.mark.parametrize(
    ("body", "reason"),
    [({"message": "out of memory"}, "out of memory"), ({}, "POST /admin/crash"), (b"", "POST /admin/crash")],
)
def test_the_log_tells_why(body: Any, reason: str) -> None:
    rig = crash_rig()
    with capturedLogs() as logged:
        told(rig, "POST", "/admin/crash", body)
    (event,) = [event for event in logged if event["log_level"] == LogLevel.critical]
    assert event["log_format"].format(**event) == f"the engine died: {reason}"


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'{"message":1}', json.dumps({"message": "x" * (1 << 18)}).encode()]
)
def test_a_body_that_makes_no_sense_kills_nothing(body: bytes) -> None:
    rig = crash_rig()
    assert call(rig, "POST", "/admin/crash", body).status in (400, 413)
    assert not rig.rank.context.suspension.dead
