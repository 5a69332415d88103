"""A head met before is not parsed again, and nobody can tell."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmdsim.wire.known_heads import LONGEST_KNOWN, MOST_KNOWN
from tests.wire.channel import Server, get, post, post_chunks, whole
from tests.wire.test_properties import (
    LAST_REQUESTS,
    NONSENSE,
    REQUESTS,
    Seen,
    exchange,
    mutated,
    seen,
    served,
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
