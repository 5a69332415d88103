"""As much of `IRequest` as Klein uses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from klein import Klein
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.testing import StringTransport
from twisted.logger import LogLevel, capturedLogs
from twisted.python.failure import Failure

from tests.wire.channel import Server, get, read_replies
from tests.wire.recorder import DATE, STREAM, made

# --- what was asked


def test_headers() -> None:
    request, _ = made(host=b"sim:8000", accept=b"a/b", umlaut=b"\xfc")
    assert request.getHeader("Accept") == "a/b"
    assert request.getHeader(b"ACCEPT") == b"a/b"
    assert request.getHeader("umlaut") == "ü"
    assert request.getHeader("absent") is None
    assert request.getHeader(b"absent") is None
    assert request.requestHeaders.getRawHeaders(b"Accept") == [b"a/b"]


@pytest.mark.parametrize(
    ("query", "args"),
    [
        (b"", {}),
        (b"?a=1&b=2&a=3&c=&d", {b"a": [b"1", b"3"], b"b": [b"2"], b"c": [b""], b"d": [b""]}),
        (b"?a=x+y%20z", {b"a": [b"x y z"]}),
        (b"?a=%C3%A9", {b"a": [b"\xc3\xa9"]}),
        (b"?a=%ff&%fe=1", {b"a": [b"\xff"], b"\xfe": [b"1"]}),
        (b"?a=\xff", {b"a": [b"\xff"]}),
        (b"?a=b=c?d", {b"a": [b"b=c?d"]}),
    ],
)
def test_args(query: bytes, args: dict[bytes, list[bytes]]) -> None:
    assert made(uri=b"/path" + query)[0].args == args


@pytest.mark.parametrize(
    ("uri", "postpath"),
    [
        (b"/", [b""]),
        (b"/v1/models/a%2Fb?x=/y", [b"v1", b"models", b"a", b"b"]),
        (b"/v1/models/", [b"v1", b"models", b""]),
        (b"//a", [b"", b"a"]),
        (b"/%ff", [b"\xff"]),
    ],
)
def test_path_segments(uri: bytes, postpath: list[bytes]) -> None:
    request, _ = made(uri=uri)
    assert (request.prepath, request.postpath) == ([], postpath)
    request.prepath.append(request.postpath.pop(0))
    assert (request.prepath, request.postpath) == ([postpath[0]], postpath[1:])
    request.postpath = [b"else"]
    assert request.postpath == [b"else"]


def test_content() -> None:
    request, _ = made()
    request.body = b"abc"
    assert request.content.read() == b"abc"


@pytest.mark.parametrize(
    ("host", "name"),
    [
        (b"sim", b"sim"),
        (b"sim:80", b"sim"),
        (b"[::1]:80", b"[::1]"),
        (b"[::1]", b"[::1]"),
        (b"", b""),
        (None, b"localhost"),
    ],
)
def test_host_name(host: bytes | None, name: bytes) -> None:
    request, _ = made(**({} if host is None else {"host": host}))
    assert request.getRequestHostname() == name


def test_addresses_and_security() -> None:
    request, channel = made()
    channel.transport = StringTransport(IPv4Address("TCP", "::1", 80), IPv4Address("TCP", "::2", 90))
    assert (request.getHost(), request.getClientAddress()) == (
        IPv4Address("TCP", "::1", 80),
        IPv4Address("TCP", "::2", 90),
    )
    assert not request.isSecure()
    channel.transport.getPeerCertificate = lambda: None
    assert request.isSecure()


# --- responses in Klein's way


def test_write_and_finish_make_a_whole_response() -> None:
    request, channel = made()
    request.setResponseCode(409, b"ignored")
    request.setHeader("Content-Type", "text/html")
    request.setHeader(b"X-A", b"b")
    request.setHeader("X-Umlaut", "ü")
    request.setHeader(b"Content-Length", b"99")
    request.setHeader("Transfer-Encoding", "chunked")
    request.setHeader("Connection", "close")
    request.write(b"one ")
    request.write(b"")
    request.write(b"two")
    assert channel.writes == []
    request.finish()
    assert channel.writes == [
        b"HTTP/1.1 409 Conflict\r\n" + DATE + b"x-a: b\r\nx-umlaut: \xfc\r\n"
        b"content-type: text/html\r\ncontent-length: 7\r\n\r\none two"
    ]
    assert channel.done == [request]


def test_plain_text_unless_said_otherwise() -> None:
    request, channel = made()
    request.write(b"x")
    request.finish()
    assert b"\r\ncontent-type: text/plain; charset=utf-8\r\n" in channel.writes[0]


def test_what_finish_is_given_ends_a_written_response() -> None:
    request, channel = made()
    request.write(b"one ")
    request.finish(b"two")
    assert channel.writes[0].endswith(b"content-length: 7\r\n\r\none two")


@pytest.mark.parametrize("name", ["X-A", "Content-Type"])
@pytest.mark.parametrize("value", ["a\r\nx-evil: 1", "a\nx-evil: 1", "a\rx-evil: 1"])
def test_a_header_value_cannot_make_another_header(name: str, value: str) -> None:
    request, channel = made()
    request.setHeader(name, value)
    request.finish()
    (reply,) = read_replies(channel.writes[0], [b"GET"], ended=False)
    assert b"x-evil" not in reply.headers


def test_setting_a_header_again_replaces_it() -> None:
    request, channel = made()
    request.setHeader("X-A", "one")
    request.setHeader("x-a", "two")
    request.finish()
    (reply,) = read_replies(channel.writes[0], [b"GET"], ended=False)
    assert reply.headers[b"x-a"] == b"two"


@pytest.mark.parametrize("code", [204, 304])
def test_codes_without_body_have_no_length_either(code: int) -> None:
    request, channel = made()
    request.setResponseCode(code)
    request.finish()
    (reply,) = read_replies(channel.writes[0], [b"GET"], ended=False)
    assert (reply.status, reply.body) == (code, b"")


def test_writing_to_a_started_stream_sends() -> None:
    request, channel = made()
    request.start(200, b"text/event-stream")
    request.write(b"")
    request.write(b"abc")
    request.finish()
    assert channel.writes == [STREAM, b"3\r\nabc\r\n", b"0\r\n\r\n"]


def test_an_unexpected_failure_is_logged_and_answered_500() -> None:
    request, channel = made(b"POST", b"/v1/x")
    with capturedLogs() as events:
        request.processingFailed(Failure(ValueError("on purpose")))
    (reply,) = read_replies(b"".join(channel.writes), [b"POST"], ended=False)
    assert (reply.status, reply.body) == (500, b"500 /v1/x Internal server error")
    assert b"on purpose" not in channel.writes[0]
    (event,) = events
    assert event["log_level"] is LogLevel.critical
    assert event["log_failure"].check(ValueError)


def test_an_unexpected_failure_cuts_a_stream() -> None:
    request, channel = made()
    request.start(200, b"text/event-stream")
    with capturedLogs() as events:
        request.processingFailed(Failure(ValueError("on purpose")))
    assert (len(events), channel.writes, channel.transport.disconnected) == (1, [STREAM], True)


def test_klein_answers_through_it() -> None:
    app = Klein()
    waiting: list[Deferred[bytes]] = []

    @app.route("/now/<name>")
    def now(request: Any, name: str) -> str:
        request.setHeader("X-Name", name)
        return f"hello {name}"

    @app.route("/later")
    def later(request: Any) -> Deferred[bytes]:
        waiting.append(Deferred())
        return waiting[0]

    @app.route("/fails")
    def fails(request: Any) -> str:
        raise ValueError("on purpose")

    # Registers how Klein adapts our requests.
    import llmdsim.web.router  # noqa: F401

    server = Server(app.resource().render)
    client = server.connect().send(get(b"/now/ann"), get(b"/later"), get(b"/fails"))
    with capturedLogs() as events:
        waiting[0].callback(b"done")
    now_reply, later_reply, failed = client.replies()
    assert (now_reply.body, now_reply.headers[b"x-name"]) == (b"hello ann", b"ann")
    assert (later_reply.status, later_reply.body) == (200, b"done")
    assert failed.status == 500
    assert [event["log_failure"].type for event in events if "log_failure" in event] == [ValueError]
    assert client.fate == "open"


# --- every response can be read

#: Line breaks included; other control characters are the caller's to avoid.
HEADER_TEXT = st.sampled_from([*"\r\n", *map(chr, range(0x20, 0x7F)), *map(chr, range(0x80, 0x100))])


@given(
    status=st.integers(200, 599).filter(lambda status: status not in (204, 304)),
    headers=st.dictionaries(
        st.sampled_from(["x-a", "x-b", "content-type"]), st.text(HEADER_TEXT, max_size=20)
    ),
    body=st.binary(max_size=300),
)
@settings(deadline=None)
def test_written_responses_are_read_back(status: int, headers: dict[str, str], body: bytes) -> None:
    request, channel = made()
    request.setResponseCode(status)
    for name, value in headers.items():
        request.setHeader(name, value)
    request.write(body)
    request.finish()
    (reply,) = read_replies(b"".join(channel.writes), [b"GET"], ended=False)
    assert (reply.status, reply.body) == (status, body)
    assert {name.encode() for name in headers} <= reply.headers.keys()
