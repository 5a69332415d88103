"""What a site tells of requests that ended: each once, and how."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
from twisted.logger import capturedLogs

from llmdsim.wire.limits import Limits
from llmdsim.wire.request import Request
from tests.wire.channel import Server, get, post, streamed, whole


class End(NamedTuple):
    """What can be known of an ended request."""

    method: bytes
    path: bytes
    status: int
    length: int
    lost: bool


class WatchedServer(Server):
    """A server that notes the ends it is told of."""

    def __init__(self, answer: Callable[[Request], None] | None = None, limits: Limits = Limits()) -> None:  # noqa: B008 - frozen
        self.ends: list[End] = []
        self.ended: list[Request] = []
        super().__init__(answer, limits)
        self.site.on_ended.append(self.note)

    def note(self, request: Request) -> None:
        assert all(request is not ended for ended in self.ended), "told twice"
        self.ended.append(request)
        self.ends.append(End(request.method, request.path, request.status, request.length, request.lost))


def crash(request: Request) -> None:
    raise ZeroDivisionError


def begin_and_crash(request: Request) -> None:
    request.start(200, b"text/plain", first=b"begun")
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("answer", "status", "length"),
    [
        (whole, 200, 7),
        (streamed, 200, 0),
        (lambda request: request.respond_empty(204), 204, 0),
        (lambda request: request.respond(404, b"{}"), 404, 2),
    ],
)
@pytest.mark.parametrize("method", [b"GET", b"PUT"])
@pytest.mark.parametrize("close", [(), (b"Connection: close",)])
def test_what_was_served(
    answer: Callable[[Request], None], status: int, length: int, method: bytes, close: tuple[bytes, ...]
) -> None:
    server = WatchedServer(answer)
    client = server.connect().send(get(b"/a", *close, method=method))
    client.fin()
    server.wait(5)
    assert server.ends == [End(method, b"/a", status, length, False)]


@pytest.mark.parametrize("answer", [whole, streamed])
def test_head_is_an_end_like_others(answer: Callable[[Request], None]) -> None:
    server = WatchedServer(answer)
    server.connect().send(get(b"/a", method=b"HEAD")).rst()
    assert server.ends == [End(b"HEAD", b"/a", 200, 8 if answer is whole else 0, False)]


def test_a_request_that_ends_later_is_told_then() -> None:
    server = WatchedServer()
    server.connect().send(get(b"/a"))
    (request,) = server.requests
    began = server.clock.seconds()
    server.wait(2)
    request.start(200, b"text/plain", first=b"x")
    server.wait(2)
    assert server.ends == []
    request.finish()
    assert server.ends == [End(b"GET", b"/a", 200, 0, False)]
    assert request.began == began


def test_pipelined_requests_are_told_one_by_one_and_begin_with_their_turn() -> None:
    server = WatchedServer()
    server.connect().send(get(b"/a") + get(b"/b") + get(b"/c"))
    for number in range(3):
        assert len(server.ends) == number
        server.wait(1)
        server.requests[number].respond(200, b"")
    assert [end.path for end in server.ends] == [b"/a", b"/b", b"/c"]
    began = [request.began for request in server.ended]
    assert [later - began[0] for later in began] == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("message", "method", "path", "status"),
    [
        (b"nonsense\r\n\r\n", b"-", b"-", 400),
        (get(b"/a", host=False, method=b"PUT"), b"PUT", b"/a", 400),
        (post(b"", b"Expect: tea", path=b"/a"), b"POST", b"/a", 417),
        (post(b"x" * 101, path=b"/a"), b"POST", b"/a", 413),
        (get(b"/", b"X-A: " + b"a" * 2000), b"GET", b"/", 431),
    ],
)
@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("leaves", ["fin", "rst", ""])
def test_what_was_refused(
    message: bytes, method: bytes, path: bytes, status: int, before: int, leaves: str
) -> None:
    server = WatchedServer(whole, Limits(1024, 100))
    client = server.connect().send(get(b"/good") * before + message)
    if leaves:
        getattr(client, leaves)()
    server.wait(5)
    *good, refused = server.ends
    assert [end.status for end in good] == [200] * before
    length = len(client.replies(*[b"GET"] * before, method)[-1].body)
    assert refused == End(method, path, status, length, False)


def test_a_request_that_never_ended_is_told_as_its_time_out() -> None:
    server = WatchedServer(limits=Limits(idle_time=4.0))
    server.connect().send(post(b"hello", path=b"/a")[:-1])
    server.wait(10)
    assert [(end.path, end.status, end.lost) for end in server.ends] == [(b"/a", 408, False)]


@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize("leaves", ["fin", "rst"])
def test_what_was_lost(started: bool, leaves: str) -> None:
    server = WatchedServer()
    client = server.connect().send(get(b"/a") + get(b"/b"))
    (request,) = server.requests
    if started:
        request.start(200, b"text/plain", first=b"x")
    getattr(client, leaves)()
    server.wait(5)
    request.finish()
    request.respond(200, b"late")
    # The second never had its turn.
    assert server.ends == [End(b"GET", b"/a", 200 if started else 0, 0, True)]


def test_a_loss_that_the_application_fails_to_take_is_told_too() -> None:
    server = WatchedServer()
    client = server.connect().send(get(b"/a"))

    def failing() -> None:
        raise ValueError("on purpose")

    server.requests[0].on_lost = failing
    with pytest.raises(ValueError, match="on purpose"):
        client.rst()
    assert server.ends == [End(b"GET", b"/a", 0, 0, True)]


def test_a_loss_that_the_application_answers_is_one_end() -> None:
    server = WatchedServer()
    client = server.connect().send(get(b"/a"))
    (request,) = server.requests
    request.on_lost = lambda: request.respond(500, b"")
    client.rst()
    assert server.ends == [End(b"GET", b"/a", 0, 0, True)]


@pytest.mark.parametrize(("answer", "status", "lost"), [(crash, 500, False), (begin_and_crash, 200, True)])
def test_what_failed(answer: Callable[[Request], None], status: int, lost: bool) -> None:
    server = WatchedServer(answer)
    with capturedLogs():
        server.connect().send(get(b"/a"))
        server.wait(1)
    assert [(end.path, end.status, end.lost) for end in server.ends] == [(b"/a", status, lost)]


def test_the_end_of_the_site_is_a_loss() -> None:
    server = WatchedServer()
    server.connect().send(get(b"/a"))
    server.connect()
    server.site.stop()
    server.settle()
    assert server.ends == [End(b"GET", b"/a", 0, 0, True)]


def test_nothing_is_told_of_connections_without_requests() -> None:
    server = WatchedServer(limits=Limits(idle_time=4.0))
    server.connect()
    server.connect().send(get()[:9]).fin()
    server.connect().send(post(b"hello")[:-1]).rst()
    server.wait(10)
    assert server.ends == []


@pytest.mark.parametrize("answer", [whole, streamed, None, crash])
def test_an_observer_that_fails_is_logged_and_harms_nobody(answer: Callable[[Request], None] | None) -> None:
    server = WatchedServer(answer)

    def failing(request: Request) -> None:
        raise KeyError("on purpose")

    server.site.on_ended.insert(0, failing)
    with capturedLogs() as logged:
        client = server.connect().send(get(b"/a") + get(b"/b") + b"nonsense\r\n\r\n")
        if answer is None:
            client.rst()
        server.settle()
    assert len(server.ends) == (1 if answer is None else 3)
    faults = [event for event in logged if event["log_failure"].type is KeyError]
    assert len(faults) == len(server.ends)
    if answer is not None:
        assert len(client.replies()) == 3
        assert client.fate == "half-closed"
