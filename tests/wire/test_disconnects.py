"""Clients that leave: FIN and RST at every point of an exchange, and what the application hears of it."""

from __future__ import annotations

from contextlib import suppress

import pytest

from llmdsim.wire.limits import Limits
from llmdsim.wire.request import Request
from tests.wire.channel import Server, get, post, whole

SERVING = Limits(serve_half_closed=True)


@pytest.mark.parametrize("limits", [Limits(), SERVING])
@pytest.mark.parametrize("sent", [b"", b"\r\n", get()[:9], get()[:-2], post(b"hello")[:-1]])
def test_fin_before_a_request_is_whole_closes_silently(sent: bytes, limits: Limits) -> None:
    server = Server(whole, limits)
    client = server.connect().send(*([sent] if sent else [])).fin()
    server.settle()
    assert (client.received, client.fate) == (b"", "closed")
    assert server.requests == []
    assert server.site.connections == set()


def test_fin_while_a_request_is_unanswered_is_a_disconnect() -> None:
    server = Server()
    client = server.connect().send(get()).fin()
    assert server.lost == []
    server.settle()
    assert server.lost == server.requests
    assert client.fate == "closed"
    server.wait(5)
    assert len(server.lost) == 1
    assert client.received == b""


def test_what_is_due_when_fin_comes_is_still_written() -> None:
    server = Server()
    client = server.connect().send(get())
    (request,) = server.requests
    request.start(200, b"text/plain", first=b"a")
    client.fin()
    request.send(b"b")
    server.settle()
    request.send(b"c")
    request.finish(b"d")
    (reply,) = client.replies()
    assert (reply.body, reply.complete) == (b"ab", False)
    assert (client.fate, server.lost) == ("closed", [request])


def test_a_reply_finished_in_the_pass_of_the_fin_is_whole() -> None:
    server = Server()
    client = server.connect().send(get()).fin()
    server.requests[0].respond(200, b"just in time")
    server.settle()
    assert [(reply.body, reply.complete) for reply in client.replies()] == [(b"just in time", True)]
    assert (client.fate, server.lost) == ("closed", [])


def test_fin_ends_pipelined_requests_too() -> None:
    server = Server()
    client = server.connect().send(get(b"/a") + get(b"/b"), get(b"/c")).fin()
    server.settle()
    assert [request.path for request in server.lost] == [b"/a"]
    assert len(server.requests) == 1
    assert client.fate == "closed"


def test_fin_waits_for_what_the_client_has_still_to_read() -> None:
    server = Server()
    client = server.connect().send(get())
    client.transport.client_reads = False
    server.requests[0].start(200, b"text/plain", first=b"a" * 100_000)
    client.fin()
    server.settle()
    assert (server.lost, client.fate) == (server.requests, "open")
    client.transport.client_reads = True
    client.transport.drain()
    assert len(client.replies()[0].body) == 100_000
    assert client.fate == "closed"


@pytest.mark.parametrize("headers", [(), (b"Connection: close",)])
def test_fin_is_seen_behind_what_may_be_pipelined(headers: tuple[bytes, ...]) -> None:
    server = Server()
    client = server.connect().send(get(b"/", *headers), *[b"x" * 10_000] * (20 if headers else 6)).fin()
    server.settle()
    assert (server.lost, client.fate) == (server.requests, "closed")


@pytest.mark.parametrize("limits", [Limits(), SERVING])
def test_fin_is_seen_behind_more_than_may_be_pipelined(limits: Limits) -> None:
    """Though what comes is not read then."""
    server = Server(limits=limits)
    client = server.connect().send(get(), *[get() * 1000] * 5)
    assert client.transport.producerState == "paused"
    server.wait(3)
    assert server.lost == []
    client.fin()
    server.wait(3)
    if limits is SERVING:
        assert (server.lost, client.fate) == ([], "open")
    else:
        assert (server.lost, client.fate, len(server.requests)) == (server.requests, "closed", 1)
        assert server.site.connections == set()


@pytest.mark.parametrize("stream", [True, False])
def test_half_closed_clients_are_served_when_asked_for(stream: bool) -> None:
    server = Server(limits=SERVING)
    client = server.connect().send(get(b"/a") + get(b"/b"), post(b"c")).fin()
    server.wait(5)
    for number in range(3):
        request = server.requests[number]
        if stream:
            request.start(200, b"text/plain")
            server.wait(1)
            request.finish(b"x")
        else:
            request.respond(200, b"x")
    server.settle()
    assert [(reply.body, reply.complete) for reply in client.replies()] == [(b"x", True)] * 3
    assert (client.fate, server.lost) == ("closed", [])


def test_a_half_closed_client_that_reads_late_is_served_whole() -> None:
    server = Server(lambda request: request.respond(200, b"x" * 50_000), SERVING)
    client = server.connect()
    client.transport.client_reads = False
    client.send(*[get()] * 10).fin()
    server.wait(1)
    client.transport.client_reads = True
    client.transport.drain()
    server.settle()
    assert client.statuses() == [200] * 10
    assert (client.replies()[-1].complete, client.fate) == (True, "closed")


def test_a_half_closed_client_is_not_waited_for_to_end_its_next_request() -> None:
    server = Server(limits=SERVING)
    client = server.connect().send(get(), post(b"hello")[:-1]).fin()
    server.requests[0].respond(200, b"")
    server.settle()
    assert (client.statuses(), client.fate) == ([200], "closed")


@pytest.mark.parametrize("limits", [Limits(), SERVING])
def test_fin_after_the_reply_closes(limits: Limits) -> None:
    server = Server(whole, limits)
    client = server.connect().send(get()).fin()
    server.settle()
    assert (client.statuses(), client.fate, server.lost) == ([200], "closed", [])


@pytest.mark.parametrize("started", [True, False])
def test_a_lost_connection_is_told_once_and_writing_to_it_does_nothing(started: bool) -> None:
    server = Server()
    client = server.connect().send(get(b"/a") + get(b"/b"))
    (request,) = server.requests
    if started:
        request.start(200, b"text/plain", first=b"a")
    received = client.received
    client.rst()
    assert (server.lost, request.finished) == ([request], True)
    request.start(200, b"text/plain")
    request.send(b"b")
    request.finish(b"d")
    request.respond(200, b"e")
    request.respond_empty(204)
    server.wait(5)
    assert client.received == received
    assert (server.lost, server.requests) == ([request], [request])
    assert server.site.connections == set()


@pytest.mark.parametrize("sent", [b"", get()[:-2], post(b"hello")[:-1], get()])
def test_a_connection_lost_with_nothing_unanswered_is_told_to_nobody(sent: bytes) -> None:
    server = Server(whole)
    server.connect().send(*([sent] if sent else [])).rst()
    server.wait(5)
    assert server.lost == []
    assert server.site.connections == set()


def test_fin_then_rst_is_one_loss() -> None:
    server = Server()
    server.connect().send(get()).fin().rst()
    server.settle()
    assert server.lost == server.requests


def test_an_application_may_answer_others_when_it_hears_of_a_loss() -> None:
    server = Server()
    gone, waiting = server.connect().send(get(b"/gone")), server.connect().send(get(b"/waiting"))
    first, second = server.requests

    def freed() -> None:
        first.finish()
        second.respond(200, b"your turn")

    first.on_lost = freed
    gone.fin()
    server.settle()
    assert waiting.replies()[0].body == b"your turn"
    assert gone.received == b""


def test_an_application_whose_hearing_of_a_loss_fails_does_not_keep_the_connection() -> None:
    server = Server()
    client = server.connect().send(get())

    def failing() -> None:
        raise ValueError("on purpose")

    server.requests[0].on_lost = failing
    client.fin()
    with suppress(ValueError):
        server.settle()
    server.settle()
    assert client.fate == "closed"


def test_a_request_answered_before_the_client_left_hears_nothing() -> None:
    server = Server(whole)
    heard: list[Request] = []
    client = server.connect().send(get())
    server.requests[0].on_lost = lambda: heard.append(server.requests[0])
    client.rst()
    assert heard == []
