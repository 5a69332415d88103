"""Several requests at once on a connection: one at a time, in order, within bounds."""

from __future__ import annotations

import pytest

from llmdsim.wire.limits import PIPELINE_BYTES
from tests.wire.channel import Server, get, post, whole


def test_the_second_request_waits_for_the_first() -> None:
    server = Server()
    client = server.connect().send(get(b"/slow") + get(b"/quick"), get(b"/third"))
    assert [request.path for request in server.requests] == [b"/slow"]
    first = server.requests[0]
    first.start(200, b"text/plain", first=b"a")
    server.wait(5)
    first.finish(b"b")
    assert [request.path for request in server.requests] == [b"/slow", b"/quick"]
    server.requests[1].respond(200, b"quick")
    server.requests[2].respond(200, b"third")
    assert [reply.body for reply in client.replies()] == [b"ab", b"quick", b"third"]
    assert client.fate == "open"


@pytest.mark.parametrize("offer", [(), (b"Connection: Upgrade", b"Upgrade: h2c")], ids=["plain", "upgrade"])
def test_many_requests_in_one_packet(offer: tuple[bytes, ...]) -> None:
    server = Server(whole)
    paths = [b"/%d" % number for number in range(1200)]
    client = server.connect().send(b"".join(get(path, *offer) for path in paths))
    assert [reply.body for reply in client.replies()] == [b"GET %b " % path for path in paths]
    assert client.fate == "open"


def test_many_requests_in_one_packet_answered_later_one_by_one() -> None:
    server = Server()
    client = server.connect().send(b"".join(get(b"/%d" % number) for number in range(500)))
    for number in range(500):
        assert len(server.requests) == number + 1
        server.requests[number].respond(200, b"%d" % number)
    assert [reply.body for reply in client.replies()] == [b"%d" % number for number in range(500)]


def test_pipelined_bytes_are_bounded_and_reading_goes_on_later() -> None:
    server = Server()
    client = server.connect().send(get(b"/slow"))
    message = post(b"x" * 1000)
    sent = 0
    while client.transport.producerState == "producing":
        client.send(message)
        sent += 1
    assert PIPELINE_BYTES < sent * len(message) <= PIPELINE_BYTES + len(message)
    client.send(*[message] * 100)
    server.answer = whole
    server.requests[0].respond(200, b"")
    server.settle()
    assert client.statuses() == [200] * (sent + 101)
    assert client.transport.producerState == "producing"


def test_continue_waits_for_the_answers_to_all_requests_before() -> None:
    server = Server(lambda request: request.respond(200, b"x" * 70_000))
    client = server.connect()
    client.transport.client_reads = False
    message = post(b"hello", b"Expect: 100-continue")
    client.send(get() * 2 + message[:-5])
    client.transport.client_reads = True
    client.transport.drain()
    assert client.statuses() == [200, 200, 100]
    client.send(message[-5:])
    assert client.statuses() == [200, 200, 100, 200]


def test_a_refusal_waits_its_turn() -> None:
    server = Server()
    client = server.connect().send(get(b"/slow") + b"nonsense\r\n\r\n" + get(b"/third"))
    assert client.received == b""
    server.requests[0].respond(200, b"slow")
    assert client.statuses() == [200, 400]
    server.settle()
    assert client.fate == "half-closed"
    assert len(server.requests) == 1
