"""Requests and responses in full, without their secrets."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmdsim.logs.http_dump import MOST, body_shown
from llmdsim.wire.request import Request
from tests.logs.rig import LoggedRank, of
from tests.web.clients import CHAT, fields, request
from tests.wire.channel import get, post


def dump(rig: LoggedRank) -> list[str]:
    return of("http_dump", rig.log.lines)


def test_a_request_and_its_response() -> None:
    with LoggedRank("--log-http", "--mode", "echo") as rig:
        headers = ("Authorization: Bearer sk-1", "X-Api-Key: sk-1", "Cookie: sk-1", "X-Mine: yes")
        rig.connect().send(request(f"{CHAT}?token=sk-1&a=b", fields(CHAT), *headers))
        asked, answered = dump(rig)
    assert asked.startswith(f"request: POST {CHAT}?token=********&a=b HTTP/1.1 from 192.168.1.1:54321, ")
    assert "authorization: Bearer ********, x-api-key: ********, cookie: ********, x-mine: yes, " in asked
    assert '"content": "one two"' in asked
    assert answered.startswith(f"response: 200 to POST {CHAT}?token=********&a=b from 192.168.1.1:54321, ")
    assert "content-type: application/json, content-length: " in answered
    assert '"object":"chat.completion"' in answered
    assert "sk-1" not in rig.log.text


def test_streams_are_not_shown() -> None:
    with LoggedRank("--log-http", "--inter-token-latency", "1s") as rig:
        rig.post(CHAT, fields(CHAT, stream=True))
        rig.post(CHAT, fields(CHAT, stream=True)).rst()
        rig.post(CHAT, fields(CHAT)).rst()
        rig.clock.pump([1.0] * 9)
        answered = [line for line in dump(rig) if line.startswith("response: ")]
    assert "chat.completion.chunk" not in rig.log.text
    assert answered[0].endswith("body a stream, cut when the client left")
    assert answered[1] == f"response: none to POST {CHAT}, 192.168.1.1:54321 left before it"
    assert answered[2].endswith("body a stream")
    assert "text/event-stream" in answered[2]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (get(b"/", b"Content-Length: 999999999"), 413),
        (get(b"/", b"A: " + b"x" * 70_000), 431),
        (get(b"/", host=False), 400),
    ],
)
def test_refusals_are_shown_too(data: bytes, status: int) -> None:
    with LoggedRank("--log-http") as rig:
        rig.connect().send(data)
        asked, answered = dump(rig)
    assert asked.endswith("refused unread")
    assert answered.startswith(f"response: {status} to {'- -' if data.startswith(b'nonsense') else 'GET /'} ")
    assert '"error"' in answered


def test_and_so_are_errors_and_bodiless_answers() -> None:
    with LoggedRank("--log-http") as rig:
        rig.connect().send(post(b"{", path=CHAT.encode()), get(b"/health"), get(b"/version", method=b"HEAD"))
        lines = dump(rig)
    assert "response: 400 to POST" in lines[1]
    assert lines[3].endswith("body empty")
    assert lines[5].endswith("body empty"), "as it was sent"
    assert len(lines) == 6


def test_objects_have_the_parts_as_fields() -> None:
    with LoggedRank("--log-http", "--log-format", "json") as rig:
        rig.connect().send(get(b"/version"))
        asked, answered = rig.log.objects
    assert (asked["method"], asked["uri"], asked["client"]) == ("GET", "/version", "192.168.1.1:54321")
    assert answered["status"] == 200
    assert json.loads(answered["body"]) == {"version": "0.33.0"}


def test_bodies_are_bounded_and_escaped() -> None:
    assert body_shown(b"a" * MOST) == "a" * MOST
    assert body_shown(b"a" * (MOST + 7)) == "a" * MOST + " (7 bytes more)"
    assert body_shown("\u00e9".encode() * MOST).endswith(f" ({MOST} bytes more)")
    assert body_shown(b"caf\xc3") == "4 bytes b'caf\\xc3'"
    assert body_shown(b"\xff\x00") == "2 bytes b'\\xff\\x00'"
    assert body_shown(b"") == "empty"


def test_binary_that_is_cut_is_still_escaped() -> None:
    shown = body_shown(b"\xff" * (MOST + 1))
    assert shown.startswith(f"{MOST + 1} bytes b'\\xff")
    assert shown.endswith("(1 bytes more)")


def test_without_the_flag_requests_are_plain() -> None:
    for flags in ((), ("--log-http", "-v", "1")):
        with LoggedRank(*flags) as rig:
            assert rig.site.request_type is Request
            rig.connect().send(get(b"/version"))
            assert rig.log.lines == []


def test_a_body_does_not_forge_lines() -> None:
    with LoggedRank("--log-http") as rig:
        rig.connect().send(post(b"a\n2026-11-30 00:00:00.000 ERROR fake: b\r\n", b"X-Y: \x1b[2J"))
        assert len(rig.log.lines) == 2
        assert "\x1b" not in rig.log.text


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=30), st.binary(max_size=30), st.binary(max_size=60))
def test_whatever_a_client_sends_is_two_lines(path: bytes, value: bytes, body: bytes) -> None:
    for form in ("text", "json"):
        with LoggedRank("--log-http", "--log-format", form) as rig:
            rig.connect().send(post(body, b"X-Mine: " + value, path=b"/" + path))
            lines = rig.log.lines
            assert lines == rig.log.text.splitlines()
            # What follows a head that ended early may be another request.
            assert len(lines) % 2 == 0
            if form == "json":
                assert all(json.loads(line)["logger"] == "llmdsim.logs.http_dump" for line in lines)
