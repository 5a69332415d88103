"""Frames without end, and bytes that are none: a client costs no more than it may, and nothing crashes."""

from __future__ import annotations

import pytest
from h2.errors import ErrorCodes
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.logger import capturedLogs

from llmdsim.wire.http2.allowance import BURST, PER_SECOND, Allowance
from llmdsim.wire.http2.connection import MOST_FRAMES
from llmdsim.wire.http2.frames import PREFACE, headers
from llmdsim.wire.http2.heads import encoded
from llmdsim.wire.limits import Limits
from llmdsim.wire.request import Request
from tests.wire.channel import Server, whole
from tests.wire.http2.client import H2Client

FLOODS: dict[str, Frame] = {
    "ping": PingFrame(0, b"12345678"),
    "settings": SettingsFrame(0),
    "priority": PriorityFrame(1, depends_on=3),
    "window": WindowUpdateFrame(0, window_increment=1),
    "window of a stream": WindowUpdateFrame(1, window_increment=1),
    "nothing": DataFrame(1, b""),
    "reset again": RstStreamFrame(3),
    "data after a reset": DataFrame(3, b"x"),
}


@pytest.mark.parametrize("stream", [7, 2])
@pytest.mark.parametrize(
    "frame",
    [RstStreamFrame(1), WindowUpdateFrame(1, window_increment=1), DataFrame(1, b"x"), DataFrame(1, b"")],
)
def test_a_stream_that_has_not_begun_takes_no_frames(frame: Frame, stream: int) -> None:
    client = H2Client(Server(whole))
    client.get()
    frame.stream_id = stream
    client.raw(frame)
    assert client.goaways == [(1, ErrorCodes.PROTOCOL_ERROR)]


def test_a_client_that_does_not_read_is_not_answered_without_end() -> None:
    server = Server(whole)
    client = H2Client(server)
    client.get()
    client.transport.stop_reading()
    protocol = client.client.protocol
    protocol.pauseProducing()
    pings = [PingFrame(0, b"12345678")] * 500
    for _ in range(2):
        client.raw(*pings)
        server.wait(1.0)
        assert not protocol.closing
    protocol.resumeProducing()
    client.raw(*pings)
    server.wait(1.0)
    assert not protocol.closing
    protocol.pauseProducing()
    for _ in range(3):
        client.raw(*pings)
        server.wait(1.0)
    assert protocol.closing


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_ends_the_connection(kind: str) -> None:
    server = Server()
    client = H2Client(server)
    client.begin(method=b"POST", end=False)
    client.h2.reset_stream(client.begin())
    client.flush()
    packet = FLOODS[kind].serialize() * 1000
    for sent in range(50):  # noqa: B007 - it tells when it ended
        if client.client.fate != "open":
            break
        client.client.send(packet)
        for _ in range(1000 // MOST_FRAMES + 1):
            server.settle()
    else:
        raise AssertionError("it went on and on")
    assert sent >= 2
    client._receive()
    assert client.goaways[-1][1] == ErrorCodes.ENHANCE_YOUR_CALM
    client.client.rst()
    assert not server.site.connections


def test_requests_taken_back_at_once_end_the_connection() -> None:
    server = Server()
    client = H2Client(server)
    for _ in range(BURST):
        client.h2.reset_stream(client.begin())
        client.client.send(client.h2.data_to_send())
        if client.client.fate != "open":
            break
    client._receive()
    assert client.goaways[-1][1] == ErrorCodes.ENHANCE_YOUR_CALM
    assert len(server.requests) <= BURST // 4


def test_requests_beyond_the_limit_end_the_connection_in_time() -> None:
    server = Server(limits=Limits(streams=1))
    client = H2Client(server)
    client.begin()
    client.flush()
    block = encoded([(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/"), (b":authority", b"sim")])
    for refused in range(2 * BURST):
        if client.client.fate != "open":
            break
        client.client.send(headers(2 * refused + 3, block, True, 16384))
    assert abs(refused - BURST) < 10
    assert b"too many frames" in client.client.received[-60:]


def test_clients_that_change_their_minds_now_and_then_are_served() -> None:
    server = Server(whole)
    client = H2Client(server)
    for round_ in range(200):
        for _ in range(10):
            client.h2.reset_stream(client.begin())
        client.flush()
        server.wait(0.5)
        assert client.get(b"/%d" % round_).status == 200


def test_an_allowance_is_filled_by_time_and_use() -> None:
    allowance = Allowance(0.0)
    assert allowance.spend(BURST, 0.0)
    assert not allowance.spend(1, 0.0)
    assert allowance.spend(int(PER_SECOND) - 1, 1.0)
    allowance.earn(10 * BURST)
    assert allowance.spend(BURST, 1.0)
    assert not allowance.spend(1, 1.0)


def test_many_requests_in_one_packet_are_read_in_turns() -> None:
    server = Server(whole)
    client = H2Client(server)
    count = MOST_FRAMES * 3
    streams = [client.begin() for _ in range(count)]
    client.client.transport.arrive(client.h2.data_to_send())
    assert len(server.requests) <= MOST_FRAMES
    server.settle()
    client.flush()
    assert all(client.answers[stream].ended for stream in streams)


def test_headers_without_end_end_the_connection() -> None:
    server = Server()
    client = H2Client(server)
    client.raw(HeadersFrame(1, b"\x82"))
    for _ in range(200):
        if client.client.fate != "open":
            break
        client.client.send(ContinuationFrame(1, b"\x82" * 100).serialize())
    assert client.client.fate != "open"


FRAMES = st.one_of(
    st.builds(
        lambda kind, flags, stream, body: (
            len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body
        ),
        st.integers(0, 12),
        st.integers(0, 255),
        st.sampled_from([0, 1, 2, 3, 5, 2**31 - 1, 2**32 - 1]),
        st.binary(max_size=60),
    ),
    st.binary(max_size=40),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(FRAMES, max_size=12), st.sampled_from([1, 7, 100_000]), st.booleans())
def test_no_frames_do_harm(frames: list[bytes], size: int, fin: bool) -> None:
    server = Server(whole)
    begun: list[Request] = []
    ended: list[Request] = []
    server.site.on_ended.append(ended.append)

    def answer(request: Request) -> None:
        begun.append(request)
        if len(begun) % 2:
            whole(request)

    server.answer = answer
    client = H2Client(server)
    client.begin(b"/begun", b"POST", end=False)
    client.flush()
    data = b"".join(frames)
    with capturedLogs() as logs:
        for start in range(0, len(data), size):
            client.client.send(data[start : start + size])
        for _ in range(3):
            server.settle()
        if fin:
            client.client.fin()
        else:
            client.client.rst()
        server.settle()
        server.wait(4)
        client.client.rst()
    assert not [event for event in logs if event.get("log_failure")]
    assert not server.site.connections
    assert len(ended) == len({id(request) for request in ended})
    assert {id(request) for request in begun} <= {id(request) for request in ended}
    protocol = client.client.protocol
    assert (protocol.kept, protocol.streams, protocol.arrivals.waiting, protocol.arrivals.held) == (
        0,
        {},
        {},
        0,
    )


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([1, 3, 1000]))
def test_no_bytes_behind_the_preface_do_harm(data: bytes, size: int) -> None:
    server = Server(whole)
    client = server.connect().send(PREFACE)
    with capturedLogs() as logs:
        for start in range(0, len(data), size):
            client.send(data[start : start + size])
        client.fin()
        server.wait(4)
    assert not [event for event in logs if event.get("log_failure")]
    assert not server.site.connections
