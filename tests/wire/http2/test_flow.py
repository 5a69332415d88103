"""Flow control both ways: what a client does not take is kept in bounds, and nobody else waits for it."""

from __future__ import annotations

import pytest
from hyperframe.frame import DataFrame
from hypothesis import given, settings
from hypothesis import strategies as st

from llmdsim.wire.http2 import arrivals
from llmdsim.wire.http2.state import CONNECTION_WINDOW, STREAM_WINDOW
from llmdsim.wire.request import Request
from tests.wire.channel import Server, whole
from tests.wire.http2.client import H2Client


class Echo:
    """Calls that send back what comes, as it comes."""

    def takes(self, request: Request) -> bool:
        return True

    takes_pieces = takes

    def handle(self, request: Request) -> None:
        def echo(data: bytes | None) -> None:
            if data is None:
                request.finish()
            else:
                request.send(data)

        request.start(200, b"application/grpc")
        request.on_body = echo

    def refuse(self, request: Request, status: int, message: str) -> None:
        raise AssertionError


def send_all(client: H2Client, stream: int) -> int:
    """Send as much as the stream's window takes; returns how much that was."""
    sent = 0
    while client.h2.local_flow_control_window(stream) and sent < 10**8:
        size = min(client.h2.local_flow_control_window(stream), 16384)
        client.h2.send_data(stream, b"x" * size)
        client.flush()
        sent += size
    return sent


def large(request: Request) -> None:
    request.respond(200, bytes(range(256)) * 1000)


def test_a_body_comes_as_windows_open() -> None:
    server = Server(large)
    client = H2Client(server, acknowledges=False, window=1000)
    stream = client.flush_begin()
    answer = client.answers[stream]
    assert len(answer.body) == 1000
    client.open_window(500, stream)
    assert len(answer.body) == 1500
    client.open_window(10**6, stream)
    assert len(answer.body) == 65535  # the connection's
    client.open_window(10**6)
    assert answer.body == bytes(range(256)) * 1000
    assert answer.ended
    assert client.client.protocol.kept == 0


def test_a_stalled_stream_holds_up_no_other() -> None:
    server = Server(large)
    client = H2Client(server, acknowledges=False, window=10)
    stalled = client.flush_begin()
    server.answer = whole
    other = client.get(b"/2345")
    assert other.body == b"GET /2345 "
    assert client.client.protocol.kept == 256_000 - 10
    client.h2.reset_stream(stalled)
    client.flush()
    assert client.client.protocol.kept == 0
    assert not client.client.protocol._blocked


def test_streams_share_the_connections_window() -> None:
    server = Server(large)
    client = H2Client(server, acknowledges=False, window=10**6)
    first, second = client.begin(), client.begin()
    client.flush()
    client.open_window(100_000)
    assert abs(len(client.answers[first].body) - len(client.answers[second].body)) <= 65535 + 16384
    client.open_window(10**6)
    assert client.answers[first].ended
    assert client.answers[second].ended


def test_a_window_may_be_made_smaller_than_nothing() -> None:
    server = Server(large)
    client = H2Client(server, acknowledges=False, window=1000)
    stream = client.flush_begin()
    client.set_window(10)
    client.open_window(500, stream)
    assert len(client.answers[stream].body) == 1000
    client.set_window(2000)
    assert len(client.answers[stream].body) == 2500


def test_a_stream_is_told_when_its_client_reads_on() -> None:
    server = Server()
    client = H2Client(server, acknowledges=False, window=10)
    stream = client.flush_begin()
    (request,) = server.requests
    request.start(200, b"text/plain", first=b"x" * 8)
    assert not request.channel.write_paused
    request.send(b"y" * 8)
    assert request.channel.write_paused
    assert server.drained == []
    client.open_window(100, stream)
    assert server.drained == [request]
    assert not request.channel.write_paused
    request.finish(b"z")
    assert client.flush().answers[stream].body == b"x" * 8 + b"y" * 8 + b"z"


def test_a_connection_that_is_not_read_pauses_all_its_streams() -> None:
    server = Server()
    client = H2Client(server, window=10**6)
    client.begin()
    client.begin()
    client.flush()
    first, second = server.requests
    first.start(200, b"text/plain")
    client.transport.stop_reading()
    assert first.channel.write_paused
    assert second.channel.write_paused
    server.answer = whole
    third = client.begin(b"/third")
    client.client.send(client.h2.data_to_send())
    assert len(server.requests) == 2  # not begun, as its answer could only be kept
    client.transport.client_reads = True
    client.transport.drain()
    server.settle()
    assert server.drained == [first, second]
    assert client.flush().answers[third].ended


def test_requests_wait_while_too_much_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "MOST_KEPT", 200_000)
    server = Server(large)
    client = H2Client(server, acknowledges=False, window=0)
    streams = [client.flush_begin() for _ in range(3)]
    assert len(server.requests) == 1
    client.open_window(10**6, streams[0])
    client.open_window(10**6)
    assert client.answers[streams[0]].ended
    assert len(server.requests) == 2
    client.client.rst()
    assert client.client.protocol.kept == 0
    assert len(server.requests) == 2


def test_what_a_piecewise_reader_does_not_answer_is_not_acknowledged() -> None:
    server = Server()
    server.site.calls = Echo()
    client = H2Client(server, acknowledges=False, window=1000)
    stream = client.begin(method=b"POST", end=False)
    client.flush()
    sent = send_all(client, stream)
    # What was sent is a window's worth, and is all that is kept.
    assert sent < 3 << 20
    assert client.client.protocol.kept <= sent
    client.open_window(10**7, stream)
    client.open_window(10**7)
    client.h2.send_data(stream, b"", end_stream=True)
    client.flush()
    assert len(client.answers[stream].body) == sent
    assert client.answers[stream].ended


@pytest.mark.parametrize("size", [0, 2**31 - 1])
def test_a_window_that_cannot_be_ends_its_stream_and_what_that_led_to(size: int) -> None:
    server = Server()
    client = H2Client(server)
    first, second = client.begin(), client.begin()
    client.flush()
    update = size.to_bytes(4, "big")
    client.client.send(b"\0\0\4\x08\0" + first.to_bytes(4, "big") + update)
    client.flush()
    assert client.answers[first].reset is not None
    assert server.lost == [server.requests[0]]
    whole(server.requests[1])
    assert client.flush().answers[second].ended


def test_padding_counts() -> None:
    server = Server(whole)
    client = H2Client(server)
    stream = client.begin(method=b"POST", end=False)
    client.flush()
    for _ in range(200):
        client.h2.send_data(stream, b"x" * 100, pad_length=200)
        client.flush()
    client.h2.end_stream(stream)
    client.flush()
    assert client.answers[stream].body == b"POST / " + b"x" * 20_000


def test_data_beyond_the_window_ends_the_connection() -> None:
    server = Server(whole)
    client = H2Client(server)
    stream = client.begin(method=b"POST", end=False)
    client.flush()
    frames = [DataFrame(stream, b"x" * 16384) for _ in range(80)]
    client.raw(*frames)
    server.settle()
    client.raw()
    assert client.answers[stream].status in (0, 200)  # within what was granted, as acknowledged at once
    client.client.rst()
    assert not server.site.connections


@settings(max_examples=60)
@given(st.data())
def test_every_body_arrives_whole_however_windows_open(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 60_000), min_size=1, max_size=5))
    bodies = [bytes([n + 65]) * size for n, size in enumerate(sizes)]
    server = Server(lambda request: request.respond(200, bodies[int(request.path[1:])]))
    client = H2Client(server, acknowledges=False, window=data.draw(st.integers(0, 70_000)))
    streams = [client.begin(b"/%d" % n) for n in range(len(bodies))]
    client.flush()
    for _ in range(data.draw(st.integers(0, 20))):
        size = data.draw(st.integers(1, 30_000))
        stream = data.draw(st.sampled_from([None, *streams]))
        if stream is None or not client.answers[stream].ended:
            client.open_window(size, stream)
        if data.draw(st.booleans()):
            client.set_window(data.draw(st.integers(0, 70_000)))
        for n, each in enumerate(streams):
            assert bodies[n].startswith(client.answers[each].body)
    client.open_window(10**7)
    for stream in streams:
        if not client.answers[stream].ended:
            client.open_window(10**7, stream)
    assert [client.answers[stream].body for stream in streams] == bodies
    assert all(client.answers[stream].ended for stream in streams)
    protocol = client.client.protocol
    assert (protocol.kept, protocol.streams, protocol._blocked, protocol.h2.streams) == (0, {}, {}, {})


@pytest.mark.parametrize("stalled", ["windows", "the connection"])
def test_a_client_that_reads_on_can_send_on(stalled: str) -> None:
    server = Server()
    server.site.calls = Echo()
    if stalled == "windows":
        client = H2Client(server, acknowledges=False, window=1000)
    else:
        client = H2Client(server, window=10**8)
        client.open_window(10**8)
        client.client.protocol.pauseProducing()
    stream = client.begin(method=b"POST", end=False)
    client.flush()
    sent = send_all(client, stream)
    assert client.h2.local_flow_control_window(stream) == 0
    if stalled == "windows":
        client.open_window(10**8, stream)
        client.open_window(10**8)
    else:
        client.client.protocol.resumeProducing()
    client.flush()
    assert client.h2.local_flow_control_window(stream) >= sent // 2
    client.h2.send_data(stream, b"end", end_stream=True)
    client.flush()
    assert client.answers[stream].body == b"x" * sent + b"end"
    assert client.answers[stream].ended


def test_streams_that_are_over_take_nothing_of_the_connections_window() -> None:
    server = Server()
    server.site.calls = Echo()
    client = H2Client(server, acknowledges=False, window=1000)
    for _ in range(40):
        stream = client.begin(method=b"POST", end=False)
        client.flush()
        assert send_all(client, stream) == STREAM_WINDOW
        client.h2.reset_stream(stream)
        client.flush()
    assert client.h2.outbound_flow_control_window > CONNECTION_WINDOW // 2
    assert client.client.protocol.kept == 0
