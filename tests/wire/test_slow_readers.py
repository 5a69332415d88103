"""Clients that do not read: nothing is lost, nothing piles up, and the application is told."""

from __future__ import annotations

import pytest

from tests.wire.channel import Server, get


def test_the_application_is_told_when_the_client_does_not_read_and_when_it_does() -> None:
    server = Server()
    client = server.connect().send(get())
    (request,) = server.requests
    request.start(200, b"text/plain")
    client.transport.client_reads = False
    sent = 0
    while not request.channel.write_paused:
        request.send(b"x" * 1000)
        sent += 1
    assert 60 < sent < 80
    request.send(b"the end")
    assert server.drained == []
    client.transport.client_reads = True
    client.transport.drain()
    assert (server.drained, request.channel.write_paused) == ([request], False)
    request.finish()
    assert client.replies()[0].body == b"x" * 1000 * sent + b"the end"


@pytest.mark.parametrize("close", [True, False])
def test_a_reply_is_whole_when_its_client_reads_at_last(close: bool) -> None:
    server = Server(lambda request: request.respond(200, b"x" * 1_000_000))
    client = server.connect()
    client.transport.client_reads = False
    client.send(get(b"/", *([b"Connection: close"] if close else [])))
    server.wait(10)
    assert (client.received, client.fate) == (b"", "open")
    client.transport.client_reads = True
    client.transport.drain()
    assert client.replies()[0].body == b"x" * 1_000_000
    assert client.fate == ("closed" if close else "open")


def test_a_drained_connection_without_a_request_is_fine() -> None:
    server = Server(lambda request: request.respond(200, b"x" * 100_000))
    client = server.connect()
    client.transport.client_reads = False
    client.send(get())
    client.transport.client_reads = True
    client.transport.drain()
    assert server.drained == []
    assert client.send(get()).statuses() == [200, 200]


@pytest.mark.parametrize("together", [True, False])
def test_nothing_is_begun_for_a_client_that_does_not_read(together: bool) -> None:
    server = Server(lambda request: request.respond(200, b"x" * 50_000))
    client = server.connect()
    client.transport.client_reads = False
    client.send(*([get() * 20] if together else [get()] * 20))
    assert len(server.requests) == 2
    client.transport.client_reads = True
    client.transport.drain()
    server.settle()
    assert client.statuses() == [200] * 20
