"""Requests: the exact bytes of their responses, and their end."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.logger import capturedLogs
from twisted.python.failure import Failure

from tests.wire.channel import read_replies
from tests.wire.recorder import DATE, STREAM, made

# --- whole responses


def test_respond() -> None:
    request, channel = made()
    request.respond(200, b'{"a":1}')
    head = b"content-type: application/json\r\ncontent-length: 7\r\n\r\n"
    assert channel.writes == [b"HTTP/1.1 200 OK\r\n" + DATE + head + b'{"a":1}']
    assert channel.done == [request]
    assert (request.started, request.finished) == (True, True)


def test_respond_with_type_and_further_headers() -> None:
    request, channel = made()
    request.respond(429, b"wait", b"text/plain", b"retry-after: 1\r\nx-a: b\r\n")
    assert channel.writes == [
        b"HTTP/1.1 429 Too Many Requests\r\n" + DATE + b"retry-after: 1\r\nx-a: b\r\n"
        b"content-type: text/plain\r\ncontent-length: 4\r\n\r\nwait"
    ]


def test_respond_with_an_empty_body() -> None:
    request, channel = made()
    request.respond(200, b"")
    assert channel.writes[0].endswith(b"content-length: 0\r\n\r\n")


def test_respond_to_head() -> None:
    request, channel = made(b"HEAD")
    request.respond(200, b"1234")
    head = b"content-type: application/json\r\ncontent-length: 4\r\n\r\n"
    assert channel.writes == [b"HTTP/1.1 200 OK\r\n" + DATE + head]


@pytest.mark.parametrize(
    ("version", "keep_alive", "line"),
    [
        (b"HTTP/1.1", True, b""),
        (b"HTTP/1.1", False, b"connection: close\r\n"),
        (b"HTTP/1.0", True, b"connection: keep-alive\r\n"),
        (b"HTTP/1.0", False, b"connection: close\r\n"),
    ],
)
def test_what_is_said_of_the_connection(version: bytes, keep_alive: bool, line: bytes) -> None:
    for answer in (lambda r: r.respond(200, b""), lambda r: r.respond_empty(200)):
        request, channel = made()
        request.clientproto, request.keep_alive = version, keep_alive
        answer(request)
        assert channel.writes[0].endswith(b"content-length: 0\r\n" + line + b"\r\n")


@pytest.mark.parametrize(
    ("status", "first", "length"),
    [
        (200, b"200 OK", b"content-length: 0\r\n"),
        (204, b"204 No Content", b""),
        (304, b"304 Not Modified", b""),
        (307, b"307 Temporary Redirect", b"content-length: 0\r\n"),
        (503, b"503 Service Unavailable", b"content-length: 0\r\n"),
    ],
)
def test_respond_empty(status: int, first: bytes, length: bytes) -> None:
    request, channel = made()
    request.respond_empty(status, b"x-a: b\r\n")
    assert channel.writes == [b"HTTP/1.1 " + first + b"\r\n" + DATE + b"x-a: b\r\n" + length + b"\r\n"]
    assert channel.done == [request]


def test_only_the_first_response_counts() -> None:
    request, channel = made()
    request.respond(200, b"first")
    request.respond(500, b"second")
    request.respond_empty(204)
    request.start(200, b"text/plain", first=b"third")
    request.send(b"fourth")
    request.finish(b"sixth")
    request.fail(Failure(ValueError("seventh")))
    assert len(channel.writes) == 1
    assert channel.done == [request]


# --- streams


def test_stream() -> None:
    request, channel = made()
    request.start(200, b"text/event-stream")
    request.send(b"a" * 26)
    request.finish(b"last")
    assert channel.writes == [STREAM, b"1a\r\n" + b"a" * 26 + b"\r\n", b"4\r\nlast\r\n0\r\n\r\n"]
    assert channel.done == [request]


def test_stream_whose_first_bytes_go_with_the_head() -> None:
    request, channel = made()
    request.start(201, b"text/plain", b"x-a: b\r\n", b"first")
    assert channel.writes == [
        b"HTTP/1.1 201 Created\r\n" + DATE + b"x-a: b\r\ncontent-type: text/plain\r\n"
        b"transfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n"
    ]
    assert channel.done == []
    request.finish()
    assert channel.writes[1:] == [b"0\r\n\r\n"]


@pytest.mark.parametrize(("first", "body"), [(b"all", b"3\r\nall\r\n0\r\n\r\n"), (b"", b"0\r\n\r\n")])
def test_stream_in_one_write(first: bytes, body: bytes) -> None:
    request, channel = made()
    request.start(200, b"text/event-stream", first=first, end=True)
    assert channel.writes == [STREAM + body]
    assert channel.done == [request]


def test_stream_to_http_1_0() -> None:
    request, channel = made()
    request.clientproto = b"HTTP/1.0"
    request.start(200, b"text/plain", first=b"a")
    request.send(b"b")
    request.finish()
    head = b"HTTP/1.1 200 OK\r\n" + DATE + b"content-type: text/plain\r\nconnection: close\r\n\r\n"
    assert channel.writes == [head + b"a", b"b"]
    assert (channel.done, request.keep_alive) == ([request], False)


def test_stream_to_head() -> None:
    request, channel = made(b"HEAD")
    request.start(200, b"text/event-stream", first=b"a")
    request.send(b"b")
    request.finish(b"c")
    assert (channel.writes, channel.done) == ([STREAM], [request])


def test_a_stream_is_started_once() -> None:
    request, channel = made()
    request.start(200, b"text/event-stream")
    request.start(500, b"text/plain", first=b"again")
    assert channel.writes == [STREAM]


def test_a_stream_that_fails_is_cut_and_logged() -> None:
    request, channel = made()
    request.start(200, b"text/event-stream")
    with capturedLogs() as events:
        request.fail(Failure(ValueError("on purpose")))
    assert channel.transport.disconnected
    assert (channel.writes, len(events)) == ([STREAM], 1)


# --- the client's leaving


def test_loss_is_told_once_and_ends_the_request() -> None:
    request, channel = made()
    lost: list[bool] = []
    request.on_lost = lambda: lost.append(request.finished)
    request.on_drain = lambda: pytest.fail("drained after the end")
    request.start(200, b"text/event-stream")
    request.connection_lost()
    request.connection_lost()
    request.drained()
    request.send(b"a")
    request.finish(b"b")
    assert (lost, channel.writes, channel.done, request.finished) == ([True], [STREAM], [], True)


def test_a_finished_request_is_not_lost() -> None:
    request, _ = made()
    request.on_lost = lambda: pytest.fail("lost after the end")
    request.on_drain = lambda: pytest.fail("drained after the end")
    request.respond(200, b"")
    request.connection_lost()
    request.drained()


def test_draining() -> None:
    request, _ = made()
    request.drained()
    calls: list[int] = []
    request.on_drain = lambda: calls.append(1)
    request.drained()
    request.drained()
    assert calls == [1, 1]


# --- every response can be read

BODIES = st.binary(max_size=300)
STATUSES = st.integers(200, 599).filter(lambda status: status not in (204, 304))


@given(
    status=STATUSES,
    body=BODIES,
    method=st.sampled_from([b"GET", b"HEAD", b"POST"]),
    version=st.sampled_from([b"HTTP/1.0", b"HTTP/1.1"]),
    keep_alive=st.booleans(),
)
@settings(deadline=None)
def test_whole_responses_are_read_back(
    status: int, body: bytes, method: bytes, version: bytes, keep_alive: bool
) -> None:
    request, channel = made(method)
    request.clientproto, request.keep_alive = version, keep_alive
    request.respond(status, body)
    (reply,) = read_replies(b"".join(channel.writes), [method], ended=False)
    assert (reply.status, reply.complete) == (status, True)
    assert reply.body == (b"" if method == b"HEAD" else body)
    assert int(reply.headers[b"content-length"]) == len(body)


@given(
    parts=st.lists(BODIES.filter(bool), max_size=5),
    first=BODIES,
    last=BODIES,
    method=st.sampled_from([b"GET", b"HEAD"]),
    version=st.sampled_from([b"HTTP/1.0", b"HTTP/1.1"]),
)
@settings(deadline=None)
def test_streams_are_read_back(
    parts: list[bytes], first: bytes, last: bytes, method: bytes, version: bytes
) -> None:
    request, channel = made(method)
    request.clientproto = version
    request.start(200, b"text/plain", first=first)
    for part in parts:
        request.send(part)
    request.finish(last)
    (reply,) = read_replies(b"".join(channel.writes), [method], ended=True)
    expected = b"" if method == b"HEAD" else first + b"".join(parts) + last
    assert (reply.body, reply.complete) == (expected, True)
