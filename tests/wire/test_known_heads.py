"""A head met before is not parsed again, and nobody can tell."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmdsim.wire.http1 import MOST_ANSWERS
from llmdsim.wire.known_heads import LONGEST_KNOWN, MOST_KNOWN, KnownHeads
from llmdsim.wire.limits import PIPELINE_BYTES, Limits
from llmdsim.wire.request import Request
from tests.wire.channel import Server, TCPTransport, get, post, post_chunks, whole
from tests.wire.test_properties import (
    LAST_REQUESTS,
    NONSENSE,
    REQUESTS,
    Seen,
    exchange,
    mutated,
    seen,
    served,
    splits,
)


def sent_by_another(server: Server, packets: list[bytes]) -> Seen:
    client = server.connect()
    for packet in packets:
        client.send(packet)
    server.wait(8)
    return seen(client)


@given(messages=st.lists(REQUESTS, min_size=1, max_size=4), last=LAST_REQUESTS)
@settings(max_examples=150, deadline=None)
def test_requests_are_answered_the_same_a_second_time(messages: list[bytes], last: bytes) -> None:
    packets = [*messages, *([last] if last else [])]
    expected = exchange([b"".join(packets)], [False])
    server = Server()
    served(server)
    for _ in range(3):
        assert sent_by_another(server, packets) == expected


class _NoHeads(KnownHeads):
    """Knows none, ever."""

    def learn(self, head: bytes, request: Request) -> None:
        pass


class _Step(NamedTuple):
    """A packet, and what happens behind it."""

    packet: bytes
    then: str


@st.composite
def conversations(draw: st.DrawFn) -> list[_Step]:
    """Requests alone in their packets, in pieces, or several in one, and what befalls the connection."""
    messages = draw(st.lists(REQUESTS, min_size=1, max_size=6))
    packets: list[bytes] = []
    for message in messages:
        match draw(st.sampled_from(["alone", "alone", "alone", "split", "joined", "blank"])):
            case "alone":
                packets.append(message)
            case "split":
                packets += draw(splits(message))
            case "joined":
                packets.append((packets.pop() if packets else b"") + message)
            case "blank":
                packets += [b"\r\n", message]
    events = st.sampled_from(["", "", "", "wait", "deaf", "hears", "fin", "rst", "closing"])
    return [_Step(packet, draw(events)) for packet in packets]


class _Told(NamedTuple):
    """All that anybody can see of a conversation."""

    received: bytes
    fate: str
    requests: list[tuple[bytes, bytes, bytes, int]]
    ended: list[tuple[bytes, int, int, bool]]
    lost: int
    busy: list[bool]
    left: int


def told(heads: KnownHeads, steps: list[_Step], serve_half_closed: bool) -> _Told:
    server = Server(limits=Limits(2048, 4096, 4.0, serve_half_closed))
    served(server)
    server.site.known_heads = heads
    ended: list[Request] = []
    server.site.on_ended.append(ended.append)
    client = server.connect()
    busy: list[bool] = []
    gone = False
    for packet, then in steps:
        if gone:
            break
        client.send(packet)
        busy.append(server.site.busy)
        match then:
            case "wait":
                server.wait(0.25)
            case "deaf":
                client.transport.stop_reading()
            case "hears":
                client.transport.drain()
                client.transport.client_reads = True
                server.settle()
            case "closing":
                server.site.close_idle()
            case "fin" | "rst":
                gone = True
                client.fin() if then == "fin" else client.rst()
    server.wait(12)
    return _Told(
        client.received,
        client.fate,
        [(each.method, each.uri, each.body, each.content_length) for each in server.requests],
        [(each.uri, each.status, each.length, each.lost) for each in ended],
        len(server.lost),
        busy,
        len(server.site.connections),
    )


@given(steps=conversations(), serve_half_closed=st.booleans())
@settings(max_examples=300, deadline=None)
def test_whatever_happens_meanwhile_a_known_head_changes_nothing(
    steps: list[_Step], serve_half_closed: bool
) -> None:
    heads = KnownHeads()
    expected = told(_NoHeads(), steps, serve_half_closed)
    # The first time they are learnt on the way.
    assert told(heads, steps, serve_half_closed) == expected
    assert told(heads, steps, serve_half_closed) == expected


@given(streams=st.lists(NONSENSE | mutated(), min_size=1, max_size=3))
@settings(max_examples=300, deadline=None)
def test_so_is_what_is_no_request(streams: list[bytes]) -> None:
    server = Server()
    served(server)
    for stream in streams:
        alone = exchange([stream], [False])
        for _ in range(2):
            assert sent_by_another(server, [stream]) == alone


def test_a_head_goes_with_another_body() -> None:
    server = Server(whole)
    client = server.connect().send(post(b"hello"), post(b"world"))
    assert len(server.site.known_heads) == 1
    client.send(post(b"longer than that"), post(b"again"))
    assert [request.body for request in server.requests] == [
        b"hello",
        b"world",
        b"longer than that",
        b"again",
    ]
    assert len({id(request) for request in server.requests}) == 4
    assert {request.path for request in server.requests} == {b"/"}


def test_what_a_known_request_was_answered_is_not_kept() -> None:
    server = Server(whole)
    client = server.connect().send(post(b"hello"), post(b"world"))
    (known,) = server.site.known_heads.values()
    assert (known.channel, known.body, known.content_length) == (None, b"", 5)
    assert not known.started
    assert not known.finished
    assert client.statuses() == [200, 200]


def test_a_known_head_may_come_without_its_whole_body_or_with_more() -> None:
    server = Server(whole)
    first, second = post(b"hello"), post(b"world")
    client = server.connect().send(first, first[:-2], first[-2:], first + second, second[:-5], second[-5:])
    assert [request.body for request in server.requests] == [
        *(b"hello", b"hello", b"hello"),
        *(b"world", b"world"),
    ]
    assert client.statuses() == [200] * 5


@pytest.mark.parametrize(
    "message",
    [
        get(b"/", b"Connection: close"),
        get(b"/", version=b"1.0"),
        get(b"/", b"Connection: keep-alive", version=b"1.0"),
        post(b"hello", b"Expect: 100-continue"),
        post(b"hello", b"Connection: Upgrade", b"Upgrade: h2c"),
        post_chunks([b"hello"]),
        get(b"/", b"X-Long: " + b"a" * LONGEST_KNOWN),
        get(b"/") + get(b"/"),
        post(b"hello")[:-1],
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_what_hangs_on_more_than_its_bytes_is_not_known(message: bytes) -> None:
    server = Server(whole)
    server.connect().send(message)
    assert server.site.known_heads == {}


def test_many_different_heads_are_not_all_known() -> None:
    server = Server(whole)
    client = server.connect()
    for number in range(2 * MOST_KNOWN + 10):
        client.send(get(b"/%d" % number))
        assert len(server.site.known_heads) <= MOST_KNOWN
    assert len(client.statuses()) == 2 * MOST_KNOWN + 10


def test_a_body_may_look_like_a_known_request() -> None:
    server = Server(whole)
    request = get(b"/known")
    client = server.connect().send(request)
    outer = post(request, path=b"/outer")
    client.send(outer[: -len(request)], request)
    assert [each.path for each in server.requests] == [b"/known", b"/outer"]
    assert server.requests[1].body == request
    assert client.statuses() == [200, 200]


def test_blank_lines_are_no_head() -> None:
    server = Server(whole)
    client = server.connect().send(b"\r\n\r\n" + get(b"/"))
    client.send(b"\r\n\r\n", b"\r\n\r\n")
    assert client.statuses() == [200]


def test_a_known_head_without_its_end_is_no_request_yet() -> None:
    server = Server(whole)
    request = get(b"/")
    client = server.connect().send(request, request.removesuffix(b"\r\n\r\n"))
    assert client.statuses() == [200]
    assert client.send(b"\r\n\r\n").statuses() == [200, 200]


def test_blank_lines_before_known_requests_do_not_add_up() -> None:
    server = Server(whole, Limits(header_size=1024))
    client = server.connect()
    for _ in range(5):
        client.send(get(b"/"), b"\r\n" * 400)
    assert client.statuses() == [200] * 5


def test_a_known_request_does_not_overtake_those_that_wait_for_a_turn() -> None:
    server = Server(whole)
    last = get(b"/last")
    server.connect().send(last)
    client = server.connect()
    client.transport.arrive(b"".join(get(b"/%d" % number) for number in range(MOST_ANSWERS + 1)))
    client.transport.arrive(last)
    server.wait(1)
    assert [reply.body for reply in client.replies()] == [
        *(b"GET /%d " % number for number in range(MOST_ANSWERS + 1)),
        b"GET /last ",
    ]


class _EagerTransport(TCPTransport):
    """Hands on what waited as soon as it may."""

    def resumeProducing(self) -> None:
        self.producerState = "producing"
        self._take_arrived()


def test_a_known_request_does_not_overtake_those_that_were_kept_unread() -> None:
    server = Server()
    last = get(b"/last")
    server.connect().send(last)
    server.requests.clear()
    client = server.connect(_EagerTransport).send(get(b"/first"))
    client.send(post(b"x" * PIPELINE_BYTES, path=b"/second"), last)
    for _ in range(3):
        whole(server.requests[-1])
        server.settle()
    assert [request.path for request in server.requests] == [b"/first", b"/second", b"/last"]
    assert client.statuses() == [200] * 3
