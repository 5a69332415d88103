"""What HTTP/1.1 clients rely on: requests in every form, answered in the client's dialect."""

from __future__ import annotations

import pytest

from llmdsim.wire.limits import LINGER_SECONDS
from llmdsim.wire.request import Request
from tests.wire.channel import (
    Answer,
    Server,
    TCPTransport,
    UnixTransport,
    get,
    pieces,
    post,
    post_chunks,
    streamed,
    whole,
)

# --- one request


def test_request_reaches_the_application_with_all_its_parts() -> None:
    server = Server()
    server.connect().send(post(b"{}", b"X-Two: a", b"x-TWO: b", b"X-Empty:", path=b"/v1/chat%20x?a=1&b"))
    (request,) = server.requests
    assert (request.method, request.uri) == (b"POST", b"/v1/chat%20x?a=1&b")
    assert (request.path, request.query) == (b"/v1/chat x", b"a=1&b")
    assert request.body == b"{}"
    assert (request.clientproto, request.keep_alive) == (b"HTTP/1.1", True)
    assert request.headers == {b"host": b"sim", b"x-two": b"a, b", b"x-empty": b"", b"content-length": b"2"}


def test_tcp_connections_send_small_writes_at_once() -> None:
    transport = Server().connect(TCPTransport).transport
    assert isinstance(transport, TCPTransport)
    assert transport.no_delay


def test_a_transport_without_tcp_options_serves_too() -> None:
    client = Server(whole).connect(UnixTransport).send(get(b"/unix"))
    assert client.replies()[0].body == b"GET /unix "


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"/", b"/", b""),
        (b"/a%2Fb%20c", b"/a/b c", b""),
        (b"/%E6%A8%A1%ff%00", b"/\xe6\xa8\xa1\xff\x00", b""),
        (b"/a?b=%ff", b"/a", b"b=%ff"),
        (b"/a?url=http://x/y", b"/a", b"url=http://x/y"),
        (b"//a", b"//a", b""),
        (b"*", b"*", b""),
        (b"http://sim:8000/v1/models?x=1", b"/v1/models", b"x=1"),
        (b"HTTP://sim/health", b"/health", b""),
        (b"http://sim", b"/", b""),
        (b"http://sim?x=1", b"/", b"x=1"),
        (b"http://sim?x=/y", b"/", b"x=/y"),
    ],
)
def test_targets(target: bytes, path: bytes, query: bytes) -> None:
    server = Server()
    server.connect().send(get(target, method=b"OPTIONS"))
    assert [(request.path, request.query) for request in server.requests] == [(path, query)]


@pytest.mark.parametrize(
    "message",
    [
        post(b"hello"),
        post_chunks([b"hello"]),
        post_chunks([b"h", b"ell", b"o"]),
        post_chunks([b"hello"], trailers=b"X-Sum: 1\r\nHost: other\r\nX-Empty:\r\n"),
        get(b"/", b"Transfer-Encoding: CHUNKED", method=b"POST")
        + b'5;a=b;c="d e"\r\nhello\r\n0;last\r\n\r\n',
        get(b"/", b"Transfer-Encoding: chunked", method=b"POST") + b"0005\r\nhello\r\n000\r\n\r\n",
        b"\r\n\r\n" + post(b"hello"),
    ],
)
def test_bodies_in_every_framing(message: bytes) -> None:
    for size in (len(message), 7, 1):
        server = Server(whole)
        client = server.connect().send(*pieces(message, size), get(b"/next"))
        assert [request.body for request in server.requests] == [b"hello", b""]
        assert b"x-sum" not in server.requests[0].headers
        assert server.requests[0].headers[b"host"] == b"sim"
        assert client.statuses() == [200, 200]
        assert client.fate == "open"


def test_a_body_is_whole_before_the_request_is_handed_on() -> None:
    server = Server(whole)
    message = post(b"hello")
    client = server.connect().send(message[:-1])
    assert server.requests == []
    client.send(message[-1:])
    assert [request.body for request in server.requests] == [b"hello"]


# --- keep-alive and the end of a connection


def test_a_connection_serves_one_request_after_another() -> None:
    client = Server(whole).connect().send(get(b"/a"), post(b"b"), get(b"/c"))
    assert [reply.body for reply in client.replies()] == [b"GET /a ", b"POST / b", b"GET /c "]
    assert all(b"connection" not in reply.headers for reply in client.replies())
    assert client.fate == "open"


@pytest.mark.parametrize("answer", [whole, streamed])
def test_connection_close_is_honoured_and_said(answer: Answer) -> None:
    client = Server(answer).connect().send(get(b"/", b"Connection: close"))
    (reply,) = client.replies()
    assert reply.headers[b"connection"] == b"close"
    assert (reply.complete, client.fate) == (True, "closed")


@pytest.mark.parametrize("behind", [get(b"/second"), b"garbage", b"\r\n", b"\x16\x03\x01"])
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("late", [True, False])
def test_data_after_connection_close_is_ignored(behind: bytes, together: bool, late: bool) -> None:
    server = Server(None if late else whole)
    first = get(b"/first", b"Connection: close")
    client = server.connect().send(*([first + behind] if together else [first, behind]))
    if late:
        server.requests[0].respond(200, b"first")
        server.settle()
    assert len(server.requests) == 1
    assert client.statuses() == [200]
    # It lingers where there was more, lest a reset destroy the reply.
    more = behind != b"\r\n" if together else late
    assert client.fate == ("half-closed" if more else "closed")
    client.fin()
    server.settle()
    assert client.fate == "closed"


@pytest.mark.parametrize("leaves", ["fin", "rst", ""])
def test_a_client_that_sends_on_behind_connection_close_is_let_go(leaves: str) -> None:
    server = Server()
    client = server.connect().send(get(b"/", b"Connection: close"), b"x" * 100_000)
    server.requests[0].respond(200, b"y" * 100_000)
    server.settle()
    for _ in range(20):
        client.send(b"x" * 100_000)
    assert client.fate == "half-closed"
    if leaves:
        getattr(client, leaves)()
        server.settle()
    else:
        server.wait(LINGER_SECONDS)
    assert client.fate == ("lost" if leaves == "rst" else "closed")
    (reply,) = client.replies()
    assert (len(reply.body), reply.complete) == (100_000, True)
    server.site.stop()
    assert server.clock.getDelayedCalls() == []


def test_requests_behind_the_last_one_of_a_draining_site_do_not_cost_its_reply() -> None:
    server = Server()
    client = server.connect().send(get(b"/first"), post(b"x" * 1000) * 100)
    assert client.transport.producerState == "paused"
    server.site.closing = True
    server.requests[0].respond(200, b"first")
    server.settle()
    assert (client.statuses(), client.fate, client.transport.producerState) == (
        [200],
        "half-closed",
        "producing",
    )
    client.fin()
    server.settle()
    assert client.fate == "closed"
    assert len(server.requests) == 1


# --- HTTP/1.0


@pytest.mark.parametrize("answer", [whole, streamed])
def test_http_1_0_gets_its_answer_unchunked_and_the_end(answer: Answer) -> None:
    client = Server(answer).connect().send(get(b"/old", version=b"1.0", host=False))
    (reply,) = client.replies()
    assert (reply.body, reply.complete) == (b"GET /old ", True)
    assert reply.headers[b"connection"] == b"close"
    assert b"transfer-encoding" not in reply.headers
    assert client.fate == "closed"


def test_http_1_0_keep_alive() -> None:
    request = get(b"/old", b"Connection: keep-alive", version=b"1.0")
    client = Server(whole).connect().send(request, request)
    assert [reply.headers[b"connection"] for reply in client.replies()] == [b"keep-alive"] * 2
    assert client.fate == "open"


def test_http_1_0_keep_alive_cannot_outlive_a_stream() -> None:
    server = Server(streamed)
    client = server.connect().send(get(b"/old", b"Connection: keep-alive", version=b"1.0"))
    (reply,) = client.replies()
    assert reply.headers[b"connection"] == b"close"
    assert (reply.body, client.fate) == (b"GET /old ", "closed")


# --- HEAD


def test_head_is_told_the_length_and_no_more() -> None:
    client = Server(whole).connect().send(get(b"/a", method=b"HEAD") + get(b"/b"))
    head, following = client.replies()
    assert (head.status, head.headers[b"content-length"]) == (200, b"8")
    assert following.body == b"GET /b "


def test_head_of_a_stream_has_no_body() -> None:
    client = Server(streamed).connect().send(get(b"/a", method=b"HEAD"), get(b"/b"))
    head, following = client.replies()
    assert head.headers[b"transfer-encoding"] == b"chunked"
    assert following.body == b"GET /b "


def test_head_of_a_stream_on_http_1_0() -> None:
    client = Server(streamed).connect().send(get(b"/a", method=b"HEAD", version=b"1.0"))
    assert client.received.endswith(b"\r\n\r\n")
    assert client.fate == "closed"


# --- Expect

EXPECT = b"Expect: 100-continue"


@pytest.mark.parametrize(
    "message", [post(b"hello", EXPECT), post_chunks([b"hello"], b"expect: 100-Continue")]
)
def test_continue_is_sent_once_and_before_the_body(message: bytes) -> None:
    client = Server(whole).connect()
    head, _, body = message.partition(b"\r\n\r\n")
    client.send_bytes(head + b"\r\n\r")
    assert client.received == b""
    client.send(b"\n")
    assert client.statuses() == [100]
    client.send_bytes(body)
    assert client.statuses() == [100, 200]
    assert client.fate == "open"


def test_continue_is_not_needed_when_the_body_is_there() -> None:
    client = Server(whole).connect().send(post(b"hello", EXPECT))
    assert client.statuses() == [200]


@pytest.mark.parametrize("together", [True, False])
def test_continue_waits_its_turn(together: bool) -> None:
    server = Server()
    head, body = get(b"/second", EXPECT, b"Content-Length: 2", method=b"PUT"), b"hi"
    client = server.connect().send(*([get(b"/first") + head] if together else [get(b"/first"), head]))
    assert client.received == b""
    server.requests[0].respond(200, b"")
    assert client.statuses() == [200, 100]
    client.send(body)
    server.requests[1].respond(200, b"")
    assert client.statuses() == [200, 100, 200]


def test_continue_is_not_for_http_1_0() -> None:
    client = Server(whole).connect().send(post(b"hello", EXPECT, version=b"1.0")[:-1])
    assert client.received == b""
    assert client.send(b"o").statuses() == [200]


# --- offers of another protocol

#: As curl --http2 and the JDK's client put it.
OFFER = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA")


@pytest.mark.parametrize("size", [1, 5, 10_000])
@pytest.mark.parametrize(
    "message",
    [
        post(b"hello", *OFFER),
        post_chunks([b"hel", b"lo"], *OFFER),
        post_chunks([b"hello"], *OFFER, trailers=b"X-Sum: 1\r\n"),
    ],
    ids=["length", "chunked", "trailer"],
)
def test_an_offer_to_upgrade_is_ignored_and_the_body_kept(message: bytes, size: int) -> None:
    server = Server(whole)
    client = server.connect().send(*pieces(message * 2 + get(b"/next"), size))
    assert [reply.body for reply in client.replies()] == [b"POST / hello", b"POST / hello", b"GET /next "]
    assert [request.headers.get(b"upgrade") for request in server.requests] == [b"h2c", b"h2c", None]
    assert client.fate == "open"


@pytest.mark.parametrize(
    ("message", "fate"),
    [
        (get(b"/", b"Connection: Upgrade", b"Upgrade: websocket"), "open"),
        (get(b"/", b"Connection: Upgrade, close", b"Upgrade: h2c"), "half-closed"),
        (get(b"/", b"Connection: Upgrade", b"Upgrade: h2c", version=b"1.0"), "half-closed"),
    ],
)
def test_an_offer_to_upgrade_leaves_the_rest_of_the_request_as_it_was(message: bytes, fate: str) -> None:
    client = Server(whole).connect().send(message + get(b"/next"))
    assert client.statuses() == ([200, 200] if fate == "open" else [200])
    assert client.fate == fate
    client.fin()
    client.settle()
    assert client.fate == "closed"


def test_an_offer_to_upgrade_with_a_body_to_come_is_told_to_continue() -> None:
    message = post(b"hello", b"Connection: Upgrade", b"Upgrade: h2c", EXPECT)
    client = Server(whole).connect().send(message[:-5])
    assert client.statuses() == [100]
    assert client.send(b"hello").statuses() == [100, 200]


# --- the end of connections


def test_cut_ends_the_connection_in_the_middle_of_a_stream() -> None:
    def answer(request: Request) -> None:
        request.start(200, b"text/plain", first=b"half")
        raise ValueError("on purpose")

    client = Server(answer).connect().send(get())
    (reply,) = client.replies()
    assert (reply.body, reply.complete, client.fate) == (b"half", False, "reset")


def test_close_idle_ends_connections_between_requests_and_the_others_after_their_reply() -> None:
    server = Server()
    fresh = server.connect()
    served = server.connect().send(get(b"/served"))
    server.requests[0].respond(200, b"")
    busy = server.connect().send(get(b"/busy"))
    partial = server.connect().send(get(b"/partial")[:-2])
    server.site.close_idle()
    server.settle()
    assert [client.fate for client in (fresh, served, busy, partial)] == ["closed", "closed", "open", "open"]
    server.answer = whole
    partial.send(b"\r\n")
    server.requests[1].respond(200, b"busy")
    server.settle()
    assert (busy.statuses(), busy.fate) == ([200], "closed")
    assert (partial.statuses(), partial.fate) == ([200], "closed")
    assert server.site.connections == set()


def test_stop_ends_every_connection() -> None:
    server = Server()
    clients = [server.connect(), server.connect().send(get())]
    server.site.stop()
    server.settle()
    assert [client.fate for client in clients] == ["closed", "closed"]
    assert server.lost == server.requests
    assert server.site.connections == set()
    assert server.clock.getDelayedCalls() == []
