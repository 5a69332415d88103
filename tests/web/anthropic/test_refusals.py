"""What the Messages routes refuse, or fail at: always in Anthropic's form."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.logger import capturedLogs

from llmdsim.reply.ask import Ask
from llmdsim.reply.reply import Reply
from tests.web.anthropic.answers import events, refused
from tests.web.anthropic.asking import PACED, ask, response
from tests.web.anthropic.requests import COUNT, MESSAGES
from tests.web.clients import reply_of as response_of
from tests.web.rig import RankRig
from tests.wire.channel import Reply as Response
from tests.wire.channel import get, post


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"model": ""}, 400),
        ({"model": "nobody"}, 404),
        ({"max_tokens": 0}, 400),
        ({"max_tokens": 5000}, 400),
        ({"messages": []}, 400),
        ({"messages": [{"role": "user", "content": "a " * 5000}]}, 400),
        ({"temperature": 3}, 400),
        ({"top_p": 0}, 400),
        ({"top_k": -2}, 400),
        ({"stop_sequences": [""]}, 400),
        ({"tool_choice": {"type": "any"}}, 400),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, 400),
        ({"chat_template_kwargs": {"chat_template": "x"}}, 400),
        ({"chat_template_kwargs": {"tokenize": True}}, 400),
        ({"kv_transfer_params": {"a": 2**70}}, 400),
    ],
)
def test_refusals_have_anthropics_form(more: dict[str, Any], status: int, stream: bool) -> None:
    rig = RankRig()
    found = response(rig, stream=stream, **more)
    assert found.status == status
    refused(status, found.body)
    assert rig.rank.engine.idle


@pytest.mark.parametrize("more", [{"model": "nobody"}, {"messages": []}, {"system": 5}, {"model": ""}])
def test_refusals_of_counts_too(more: dict[str, Any]) -> None:
    found = response(RankRig(), COUNT, **more)
    assert found.status == (404 if more == {"model": "nobody"} else 400)
    refused(found.status, found.body)


@pytest.mark.parametrize(
    ("wire", "status"),
    [
        (post(b"{", path=b"/v1/messages"), 400),
        (post(b"", path=b"/v1/messages"), 400),
        (post(b"x", path=b"/v1/messages/nothing"), 404),
        (get(b"/v1/messages"), 405),
        (get(b"/v1/messages/count_tokens"), 405),
        (post(b"x", b"Expect: the unexpected", path=b"/v1/messages"), 417),
        (b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Length: 999999999999\r\n\r\n", 413),
        (b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 200_000 + b"\r\n\r\n", 431),
    ],
)
def test_errors_of_the_connection_have_anthropics_form(wire: bytes, status: int) -> None:
    rig = RankRig()
    found = response_of(rig.connect().send(wire))
    assert found.status == status
    refused(status, found.body)


def test_a_full_queue_is_a_rate_limit() -> None:
    rig = RankRig("--max-num-seqs", "1", "--max-waiting-queue-length", "0", *PACED)
    ask(rig)
    found = response(rig, stream=True)
    assert (found.status, found.headers[b"retry-after"]) == (429, b"1")
    refused(429, found.body)


@pytest.mark.parametrize("path", [MESSAGES, COUNT])
def test_a_server_that_is_shutting_down_is_overloaded(path: str) -> None:
    rig = RankRig()
    rig.rank.context.draining = True
    found = response(rig, path)
    assert (found.status, found.headers[b"connection"]) == (503, b"close")
    refused(503, found.body)


@pytest.mark.parametrize("stream", [False, True])
def test_a_writer_that_fails_is_an_api_error(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = RankRig()

    def fail(_: Ask) -> Reply:
        raise ValueError("on purpose")

    monkeypatch.setattr(rig.rank.engine, "_write", fail)
    with capturedLogs() as logged:
        found = response(rig, stream=stream)
    assert len(logged) == 1
    if stream:
        (event,) = events(found.body)
        assert event.data["error"]["type"] == "api_error"
    else:
        assert found.status == 500
        refused(500, found.body)
    assert rig.rank.engine.idle


def faulty(fault: bytes, **more: Any) -> Response:
    rig = RankRig("--mode", "echo", *PACED)
    asked = [{"role": "user", "content": "one two three four"}]
    client = ask(rig, MESSAGES, b"X-Fault: " + fault, messages=asked, **more)
    rig.clock.pump([1.0] * 6)
    assert rig.rank.engine.idle
    return response_of(client)


def test_failures_on_purpose() -> None:
    found = response_of(ask(RankRig(), MESSAGES, b"X-Return-Error: 529"))
    assert found.status == 529
    refused(529, found.body)
    cut_off = events(faulty(b"error; after=2; code=503", stream=True).body)
    assert [name for name, _ in cut_off] == [
        *("message_start", "content_block_start", "content_block_delta", "content_block_delta"),
        *("content_block_stop", "error"),
    ]
    assert cut_off[-1].data["error"]["type"] == "overloaded_error"
    endless = events(faulty(b"no-done", stream=True).body)
    assert endless[-1].name == "message_delta"
    whole_one = faulty(b"error; after=2; code=503")
    assert whole_one.status == 503
    refused(503, whole_one.body)
