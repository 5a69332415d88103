"""What a server must not accept: each fault with its status, and how the connection ends."""

from __future__ import annotations

import pytest

from llmdsim.wire.limits import LINGER_BYTES, LINGER_SECONDS, Limits
from tests.wire.channel import Client, Server, get, pieces, post, post_chunks, whole

LIMITS = Limits(header_size=1024, body_size=1000)


def refused(client: Client, status: int, *, before: int = 0) -> None:
    """After `before` good answers `client` gets `status` as a JSON error and our FIN, and is let go."""
    *good, refusal = client.replies()
    assert [reply.status for reply in good] == [200] * before
    assert (refusal.status, refusal.error["code"]) == (status, status)
    assert refusal.headers[b"content-type"] == b"application/json"
    assert refusal.headers[b"connection"] == b"close"
    assert refusal.error["message"]
    assert client.fate == "half-closed"
    client.send(b"more", get())
    assert len(client.replies()) == before + 1
    client.fin()
    client.settle()
    assert client.fate in ("closed", "reset")


CHUNKED = b"Transfer-Encoding: chunked"

FAULTS = [
    # Not HTTP.
    ("random bytes", b"\x00\xff\x17\n\r\n", 400),
    ("TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    ("text", b"hello world\r\n\r\n", 400),
    ("unknown method", b"BREW / HTTP/1.1\r\nHost: sim\r\n\r\n", 400),
    ("response", b"HTTP/1.1 200 OK\r\n\r\n", 400),
    ("target without slash", get(b"health"), 400),
    ("raw bytes in the target", get(b"/caf\xe9"), 400),
    ("blank in the target", get(b"/a b"), 400),
    ("NUL in the target", get(b"/a\x00b"), 400),
    ("control byte in the target", get(b"/a\x01b"), 400),
    ("DEL in the target", get(b"/a\x7fb"), 400),
    ("tab in the target", get(b"/a\tb"), 400),
    ("raw bytes in the query", get(b"/a?\xff"), 400),
    ("method in small letters", get(method=b"get"), 400),
    ("blank before the method", b" " + get(), 400),
    ("nothing but LF", b"GET / HTTP/1.1\nHost: sim\n\n", 400),
    ("LF after a header", b"GET / HTTP/1.1\r\nHost: sim\nX-A: b\r\n\r\n", 400),
    ("LF at the end of a head", b"GET / HTTP/1.1\r\nHost: sim\r\n\n", 400),
    # Versions.
    ("HTTP/2.0", get(version=b"2.0"), 505),
    ("almost HTTP/2's preface", b"PRI * HTTP/2.0\r\n\r\nSN\r\n\r\n", 400),
    ("HTTP/1.2", get(version=b"1.2"), 505),
    ("HTTP/3.7", get(version=b"3.7"), 505),
    ("HTTP/0.9 with its version", get(version=b"0.9"), 505),
    ("HTTP/0.9", b"GET /\r\n\r\n", 505),
    # Headers.
    ("no Host", get(host=False), 400),
    ("two Hosts", get(b"/", b"Host: sim"), 400),
    ("two different Hosts", get(b"/", b"Host: other"), 400),
    ("two Hosts on 1.0", get(b"/", b"Host: other", version=b"1.0"), 400),
    ("header without colon", get(b"/", b"nonsense"), 400),
    ("blank before the colon", get(b"/", b"X-A : b"), 400),
    ("folded header", get(b"/", b"X-A: b", b" c"), 400),
    ("NUL in a header", get(b"/", b"X-A: b\x00c"), 400),
    ("bare CR in a header", get(b"/", b"X-A: b\rc"), 400),
    ("control byte in a header", get(b"/", b"X-A: b\x01c"), 400),
    ("DEL in a header", get(b"/", b"X-A: b\x7fc"), 400),
    ("control byte in a name", get(b"/", b"X\x01A: b"), 400),
    ("header without name", get(b"/", b": b"), 400),
    # Lengths.
    ("negative length", get(b"/", b"Content-Length: -1", method=b"POST"), 400),
    ("length with a sign", get(b"/", b"Content-Length: +1", method=b"POST"), 400),
    ("length in words", get(b"/", b"Content-Length: five", method=b"POST"), 400),
    ("empty length", get(b"/", b"Content-Length:", method=b"POST"), 400),
    ("hexadecimal length", get(b"/", b"Content-Length: 0x5", method=b"POST"), 400),
    ("length with a blank", get(b"/", b"Content-Length: 1 1", method=b"POST"), 400),
    ("list of lengths", get(b"/", b"Content-Length: 1, 1", method=b"POST"), 400),
    ("two lengths", get(b"/", b"Content-Length: 1", b"Content-Length: 2", method=b"POST"), 400),
    ("the same length twice", get(b"/", b"Content-Length: 1", b"Content-Length: 1", method=b"POST"), 400),
    ("length beyond 64 bits", get(b"/", b"Content-Length: 18446744073709551617", method=b"POST"), 400),
    ("length, then chunked", get(b"/", b"Content-Length: 5", CHUNKED, method=b"POST"), 400),
    ("chunked, then length", get(b"/", CHUNKED, b"Content-Length: 5", method=b"POST"), 400),
    ("chunked on 1.0", get(b"/", CHUNKED, method=b"POST", version=b"1.0"), 400),
    # Transfer encodings.
    ("gzip, chunked", get(b"/", b"Transfer-Encoding: gzip, chunked", method=b"POST"), 501),
    ("gzip", get(b"/", b"Transfer-Encoding: gzip", method=b"POST"), 501),
    ("identity", get(b"/", b"Transfer-Encoding: identity", method=b"POST"), 501),
    ("xchunked", get(b"/", b"Transfer-Encoding: xchunked", method=b"POST"), 501),
    ("chunked with a parameter", get(b"/", b"Transfer-Encoding: chunked;q=1", method=b"POST"), 501),
    ("empty", get(b"/", b"Transfer-Encoding:", method=b"POST"), 400),
    ("chunked twice", get(b"/", CHUNKED, CHUNKED, method=b"POST"), 400),
    ("vertical tab", get(b"/", b"Transfer-Encoding: \x0bchunked", method=b"POST"), 400),
    # Chunks.
    ("chunk size not a number", get(b"/", CHUNKED, method=b"POST") + b"zz\r\nabc", 400),
    ("negative chunk size", get(b"/", CHUNKED, method=b"POST") + b"-5\r\nhello\r\n", 400),
    ("empty chunk size", get(b"/", CHUNKED, method=b"POST") + b"\r\n0\r\n\r\n", 400),
    ("chunk longer than its size", get(b"/", CHUNKED, method=b"POST") + b"2\r\nhello\r\n0\r\n\r\n", 400),
    ("chunk size beyond 64 bits", get(b"/", CHUNKED, method=b"POST") + b"1" + b"0" * 16 + b"\r\n", 400),
    ("bare LF after a chunk size", get(b"/", CHUNKED, method=b"POST") + b"5\nhello\r\n0\r\n\r\n", 400),
    ("bare LF after a chunk", get(b"/", CHUNKED, method=b"POST") + b"5\r\nhello\n0\r\n\r\n", 400),
    ("blank before a chunk size", get(b"/", CHUNKED, method=b"POST") + b" 5\r\nhello\r\n0\r\n\r\n", 400),
    ("LF in an extension", get(b"/", CHUNKED, method=b"POST") + b"5;a\nb\r\nhello\r\n0\r\n\r\n", 400),
    ("folded trailer", get(b"/", CHUNKED, method=b"POST") + b"0\r\nX-A: b\r\n c\r\n\r\n", 400),
    ("length in a trailer", get(b"/", CHUNKED, method=b"POST") + b"0\r\nContent-Length: 5\r\n\r\n", 400),
    # What is not done here.
    ("CONNECT", get(b"sim:443", method=b"CONNECT"), 501),
    ("unknown expectation", get(b"/", b"Expect: tea", b"Content-Length: 2", method=b"POST") + b"{}", 417),
]


@pytest.mark.parametrize(("message", "status"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS])
@pytest.mark.parametrize("size", [100_000, 1])
@pytest.mark.parametrize("before", [0, 1])
def test_faults(message: bytes, status: int, size: int, before: int) -> None:
    server = Server(whole)
    client = server.connect().send(*pieces(post(b"{}") * before + message, size))
    assert len(server.requests) == before
    refused(client, status, before=before)


@pytest.mark.parametrize(
    "packets", [[b"GET /\r\n"], [b"GET /", b"\r\n"], [b"GET /\r", b"\n"], [b"\r\nGET /", b"\n"]]
)
def test_http_0_9_needs_no_blank_line(packets: list[bytes]) -> None:
    server = Server(whole)
    refused(server.connect().send(*packets), 505)
    assert server.requests == []


@pytest.mark.parametrize("message", [get(host=False, version=b"1.0"), get(b"/", b"Host:", host=False)])
def test_no_host_is_needed_on_1_0_and_it_may_be_empty(message: bytes) -> None:
    assert Server(whole).connect().send(message).statuses() == [200]


def test_the_path_of_a_refused_request_is_given_to_the_maker_of_the_error() -> None:
    client = Server(whole).connect().send(get(b"/v1/messages?x=1", b"Expect: tea"))
    assert client.replies()[0].error["path"] == "/v1/messages"


@pytest.mark.parametrize(
    ("message", "known"),
    [
        (get(b"/", b"X-Id: a", host=False), b"a"),
        (post(b"x" * 2000, b"X-Id: a"), b"a"),
        (b"GET / HTTP/1.1\r\nX-Id: a\r\nX-Long: " + b"a" * 1100, b"a"),
        (get(b"/", b"X-Id: a", b"X-B: c", b"nonsense"), b"a"),
        (get(b"/", b"nonsense", b"X-Id: a"), b"none"),
        (b"GET /" + b"a" * 1100, b"none"),
        (b"nonsense\r\n\r\n", b"none"),
    ],
    ids=["refused", "body", "head", "behind it", "before it", "line", "nonsense"],
)
@pytest.mark.parametrize("before", [0, 1])
def test_headers_of_every_response_are_made_from_what_was_read(
    message: bytes, known: bytes, before: int
) -> None:
    server = Server(whole, LIMITS)
    server.site.common_headers = lambda request: b"x-got: %b\r\n" % request.headers.get(b"x-id", b"none")
    client = server.connect().send(*[get(b"/", b"X-Id: other")] * before, message)
    assert client.replies()[-1].status >= 400
    assert client.replies()[-1].headers[b"x-got"] == known


def test_a_request_that_never_ends_keeps_its_own_headers_when_it_times_out() -> None:
    server = Server(whole, Limits(idle_time=4.0))
    server.site.common_headers = lambda request: b"x-got: %b\r\n" % request.headers[b"x-id"]
    client = server.connect().send(post(b"hello", b"X-Id: a")[:-1])
    server.wait(6)
    assert [(reply.status, reply.headers[b"x-got"]) for reply in client.replies()] == [(408, b"a")]


def test_a_refused_head_has_no_body() -> None:
    client = Server(whole).connect().send(get(host=False, method=b"HEAD"))
    (reply,) = client.replies(b"HEAD")
    assert reply.status == 400
    assert client.received.endswith(b"\r\n\r\n")


# --- limits on the head


@pytest.mark.parametrize("size", [100_000, 500, 1])
@pytest.mark.parametrize(
    ("message", "status"),
    [
        (get(b"/" + b"a" * 1100), 414),
        (get(b"/?" + b"a" * 5000), 414),
        (get(b"/", b"X-A: " + b"a" * 1100), 431),
        (get(b"/", *[b"X-%d: a" % number for number in range(200)]), 431),
        (get(b"/", *[b"X-A: a"] * 200), 431),
        (get(b"/", b"X-" + b"a" * 1100 + b": a"), 431),
        (b"GET /" + b"a" * 1100, 414),
        (b"GET / HTTP/1.1\r\nHost: sim\r\nX-A: " + b"a" * 1100, 431),
        (b"GET / HTTP/1.1\r\nHost: sim\r\nX-" + b"a" * 1100, 431),
        (b"\r\n" * 600, 431),
    ],
    ids=[
        "line",
        "query",
        "header",
        "many headers",
        "one header many times",
        "name",
        "endless line",
        "endless header",
        "endless name",
        "blank lines",
    ],
)
def test_heads_over_the_limit(message: bytes, status: int, size: int) -> None:
    client = Server(whole, LIMITS).connect().send(*pieces(message, size))
    refused(client, status)


def test_a_head_within_the_limit_is_served_whatever_follows_it() -> None:
    message = post(b"x" * 900, b"X-A: " + b"a" * 800)
    client = Server(whole, LIMITS).connect().send(message * 5).send_bytes(message * 2)
    assert client.statuses() == [200] * 7


@pytest.mark.parametrize("before", [0, 1])
def test_the_limit_holds_for_the_second_head_too(before: int) -> None:
    client = Server(whole, LIMITS).connect().send(post(b"x") * before + b"GET / HT")
    client.send(b"TP/1.1\r\nX-A: ", *[b"a" * 100] * 12)
    refused(client, 431, before=before)


@pytest.mark.parametrize("size", [10_000, 1500, 100])
def test_the_limit_holds_for_whole_heads_behind_another(size: int) -> None:
    message = post(b"x") + get(b"/", b"X-A: " + b"a" * 1100)
    client = Server(whole, LIMITS).connect().send(*pieces(message, size))
    refused(client, 431, before=1)


@pytest.mark.parametrize(
    "packet",
    [b"0\r\nX-A: " + b"a" * 1100, b"0\r\n" + b"X-A: a\r\n" * 200, b"5;" + b"a" * 1100, b"5;a=" + b"1" * 1100],
    ids=["trailer", "trailers", "extension", "value of an extension"],
)
@pytest.mark.parametrize("size", [10_000, 100])
def test_what_goes_with_chunks_is_limited(packet: bytes, size: int) -> None:
    head = get(b"/", CHUNKED, method=b"POST")
    client = Server(whole, LIMITS).connect().send(head, *pieces(packet, size), *[b"a" * 1024] * 20)
    (refusal,) = client.replies()
    assert refusal.status in (400, 413, 431)
    refused(client, refusal.status)


# --- limits on the body


@pytest.mark.parametrize(
    "message",
    [
        post(b"x" * 1001),
        post_chunks([b"x" * 1001]),
        post_chunks([b"x" * 100] * 11),
        post_chunks([b"x"] * 1001),
    ],
    ids=["length", "one chunk", "chunks", "small chunks"],
)
@pytest.mark.parametrize("size", [100_000, 100, 1])
def test_bodies_over_the_limit(message: bytes, size: int) -> None:
    server = Server(whole, LIMITS)
    client = server.connect().send(*pieces(message, size))
    assert server.requests == []
    refused(client, 413)


@pytest.mark.parametrize("message", [post(b"x" * 1000), post_chunks([b"x" * 100] * 10)])
def test_a_body_of_just_the_limit_is_served(message: bytes) -> None:
    assert Server(whole, LIMITS).connect().send(message * 2).statuses() == [200, 200]


def test_expect_is_refused_before_the_body_is_sent() -> None:
    head = get(b"/", b"Expect: 100-continue", b"Content-Length: 1001", method=b"POST")
    refused(Server(whole, LIMITS).connect().send(head), 413)


def test_a_chunked_body_that_was_told_to_continue_may_still_be_refused() -> None:
    message = post_chunks([b"x" * 1001], b"Expect: 100-continue")
    head, _, body = message.partition(b"\r\n\r\n")
    client = Server(whole, LIMITS).connect().send(head + b"\r\n\r\n", body)
    assert client.statuses() == [100, 413]


def test_an_upgrade_offer_does_not_lift_the_limits() -> None:
    offer = (b"Connection: Upgrade", b"Upgrade: h2c")
    refused(Server(whole, LIMITS).connect().send(post(b"x" * 1001, *offer)), 413)
    refused(Server(whole, LIMITS).connect().send(post_chunks([b"x" * 1001], *offer)), 413)
    refused(
        Server(whole, LIMITS).connect().send(post_chunks([b"x"], *offer).replace(b"\r\n1\r\n", b"\r\nz\r\n")),
        400,
    )


# --- lingering


def test_after_a_refusal_the_connection_lingers_two_seconds() -> None:
    server = Server(whole, LIMITS)
    client = server.connect().send(get(b"/", b"Content-Length: 9999", method=b"POST"))
    for _ in range(7):
        client.send(b"x" * 10_000)
        server.wait(LINGER_SECONDS / 8)
        assert client.fate == "half-closed"
    server.wait(LINGER_SECONDS / 8)
    assert client.fate == "closed"
    assert client.statuses() == [413]
    assert server.site.connections == set()


def test_after_a_refusal_no_more_than_so_much_is_discarded() -> None:
    server = Server(whole, LIMITS)
    client = server.connect().send(get(b"/", b"Content-Length: 9999", method=b"POST"))
    packet = b"x" * 65536
    client.send(*[packet] * (LINGER_BYTES // 65536))
    assert client.fate == "half-closed"
    client.send(b"x")
    assert client.fate == "reset"
    assert client.statuses() == [413]


def test_lingering_reads_on_though_pipelined_bytes_had_stopped_reading() -> None:
    server = Server(limits=LIMITS)
    client = server.connect().send(get() + b"nonsense\r\n\r\n", *[b"x" * 1000] * 100)
    assert client.transport.producerState == "paused"
    server.requests[0].respond(200, b"")
    server.settle()
    assert client.transport.producerState == "producing"
    refused(client, 400, before=1)


def test_a_refusal_is_whole_when_its_client_reads_late() -> None:
    server = Server(whole, LIMITS)
    client = server.connect()
    client.transport.client_reads = False
    client.send(b"nonsense\r\n\r\n")
    assert client.fate == "open"
    client.transport.client_reads = True
    client.transport.drain()
    refused(client, 400)


def test_a_client_gone_while_lingering_leaves_nothing_behind() -> None:
    server = Server(whole)
    client = server.connect().send(b"nonsense\r\n\r\n").rst()
    server.site.stop()
    assert client.fate == "lost"
    assert server.site.connections == set()
    assert server.clock.getDelayedCalls() == []


def test_a_slow_reader_has_the_replies_before_a_refusal_whole() -> None:
    server = Server(lambda request: request.respond(200, b"x" * 60_000), LIMITS)
    client = server.connect()
    client.transport.client_reads = False
    client.send(get() + b"nonsense\r\n\r\n")
    server.wait(5 * LINGER_SECONDS)
    assert (client.received, client.fate) == (b"", "open")
    client.transport.client_reads = True
    client.transport.drain()
    good, refusal = client.replies()
    assert (len(good.body), good.complete) == (60_000, True)
    assert (refusal.status, refusal.complete) == (400, True)
    assert client.fate == "closed"


@pytest.mark.parametrize("serve_half_closed", [True, False])
def test_a_refused_client_that_has_closed_its_side_is_not_lingered_for(serve_half_closed: bool) -> None:
    server = Server(limits=Limits(serve_half_closed=serve_half_closed))
    client = server.connect().send(get() + b"nonsense\r\n\r\n").fin()
    server.requests[0].respond(200, b"")
    server.settle()
    assert (client.statuses(), client.fate) == ([200, 400], "closed")
