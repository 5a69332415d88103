"""Whatever the network does to a client's bytes, and whatever the bytes are."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.logger import capturedLogs

from llmdsim.wire.limits import LINGER_SECONDS, Limits
from llmdsim.wire.request import Request
from tests.wire.channel import (
    Client,
    Reply,
    Server,
    described,
    get,
    pieces,
    post,
    post_chunks,
    streamed,
    whole,
)

IDLE = 4.0


def served(server: Server) -> None:
    """Answer by path: at once, in a stream, half a second later, or in a stream that takes a second."""

    def answer(request: Request) -> None:
        match request.path:
            case b"/whole":
                whole(request)
            case b"/stream":
                streamed(request)
            case b"/later":
                server.clock.callLater(0.5, whole, request)
            case b"/slow":
                text = described(request)
                request.start(200, b"text/plain", first=text[:1])
                server.clock.callLater(0.5, request.send, text[1:4])
                server.clock.callLater(1, request.finish, text[4:])
            case _:
                request.respond(404, b"{}")

    server.answer = answer


class Seen(NamedTuple):
    """What a client saw, apart from being told to continue."""

    replies: list[Reply]
    fate: str


def seen(client: Client) -> Seen:
    return Seen([reply for reply in client.replies() if reply.status != 100], client.fate)


def exchange(packets: list[bytes], pauses: list[bool]) -> Seen:
    """Send `packets`, with a quarter of a second behind those for which `pauses` says so."""
    server = Server()
    served(server)
    client = server.connect()
    for packet, pause in zip(packets, pauses, strict=True):
        client.send(packet)
        if pause:
            server.wait(0.25)
    server.wait(8)
    return seen(client)


PATHS = st.sampled_from([b"/whole", b"/stream", b"/later", b"/slow", b"/a%20b?c=d"])
BODIES = st.binary(max_size=40)
HEADERS = st.lists(
    st.sampled_from(
        [
            (b"X-A: b",),
            (b"X-Empty:",),
            (b"Expect: 100-continue",),
            (b"Connection: Upgrade", b"Upgrade: h2c"),
            (b"Accept: */*", b"accept: text/plain"),
        ]
    ),
    max_size=2,
    unique=True,
).map(lambda groups: [line for group in groups for line in group])

REQUESTS = st.one_of(
    st.builds(
        lambda path, headers, method: get(path, *headers, method=method),
        PATHS,
        HEADERS,
        st.sampled_from([b"GET", b"HEAD", b"DELETE", b"OPTIONS"]),
    ),
    st.builds(lambda path, headers, body: post(body, *headers, path=path), PATHS, HEADERS, BODIES),
    st.builds(
        lambda path, headers, chunks, trailers: post_chunks(chunks, *headers, trailers=trailers, path=path),
        PATHS,
        HEADERS,
        st.lists(BODIES.filter(bool), max_size=4),
        st.sampled_from([b"", b"X-Sum: 1\r\n"]),
    ),
)
LAST_REQUESTS = st.one_of(
    st.just(b""),
    PATHS.map(lambda path: get(path, b"Connection: close")),
    PATHS.map(lambda path: get(path, version=b"1.0")),
    PATHS.map(lambda path: get(path, b"Connection: keep-alive", version=b"1.0")),
)


@st.composite
def splits(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """`data` in pieces, cut anywhere."""
    cuts = draw(st.sets(st.integers(1, max(1, len(data) - 1)), max_size=12))
    edges = [0, *sorted(cuts), len(data)]
    return [part for start, end in pairwise(edges) if (part := data[start:end])]


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_valid_requests_are_answered_the_same_however_they_are_split(data: st.DataObject) -> None:
    messages = data.draw(st.lists(REQUESTS, min_size=1, max_size=5))
    last = data.draw(LAST_REQUESTS)
    stream = b"".join(messages) + last
    packets = data.draw(splits(stream))
    pauses = data.draw(st.lists(st.booleans(), min_size=len(packets), max_size=len(packets)))
    expected = exchange([stream], [False])
    assert len(expected.replies) == len(messages) + bool(last)
    assert all(reply.complete and reply.status in (200, 404) for reply in expected.replies)
    assert exchange(packets, pauses) == expected


#: One of everything.
SEQUENCE = [
    get(b"/whole", b"X-Empty:"),
    post(b"hello", b"Expect: 100-continue", path=b"/stream"),
    post(b"hello", b"Connection: Upgrade", b"Upgrade: h2c", path=b"/later"),
    post_chunks(
        [b"hel", b"lo"], b"Connection: Upgrade", b"Upgrade: h2c", trailers=b"X-Sum: 1\r\n", path=b"/whole"
    ),
    post_chunks([b"a" * 20], path=b"/stream"),
    get(b"/stream", method=b"HEAD"),
    get(b"/whole", b"Connection: close"),
]


@pytest.mark.parametrize("number", range(len(SEQUENCE)))
def test_a_request_may_be_split_at_every_byte(number: int) -> None:
    before, message, after = SEQUENCE[0], SEQUENCE[number], SEQUENCE[-1]
    stream = before + message + after
    expected = exchange([stream], [False])
    assert len(expected.replies) == (2 if message is after else 3)
    for cut in range(1, len(stream)):
        assert exchange([stream[:cut], stream[cut:]], [False, False]) == expected, cut


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_a_sequence_may_come_in_small_packets(size: int) -> None:
    stream = b"".join(SEQUENCE)
    expected = exchange([stream], [False])
    assert len(expected.replies) == len(SEQUENCE)
    packets = pieces(stream, size)
    assert exchange(packets, [False] * len(packets)) == expected


#: Parts that lead a parser deep before they go wrong.
FRAGMENTS = st.sampled_from(
    [
        b"GET / HTTP/1.1\r\n",
        b"POST /later HTTP/1.1\r\n",
        b"HEAD /slow HTTP/1.0\r\n",
        b"PRI * HTTP/2.0\r\n",
        b"GET /\r\n",
        b"CONNECT a:1 HTTP/1.1\r\n",
        b"Host: sim\r\n",
        b"Content-Length: 5\r\n",
        b"Content-Length: 99999\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: gzip\r\n",
        b"Connection: Upgrade\r\nUpgrade: h2c\r\n",
        b"Connection: close\r\n",
        b"Connection: keep-alive\r\n",
        b"Expect: 100-continue\r\n",
        b"X-Long: " + b"a" * 700,
        b"\r\n",
        b"\r\n\r\n",
        b"\n",
        b"\r",
        b": ",
        b" ",
        b"\x00",
        b"hello",
        b"5\r\nhello\r\n",
        b"0\r\n\r\n",
        b"0\r\n",
        b"fffffffff\r\n",
        b"5;a=b\r\n",
        b"x" * 3000,
        get(b"/whole"),
        get(b"/later"),
        post(b"hello", path=b"/slow"),
        post_chunks([b"hello"], b"Connection: Upgrade", b"Upgrade: h2c", path=b"/stream"),
    ]
)
NONSENSE = st.lists(FRAGMENTS | st.binary(max_size=20), max_size=12).map(b"".join)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A good conversation with a few bytes changed, lost, doubled or put in."""
    stream = bytearray(b"".join(draw(st.lists(st.sampled_from(SEQUENCE), min_size=1, max_size=4))))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(stream) - 1))
        match draw(st.sampled_from(["change", "lose", "double", "put in", "move"])):
            case "change":
                stream[place] = draw(st.integers(0, 255))
            case "lose":
                del stream[place : place + draw(st.integers(1, 4))]
            case "double":
                stream[place:place] = stream[place : place + draw(st.integers(1, 40))]
            case "put in":
                stream[place:place] = draw(FRAGMENTS)
            case "move":
                stream = stream[place:] + stream[:place]
        if not stream:
            return b""
    return bytes(stream)


@given(
    data=st.data(),
    stream=NONSENSE | mutated(),
    leaves=st.sampled_from(["", "fin", "rst"]),
    serve_half_closed=st.booleans(),
)
@settings(max_examples=400, deadline=None)
def test_no_bytes_do_harm(data: st.DataObject, stream: bytes, leaves: str, serve_half_closed: bool) -> None:
    limits = Limits(2048, 4096, IDLE, serve_half_closed)
    server = Server(limits=limits)
    served(server)
    client = server.connect()
    ended: list[Request] = []
    server.site.on_ended.append(ended.append)
    with capturedLogs() as logged:
        for packet in data.draw(splits(stream)):
            client.send(packet)
            if data.draw(st.booleans()):
                server.wait(0.25)
    assert logged == []
    if leaves == "fin":
        client.fin()
    elif leaves == "rst":
        client.rst()
    # For slow answers, then for what never comes and the look for it each second, then for lingering.
    server.wait(10 + IDLE + 1 + LINGER_SECONDS + 1)
    assert client.fate in ("closed", "reset", "lost")
    assert server.site.connections == set()
    server.site.stop()
    assert server.clock.getDelayedCalls() == []
    # Refusals are of requests, too, and may be of a HEAD.
    replies = [r for r in client.replies(*[request.method for request in ended]) if r.status != 100]
    for reply in replies[:-1]:
        assert reply.complete
    assert all(request.finished for request in server.requests)
    answered = [request for request in server.requests if request not in server.lost]
    assert len(replies) >= len(answered)
    assert len(server.lost) == len(server.requests) - len(answered)
    if not leaves:
        assert server.lost == []
        assert all(reply.complete for reply in replies)
        refusals = [reply for reply in replies if reply.status >= 400 and reply.status != 404]
        assert len(refusals) <= 1
        assert refusals == replies[len(server.requests) :]
