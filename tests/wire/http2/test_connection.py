"""Requests over HTTP/2: heads, bodies, streams beside one another, and their ends."""

from __future__ import annotations

import gc
import weakref

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from twisted.python.failure import Failure

from llmdsim.wire.http1 import HTTP1
from llmdsim.wire.http2.connection import GOAWAY_SECONDS, HTTP2
from llmdsim.wire.http2.frames import PREFACE
from llmdsim.wire.limits import LINGER_SECONDS, MAX_HEADERS, Limits
from llmdsim.wire.request import Request
from llmdsim.wire.sniffing import Sniffing
from llmdsim.wire.transport import Turn
from tests.wire.channel import Server, get, streamed, whole
from tests.wire.http2.client import H2Client


def test_whole_and_streamed_answers() -> None:
    server = Server(whole)
    client = H2Client(server)
    stream = client.post(b"hello", b"/a%20b?c=d", {b"x-one": b"1"})
    answer = client.answers[stream]
    assert (answer.status, answer.body, answer.ended) == (200, b"POST /a%20b?c=d hello", True)
    assert answer.headers[b"content-length"] == b"%d" % len(answer.body)
    (request,) = server.requests
    assert (request.path, request.query, request.clientproto) == (b"/a b", b"c=d", b"HTTP/2")
    assert request.headers[b"host"] == b"sim"
    assert request.headers[b"x-one"] == b"1"
    server.answer = streamed
    answer = client.get(b"/s")
    assert (answer.status, answer.body, answer.ended) == (200, b"GET /s ", True)
    assert b"transfer-encoding" not in answer.headers
    assert not client.client.protocol.streams
    assert not client.client.protocol.h2.streams


def test_nothing_of_http1_is_told() -> None:
    def answer(request: Request) -> None:
        request.keep_alive = False
        request.respond_empty(204, b"x-a: 1\r\n")

    answer_ = H2Client(Server(answer)).get()
    assert answer_.status == 204
    assert set(answer_.headers) == {b":status", b"server", b"date", b"x-a"}


def test_head_has_no_body() -> None:
    client = H2Client(Server(streamed))
    stream = client.begin(method=b"HEAD")
    client.flush()
    assert client.answers[stream].ended
    assert client.answers[stream].body == b""


def test_headers_that_come_twice_are_joined() -> None:
    server = Server(whole)
    client = H2Client(server)
    client.begin(headers=[(b"cookie", b"a=1"), (b"x", b"1"), (b"cookie", b"b=2"), (b"x", b"2")])
    client.flush()
    headers = server.requests[0].headers
    assert (headers[b"cookie"], headers[b"x"]) == (b"a=1; b=2", b"1, 2")


def test_streams_are_answered_as_their_answers_come() -> None:
    server = Server()
    client = H2Client(server)
    first, second = client.begin(b"/1"), client.begin(b"/2")
    client.flush()
    slow, quick = server.requests
    slow.start(200, b"text/plain", first=b"a")
    whole(quick)
    client.flush()
    assert client.answers[second].ended
    assert client.answers[first].body == b"a"
    slow.send(b"b")
    slow.finish(b"c")
    client.flush()
    assert (client.answers[first].body, client.answers[first].ended) == (b"abc", True)


def test_trailers_follow_the_body() -> None:
    def answer(request: Request) -> None:
        request.trailers = b"grpc-status: 0\r\ngrpc-message: all well\r\n"
        request.start(200, b"application/grpc", first=b"x", end=True)

    found = H2Client(Server(answer)).get()
    assert found.trailers == {b"grpc-status": b"0", b"grpc-message": b"all well"}
    assert (found.body, found.ended) == (b"x", True)


def test_a_body_may_be_taken_in_pieces() -> None:
    taken: list[bytes | None] = []

    class Pieces:
        def takes(self, request: Request) -> bool:
            return True

        def takes_pieces(self, request: Request) -> bool:
            return True

        def handle(self, request: Request) -> None:
            request.on_body = taken.append

        def refuse(self, request: Request, status: int, message: str) -> None:
            raise AssertionError(message)

    server = Server()
    server.site.calls = Pieces()
    client = H2Client(server)
    stream = client.begin(method=b"POST", end=False)
    client.flush()
    client.send(stream, b"one", end=False)
    client.flush()
    assert taken == [b"one"]
    client.send(stream, b"two")
    client.flush()
    assert taken == [b"one", b"two", None]


def test_a_client_is_told_to_continue() -> None:
    server = Server(whole)
    client = H2Client(server)
    stream = client.begin(method=b"POST", headers={b"expect": b"100-continue"}, end=False)
    client.flush()
    assert client.answers[stream].informed == [b"100"]
    client.send(stream, b"body")
    client.flush()
    assert client.answers[stream].body == b"POST / body"


def test_a_crash_is_a_500_and_ends_one_stream() -> None:
    def answer(request: Request) -> None:
        if request.path == b"/crash":
            raise ZeroDivisionError
        if request.path == b"/late":
            request.start(200, b"text/plain", first=b"a")
            request.fail(Failure(ZeroDivisionError()))
            return
        whole(request)

    client = H2Client(Server(answer))
    assert client.get(b"/crash").status == 500
    late = client.get(b"/late")
    assert (late.reset, late.ended) == (ErrorCodes.INTERNAL_ERROR, False)
    assert client.get(b"/fine").status == 200


# --- who leaves


def test_a_reset_stream_is_lost_and_no_other() -> None:
    server = Server()
    client = H2Client(server)
    first, _ = client.begin(), client.begin()
    client.flush()
    client.h2.reset_stream(first)
    client.flush()
    assert server.lost == [server.requests[0]]
    whole(server.requests[0])
    whole(server.requests[1])
    client.flush()
    assert client.answers[3].ended
    assert not client.client.protocol.h2.streams


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_all_streams_are_lost_with_the_connection(how: str) -> None:
    server = Server()
    ended: list[Request] = []
    server.site.on_ended.append(ended.append)
    client = H2Client(server)
    client.begin()
    client.begin()
    client.flush()
    getattr(client.client, how)()
    server.settle()
    assert server.lost == server.requests == ended
    assert not server.site.connections


def test_a_request_reset_with_its_head_is_not_answered() -> None:
    server = Server(whole)
    client = H2Client(server)
    stream = client.begin()
    client.h2.reset_stream(stream)
    client.flush()
    assert client.get(b"/other").status == 200
    assert not client.client.protocol.streams


# --- limits


def test_a_length_that_is_told_twice_is_one() -> None:
    client = H2Client(Server(whole))
    client.h2.config.validate_outbound_headers = False
    for told, body in (((b"5", b"5"), b"hello"), ((b"5", b"05"), b"hello")):
        stream = client.begin(b"/x", b"POST", [(b"content-length", length) for length in told], end=False)
        client.send(stream, body)
        assert client.flush().answers[stream].body == b"POST /x " + body


@pytest.mark.parametrize("end", ["answered", "answered early", "reset", "disconnected", "refused", "cut"])
def test_nothing_is_left_of_a_stream_that_is_over(end: str) -> None:
    """Not for Python's collector either, which may be long in coming while bodies are large."""
    server = Server(limits=Limits(body_size=1000))
    client = H2Client(server)
    late = end in ("answered early", "refused")
    stream = client.begin(b"/", b"POST", end=False)
    gc.disable()
    try:
        client.send(stream, b"x" * (1001 if end == "refused" else 10), end=not late)
        client.flush()
        (kept,) = client.client.protocol.streams.values()
        request = kept.request
        match end:
            case "answered" | "answered early":
                request.respond(200, b"")
            case "reset":
                client.h2.reset_stream(stream)
            case "disconnected":
                client.client.rst()
            case "cut":
                request.start(200, b"text/plain")
                request.channel.transport.abortConnection()
        if end != "disconnected":
            client.flush()
        server.wait(2 * LINGER_SECONDS)
        gone = weakref.ref(request)
        server.requests.clear()
        server.lost.clear()
        del kept, request
        assert gone() is None
    finally:
        gc.enable()


def test_headers_are_limited() -> None:
    client = H2Client(Server(whole, Limits(header_size=1000)))
    for headers, status in (
        ([(b"x", b"y" * 900)], 431),
        ([(b"x", b"y" * 700)], 200),
        ([(b"x%d" % n, b"") for n in range(100)], 431),
    ):
        stream = client.begin(headers=headers)
        client.flush()
        assert client.answers[stream].status == status
    client.begin(headers={b"x": b"y" * 5000})
    client.flush()
    assert client.goaways[-1][1] == ErrorCodes.ENHANCE_YOUR_CALM


def test_headers_are_counted() -> None:
    client = H2Client(Server(whole))
    for count, status in ((MAX_HEADERS - 4, 200), (MAX_HEADERS - 3, 431)):
        stream = client.begin(headers=[(b"x", b"")] * count)
        client.flush()
        assert client.answers[stream].status == status


@pytest.mark.parametrize("told", [True, False])
def test_bodies_are_limited(told: bool) -> None:
    server = Server(whole, Limits(body_size=100_000))
    client = H2Client(server)
    most = client.post(b"x" * 100_000)
    assert client.answers[most].status == 200
    headers = {b"content-length": b"100001"} if told else {}
    stream = client.begin(method=b"POST", headers=headers, end=False)
    if not told:
        client.send(stream, b"x" * 100_001)
    client.flush()
    answer = client.answers[stream]
    assert (answer.status, answer.ended, answer.reset) == (413, True, None)
    assert client.get().status == 200
    if told:
        # The rest is not wanted, and what comes nevertheless does no harm.
        client.send(stream, b"x" * 50_000, end=False)
        client.flush()
        server.wait(LINGER_SECONDS)
        client.flush()
        assert answer.reset == ErrorCodes.NO_ERROR
    assert client.get().status == 200
    protocol = client.client.protocol
    assert (protocol.arrivals.held, protocol.streams, protocol.h2.streams) == (0, {}, {})


@pytest.mark.parametrize("end", ["request", "reset", "connection"])
def test_a_client_ends_a_request_that_was_refused(end: str) -> None:
    """Until then it may send on, and nothing is left to be done later."""
    server = Server(whole, Limits(body_size=100_000))
    calls = [*server.clock.getDelayedCalls()]
    client = H2Client(server)
    stream = client.begin(method=b"POST", headers={b"content-length": b"200000"}, end=False)
    client.send(stream, b"x" * 100_000, end=False)
    client.flush()
    assert client.answers[stream].ended
    assert [*client.client.protocol.streams] == [stream]
    if end == "request":
        client.send(stream, b"x" * 100_000)
    elif end == "reset":
        client.h2.reset_stream(stream)
    else:
        client.client.rst()
    client.flush()
    server.settle()
    assert client.answers[stream].reset is None
    protocol = client.client.protocol
    assert protocol.streams == {}
    assert server.clock.getDelayedCalls() == calls


def test_bodies_on_one_connection_are_limited_together() -> None:
    server = Server(whole, Limits(body_size=1000))
    client = H2Client(server)
    streams = [client.begin(method=b"POST", end=False) for _ in range(3)]
    for stream in streams:
        client.send(stream, b"x" * 999, end=False)
    client.flush()
    assert [client.answers[stream].status for stream in streams] == [0, 0, 413]
    assert client.client.protocol.arrivals.held == 2 * 999


def test_streams_beyond_the_limit_are_refused() -> None:
    server = Server(limits=Limits(streams=2))
    client = H2Client(server)
    client.h2.remote_settings.max_concurrent_streams = 100
    client.h2.remote_settings.acknowledge()
    streams = [client.begin() for _ in range(3)]
    client.flush()
    assert client.answers[streams[2]].reset == ErrorCodes.REFUSED_STREAM
    for request in server.requests:
        whole(request)
    assert client.flush().answers[streams[0]].ended
    server.answer = whole
    assert client.get().status == 200


def test_a_body_that_does_not_arrive_is_408() -> None:
    server = Server(whole, Limits(idle_time=4))
    client = H2Client(server)
    stream = client.begin(method=b"POST", end=False)
    client.flush()
    server.wait(3)
    client.send(stream, b"x", end=False)
    client.flush()
    server.wait(3)
    assert client.flush().answers[stream].status == 0
    server.wait(3)
    assert client.flush().answers[stream].status == 408


def test_a_silent_connection_is_closed() -> None:
    server = Server(limits=Limits(idle_time=4))
    client = H2Client(server)
    server.wait(3)
    client.h2.ping(b"12345678")
    client.flush()
    server.wait(3)
    assert client.client.fate == "open"
    server.wait(6)
    assert client.flush().goaways == [(0, 0)]
    assert client.client.fate != "open"


def test_a_connection_with_a_request_is_not_silent() -> None:
    server = Server(limits=Limits(idle_time=4))
    client = H2Client(server)
    stream = client.flush_begin()
    server.wait(20)
    whole(server.requests[0])
    assert client.flush().answers[stream].ended


# --- closing


class AllCalls:
    """Takes every request for a call, and has the site handle it."""

    def __init__(self, server: Server) -> None:
        self.handle = server.site.handle

    def takes(self, request: Request) -> bool:
        return True

    def takes_pieces(self, request: Request) -> bool:
        return False

    def refuse(self, request: Request, status: int, message: str) -> None:
        raise AssertionError(message)


def test_closing_waits_for_calls_and_for_those_on_their_way() -> None:
    server = Server()
    server.site.calls = AllCalls(server)
    client = H2Client(server)
    first = client.flush_begin()
    server.site.close_idle()
    late = client.begin()  # the client has not read the GOAWAY
    client.flush()
    assert client.goaways[0] == (2**31 - 1, 0)
    assert client.goaways[1:] == [(late, 0)]
    assert len(server.requests) == 2
    assert server.site.busy
    too_late = client.begin()
    client.flush()
    assert client.answers[too_late].reset == ErrorCodes.REFUSED_STREAM
    for request in server.requests:
        whole(request)
    client.flush()
    assert client.answers[first].ended
    assert client.answers[late].ended
    client.client.fin()
    server.settle()
    assert not server.site.connections


def test_closing_is_told_when_requests_are_answered() -> None:
    """Many clients take a GOAWAY for the end of what is under way."""
    server = Server()
    client = H2Client(server)
    first = client.flush_begin()
    server.site.close_idle()
    second = client.flush_begin()
    assert client.goaways == []
    for request in server.requests:
        assert server.site.busy
        whole(request)
    late = client.begin()  # the client has not read the GOAWAY
    client.flush()
    assert client.goaways == [(2**31 - 1, 0), (late, 0)]
    assert client.answers[first].ended
    assert client.answers[second].ended
    assert client.client.fate == "open"
    whole(server.requests[-1])
    client.flush()
    assert client.answers[late].ended
    assert not server.site.busy
    client.client.fin()
    server.settle()
    assert not server.site.connections


def test_a_client_that_does_not_answer_is_waited_for_a_second() -> None:
    server = Server()
    client = H2Client(server)
    server.site.close_idle()
    # What it is sent is read here, and not answered.
    server.wait(GOAWAY_SECONDS - 0.25)
    client._receive()
    assert client.goaways == [(2**31 - 1, 0)]
    assert client.client.fate == "open"
    server.wait(0.25)
    client._receive()
    assert client.goaways[1:] == [(0, 0)]
    server.wait(4)
    assert client.client.fate != "open"


def test_a_client_that_goes_has_its_answers() -> None:
    server = Server()
    client = H2Client(server)
    stream = client.flush_begin()
    state = client.h2.state_machine.state
    client.h2.close_connection()
    client.client.send(client.h2.data_to_send())
    client.h2.state_machine.state = state
    whole(server.requests[0])
    assert client.flush().answers[stream].ended
    server.settle()
    assert client.client.fate != "open"


# --- which protocol


def test_the_first_bytes_decide() -> None:
    server = Server(whole)
    slow = server.connect()
    for place in range(len(PREFACE)):
        assert isinstance(slow.protocol, Sniffing)
        slow.send(PREFACE[place : place + 1])
    assert isinstance(slow.protocol, HTTP2)
    other = server.connect().send(b"P", b"R", b"OPFIND / HTTP/1.1\r\nHost: sim\r\n\r\n")
    assert isinstance(other.protocol, HTTP1)
    assert [reply.status for reply in other.replies(b"PROPFIND")] == [200]
    assert len(server.site.connections) == 2


def test_what_tls_agreed_on_decides() -> None:
    server = Server(whole)
    for agreed, protocol in ((b"h2", HTTP2), (b"http/1.1", HTTP1)):
        client = server.connect()
        client.transport.negotiatedProtocol = agreed  # type: ignore[attr-defined]
        client.send(PREFACE[:1] if agreed == b"h2" else get()[:1])
        assert isinstance(client.protocol, protocol)


def test_a_connection_that_says_nothing_is_closed() -> None:
    server = Server(limits=Limits(idle_time=4))
    silent, slow = server.connect(), server.connect().send(PREFACE[:3])
    server.wait(6)
    assert silent.fate == "closed"
    server.wait(4)
    assert [reply.status for reply in slow.replies()] == [408]
    server.wait(4)
    assert not server.site.connections


def test_sniffing_does_not_hold_up_the_end() -> None:
    server = Server()
    client = server.connect()
    assert not server.site.busy
    server.site.close_idle()
    server.settle()
    assert client.fate == "closed"


def test_clients_for_whom_goaway_is_the_end_can_read_up_to_it() -> None:
    """Among them all that are made with h2, which takes nothing behind it, not even a ping."""

    def refuse(request: Request) -> None:
        request.keep_alive = False
        request.respond(503, b"elsewhere")

    server = Server(refuse)
    client = server.connect()
    strict = H2Connection(H2Configuration(client_side=True, header_encoding=None))
    strict.initiate_connection()
    headers = [(":method", "GET"), (":scheme", "http"), (":authority", "sim"), (":path", "/")]
    strict.send_headers(1, headers, end_stream=True)
    client.send(strict.data_to_send())
    found = [type(event).__name__ for event in strict.receive_data(client.received)]
    assert found[-4:] == ["DataReceived", "StreamEnded", "PingReceived", "ConnectionTerminated"]
    server.wait(GOAWAY_SECONDS)
    assert client.fate == "half-closed"


def test_the_connection_that_ends_a_turn_is_sent_to_with_the_others() -> None:
    server, turn = Server(whole), Turn()
    clients = [H2Client(server) for _ in range(Turn.MOST)]
    for client in clients:
        client.client.protocol._turn = turn
    streams = [client.flush_begin() for client in clients]
    turn.end()
    for client, stream in zip(clients, streams, strict=True):
        assert client.flush().answers[stream].ended


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [(b"GET", b"no/path", 400), (b"GET", b"/" + b"x" * 2000, 431), (b"POST", b"/\xff", 400)],
)
@pytest.mark.parametrize("body", [b"", b"hello"])
def test_what_is_refused_by_its_head_is_not_handed_on(
    method: bytes, path: bytes, status: int, body: bytes
) -> None:
    server = Server(whole, Limits(header_size=1000))
    client = H2Client(server)
    stream = client.begin(path, method, end=not body)
    if body:
        client.send(stream, body)
    client.flush()
    server.wait(LINGER_SECONDS)
    assert client.answers[stream].status == status
    assert server.requests == []
    assert not client.client.protocol.streams
