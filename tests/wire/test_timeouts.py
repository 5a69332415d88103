"""Time-outs: idle connections, stalled heads and bodies, and clients that drip."""

from __future__ import annotations

import pytest
from hyperframe.frame import PingFrame

from llmdsim.wire.limits import LINGER_SECONDS, Limits
from tests.wire.channel import Client, Server, get, pieces, post, post_chunks, whole
from tests.wire.http2.client import H2Client

PATIENCE = 8.0
#: Time-outs are looked for twice a second.
SLACK = 1.25
LIMITS = Limits(idle_time=PATIENCE)


def refused(server: Server, client: Client) -> None:
    (refusal,) = client.replies()
    assert (refusal.status, refusal.error["code"], client.fate) == (408, 408, "half-closed")
    server.wait(LINGER_SECONDS)
    assert client.fate == "closed"
    assert server.site.connections == set()


@pytest.mark.parametrize("requests", [0, 1, 3])
def test_an_idle_connection_is_closed_silently(requests: int) -> None:
    server = Server(whole, LIMITS)
    client = server.connect()
    for _ in range(requests):
        server.wait(PATIENCE - SLACK)
        client.send(get())
    server.wait(PATIENCE - SLACK)
    assert client.fate == "open"
    server.wait(2 * SLACK)
    assert (client.statuses(), client.fate) == ([200] * requests, "closed")
    assert server.site.connections == set()


@pytest.mark.parametrize("offset", [0.0, 0.1, 0.3, 0.7])
@pytest.mark.parametrize("http2", [False, True])
def test_no_connection_ends_before_its_time(http2: bool, offset: float) -> None:
    server = Server(whole, LIMITS)
    client = H2Client(server).client if http2 else server.connect()
    server.wait(offset)
    if http2:
        client.send(PingFrame(0, b"12345678").serialize())
    else:
        client.send(get())
    server.wait(PATIENCE)
    assert client.fate == "open"
    server.wait(1.0)
    assert client.fate != "open"


def test_the_time_a_request_takes_is_not_idle_time() -> None:
    server = Server(limits=LIMITS)
    client = server.connect().send(get())
    server.wait(5 * PATIENCE)
    server.requests[0].respond(200, b"")
    server.wait(PATIENCE - SLACK)
    assert client.fate == "open"
    server.wait(2 * SLACK)
    assert (client.statuses(), client.fate) == ([200], "closed")


STALLED = [get()[:1], get()[:9], get()[:-2], post(b"hello")[:-1], post_chunks([b"hello"])[:-2]]


@pytest.mark.parametrize("sent", STALLED, ids=["byte", "line", "head", "body", "chunk"])
def test_a_stalled_request_is_408(sent: bytes) -> None:
    server = Server(whole, LIMITS)
    client = server.connect()
    server.wait(PATIENCE - SLACK)
    client.send(sent)
    server.wait(PATIENCE - SLACK)
    assert client.fate == "open"
    server.wait(2 * SLACK)
    refused(server, client)


def test_a_client_told_to_continue_must_do_so() -> None:
    server = Server(whole, LIMITS)
    client = server.connect().send(post(b"hello", b"Expect: 100-continue")[:-5])
    server.wait(PATIENCE + SLACK)
    assert client.statuses() == [100, 408]


def test_a_dripping_head_does_not_postpone_its_end() -> None:
    server = Server(whole, LIMITS)
    client = server.connect()
    for byte in pieces(get(b"/" + b"a" * 100), 1)[: round((PATIENCE + SLACK) * 4)]:
        client.send(byte)
        server.wait(0.25)
    refused(server, client)


@pytest.mark.parametrize("requests", [0, 1])
def test_dripping_blank_lines_are_no_request(requests: int) -> None:
    server = Server(whole, LIMITS)
    client = server.connect()
    for _ in range(requests):
        client.send(get())
    for _ in range(round((PATIENCE + SLACK) * 4)):
        client.send(b"\r\n")
        server.wait(0.25)
    assert (client.statuses(), client.fate) == ([200] * requests, "closed")


def test_a_slow_body_may_take_its_time() -> None:
    server = Server(whole, LIMITS)
    head, _, body = post(b"x" * 20).partition(b"\r\n\r\n")
    client = server.connect().send(head + b"\r\n\r\n")
    for byte in pieces(body, 1):
        server.wait(2)
        client.send(byte)
    assert (client.statuses(), client.fate) == ([200], "open")


def test_a_request_begun_while_another_was_answered_has_its_full_time_afterwards() -> None:
    server = Server(limits=LIMITS)
    client = server.connect().send(get(b"/slow") + get(b"/next")[:9])
    server.wait(3 * PATIENCE)
    server.requests[0].respond(200, b"")
    server.wait(PATIENCE - SLACK)
    assert client.statuses() == [200]
    client.send(get(b"/next")[9:])
    server.requests[1].respond(200, b"")
    assert client.statuses() == [200, 200]


def test_a_stalled_second_request_is_408_after_the_reply_to_the_first() -> None:
    server = Server(limits=LIMITS)
    client = server.connect().send(get() + post(b"hello")[:-1])
    server.wait(3 * PATIENCE)
    assert client.received == b""
    server.requests[0].respond(200, b"")
    server.wait(PATIENCE + SLACK)
    assert client.statuses() == [200, 408]


def test_without_a_limit_nothing_is_timed_out() -> None:
    server = Server(whole, Limits(idle_time=0))
    idle, stalled = server.connect().send(get()), server.connect().send(get()[:-2])
    server.wait(300)
    assert (idle.fate, stalled.fate) == ("open", "open")
    assert stalled.send(b"\r\n").statuses() == [200]


def test_a_site_started_long_after_it_was_made_times_nobody_out_early() -> None:
    server = Server(whole, LIMITS)
    server.site.stop()
    server.wait(10 * PATIENCE)
    server.site.start()
    client = server.connect()
    server.wait(PATIENCE - SLACK)
    assert client.fate == "open"


def test_many_idle_connections_end_together() -> None:
    server = Server(whole, LIMITS)
    clients = [server.connect() for _ in range(2000)]
    server.wait(PATIENCE + SLACK)
    assert {client.fate for client in clients} == {"closed"}
    assert server.site.connections == set()
