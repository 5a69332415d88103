"""The router by itself: its table and its search give the same answers, and every failure is one answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import capturedLogs

from llmdsim.config import Config
from llmdsim.web.access.gate import Gate
from llmdsim.web.errors import ApiError
from llmdsim.web.router import Router, new_app, path_error
from llmdsim.wire.request import Request
from tests.wire.channel import Reply, Server, get, read_replies
from tests.wire.recorder import Recorder, made


class Routes:
    """Two of each kind of route: one that the table finds and one that has a variable."""

    def __init__(self) -> None:
        self.act: Callable[[Request], Any] = lambda request: request.respond(200, b'"plain"')
        self.names: list[str] = []
        app = new_app()
        app.route("/plain", methods=["GET", "POST"], endpoint="plain")(self.plain)
        app.route("/plain/<path:name>", methods=["GET", "POST"], endpoint="named")(self.named)
        app.route("/posted", methods=["POST"], endpoint="posted")(self.plain)
        self.router = Router(app, Gate(Config(model="m")))

    def plain(self, request: Request) -> Any:
        return self.act(request)

    def named(self, request: Request, name: str) -> Any:
        self.names.append(name)
        return self.act(request)

    def call(self, method: bytes, uri: bytes, **headers: bytes) -> tuple[Request, Recorder]:
        request, channel = made(method, uri, **headers)
        self.router.handle(request)
        return request, channel

    def answer(self, method: bytes, uri: bytes, **headers: bytes) -> Reply:
        """The one complete response, which must have come at once."""
        request, channel = self.call(method, uri, **headers)
        assert channel.done == [request]
        return reply(channel, method)


def reply(channel: Recorder, method: bytes = b"GET") -> Reply:
    (only,) = read_replies(b"".join(channel.writes), [method], ended=True)
    assert only.complete
    return only


@pytest.fixture
def routes() -> Routes:
    return Routes()


KINDS = pytest.mark.parametrize("uri", [b"/plain", b"/plain/x"])


def test_paths_without_variables_are_found_without_a_search(
    routes: Routes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes.router, "_map", None)
    for method in (b"GET", b"POST", b"HEAD"):
        for path in (b"/plain", b"/plain?a=b", b"/%70lain"):
            assert routes.answer(method, path).status == 200


@pytest.mark.parametrize("method", [b"GET", b"POST", b"HEAD", b"OPTIONS", b"DELETE", b"PROPFIND"])
@pytest.mark.parametrize("path", [b"/plain", b"/plain?a=b", b"/posted", b"/plain/", b"/nowhere"])
def test_the_table_answers_as_a_search_would(routes: Routes, method: bytes, path: bytes) -> None:
    searched, channel = made(method, path)
    routes.router.match(searched)
    assert routes.answer(method, path) == reply(channel, method)


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        (b"/plain/x", "x"),
        (b"/plain/org/model", "org/model"),
        (b"/plain/org%2Fmodel?a=b", "org/model"),
        (b"/plain/x/", "x/"),
        (b"/plain/a%20b%3Fc", "a b?c"),
        ("/plain/é中".encode(), "é中"),
        (b"/plain/%F0%9F%98%80", "😀"),
    ],
)
def test_variables_are_decoded_and_may_hold_slashes(routes: Routes, uri: bytes, name: str) -> None:
    assert routes.answer(b"GET", uri).status == 200
    assert routes.names == [name]


@pytest.mark.parametrize("uri", [b"/plain//mnt/models", b"/plain/%2Fmnt%2Fmodels", b"/plain/a//b"])
def test_a_variable_may_begin_with_a_slash_and_hold_two(routes: Routes, uri: bytes) -> None:
    """Models are often named by their folder, and `/mnt/models` is KServe's."""
    assert routes.answer(b"GET", uri).status == 200
    assert routes.names == ["a//b" if uri.endswith(b"b") else "/mnt/models"]


@pytest.mark.parametrize(
    "uri", [b"/nowhere", b"/", b"//", b"*", b"/plainer", b"/nowhere?x=1", b"//nowhere//x"]
)
@pytest.mark.parametrize("method", [b"GET", b"POST", b"OPTIONS"])
def test_unknown_paths_are_404_as_json(routes: Routes, method: bytes, uri: bytes) -> None:
    answer = routes.answer(method, uri)
    assert (answer.status, answer.headers[b"content-type"]) == (404, b"application/json")
    assert answer.error["error"]["code"] == 404
    assert uri.partition(b"?")[0].decode() in answer.error["error"]["message"]


def test_a_path_is_not_repeated_raw(routes: Routes) -> None:
    answer = routes.answer(b"GET", b"/a%0d%0aset-cookie:%20x%22")
    assert answer.status == 404
    assert answer.error["error"]["message"].endswith('/a\r\nset-cookie: x"')
    assert set(answer.headers) == {b"server", b"date", b"content-type", b"content-length"}


@pytest.mark.parametrize(
    ("method", "uri", "allowed"),
    [
        (b"DELETE", b"/plain", b"GET, HEAD, OPTIONS, POST"),
        (b"GET", b"/posted", b"OPTIONS, POST"),
        (b"HEAD", b"/posted", b"OPTIONS, POST"),
        (b"DELETE", b"/plain/x", b"GET, HEAD, OPTIONS, POST"),
        (b"PROPFIND", b"/plain/x", b"GET, HEAD, OPTIONS, POST"),
    ],
)
def test_wrong_methods_are_405_and_told_the_right_ones(
    routes: Routes, method: bytes, uri: bytes, allowed: bytes
) -> None:
    answer = routes.answer(method, uri)
    assert (answer.status, answer.headers[b"allow"]) == (405, allowed)
    if method == b"HEAD":
        assert answer.body == b""
    else:
        assert answer.error["error"]["type"] == "MethodNotAllowedError"
        assert method.decode() in answer.error["error"]["message"]


@pytest.mark.parametrize(
    ("uri", "allowed"),
    [(b"/plain", b"GET, HEAD, OPTIONS, POST"), (b"/posted", b"OPTIONS, POST"), (b"/plain/x", None)],
)
def test_options_are_204_without_a_body(routes: Routes, uri: bytes, allowed: bytes | None) -> None:
    answer = routes.answer(b"OPTIONS", uri)
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers[b"allow"] == (allowed or b"GET, HEAD, OPTIONS, POST")


@KINDS
def test_head_is_get_without_its_body(routes: Routes, uri: bytes) -> None:
    head, get = routes.answer(b"HEAD", uri), routes.answer(b"GET", uri)
    assert (head.status, head.headers) == (get.status, get.headers)
    assert (head.body, get.body) == (b"", b'"plain"')


@pytest.mark.parametrize(
    ("uri", "location"),
    [
        (b"/plain/", b"/plain"),
        (b"/plain/?a=1&b=%20", b"/plain?a=1&b=%20"),
        (b"/plain/?", b"/plain"),
        (b"/plain/?a=?/", b"/plain?a=?/"),
        (b"/posted///", b"/posted"),
        (b"/%70lain/", b"/plain"),
    ],
)
@pytest.mark.parametrize("method", [b"GET", b"POST", b"HEAD"])
def test_a_trailing_slash_is_redirected_with_its_query(
    routes: Routes, method: bytes, uri: bytes, location: bytes
) -> None:
    answer = routes.answer(method, uri)
    # 307 and not 308 or 301: a POST must stay one, and nobody should remember it.
    assert (answer.status, answer.headers[b"location"], answer.body) == (307, location, b"")


@pytest.mark.parametrize("uri", [b"/%ff", b"/plain/%ff", b"/plain/%C3", b"/\xff", b"/plain/%ED%A0%80"])
def test_a_path_that_is_no_utf8_is_400(routes: Routes, uri: bytes) -> None:
    answer = routes.answer(b"GET", uri)
    assert (answer.status, answer.error["error"]["type"]) == (400, "BadRequestError")
    assert routes.names == []


@pytest.mark.parametrize(
    "host", [b"", b"a b", b"[::1]:80", b"[::1", b"\xff", b"a..b", b".", b"x" * 64, b"x.y:99999999"]
)
@pytest.mark.parametrize(("uri", "status"), [(b"/plain", 200), (b"/plain/x", 200), (b"/nowhere", 404)])
def test_the_host_a_client_names_makes_no_difference(
    routes: Routes, host: bytes, uri: bytes, status: int
) -> None:
    assert routes.answer(b"GET", uri, host=host).status == status


@pytest.mark.parametrize("uri", [b"//plain//x", b"/plain//x"])
def test_doubled_slashes_are_no_fault_of_ours(routes: Routes, uri: bytes) -> None:
    assert routes.answer(b"GET", uri).status < 500


# --- failures


def refuse(request: Request) -> None:
    raise ApiError(429, "busy", headers=((b"retry-after", b"1"), (b"x-more", b"2")))


def crash(request: Request) -> None:
    raise ZeroDivisionError


def begin_and(then: Callable[[Request], Any]) -> Callable[[Request], Any]:
    def act(request: Request) -> Any:
        request.start(200, b"text/plain", first=b"begun")
        return then(request)

    return act


@KINDS
def test_what_a_route_refuses_is_answered_as_it_says(routes: Routes, uri: bytes) -> None:
    routes.act = refuse
    with capturedLogs() as logged:
        answer = routes.answer(b"GET", uri)
    assert (answer.status, answer.error["error"]["message"]) == (429, "busy")
    assert (answer.headers[b"retry-after"], answer.headers[b"x-more"]) == (b"1", b"2")
    assert logged == [], "a refusal is nothing to log"


@pytest.mark.parametrize(("status", "fate"), [(503, "closed"), (429, "open")])
def test_a_client_refused_by_a_server_that_ends_comes_back_over_another_connection(
    routes: Routes, status: int, fate: str
) -> None:
    def refuse(request: Request) -> None:
        raise ApiError(status, "not now")

    routes.act = refuse
    client = Server(routes.router.handle).connect().send(get(b"/plain"))
    client.settle()
    (answer,) = client.replies()
    assert (answer.status, client.fate) == (status, fate)
    assert answer.headers.get(b"connection") == (b"close" if fate == "closed" else None)


@KINDS
def test_a_route_that_crashes_is_a_logged_500(routes: Routes, uri: bytes) -> None:
    routes.act = crash
    with capturedLogs() as logged:
        answer = routes.answer(b"GET", uri)
    assert answer.status == 500
    assert b"ZeroDivision" not in answer.body
    assert [event["log_failure"].type for event in logged] == [ZeroDivisionError]


@KINDS
@pytest.mark.parametrize("then", [refuse, crash])
@pytest.mark.parametrize("later", [False, True])
def test_a_stream_whose_route_fails_is_cut_and_looks_so(
    routes: Routes, uri: bytes, then: Callable[[Request], Any], later: bool
) -> None:
    trigger: Deferred[Request] = Deferred()
    routes.act = begin_and(
        lambda request: trigger.addCallback(lambda _: then(request)) if later else then(request)
    )
    server = Server(routes.router.handle)
    with capturedLogs() as logged:
        client = server.connect().send(get(uri))
        if later:
            trigger.callback(server.requests[0])
        server.settle()
    assert len(logged) == 1
    assert client.fate == "reset"
    (answer,) = client.replies()
    assert (answer.status, answer.body, answer.complete) == (200, b"begun", False)


@KINDS
@pytest.mark.parametrize("then", [refuse, crash])
def test_a_crash_behind_the_answer_changes_nothing(
    routes: Routes, uri: bytes, then: Callable[[Request], Any]
) -> None:
    def act(request: Request) -> None:
        request.respond(200, b'"whole"')
        then(request)

    routes.act = act
    answer = routes.answer(b"GET", uri)
    assert (answer.status, answer.body) == (200, b'"whole"')


@KINDS
@pytest.mark.parametrize("value", [None, 5, b"ignored"])
def test_a_route_may_answer_later(routes: Routes, uri: bytes, value: Any) -> None:
    later: Deferred[Any] = Deferred()
    routes.act = lambda request: later
    request, channel = routes.call(b"GET", uri)
    assert channel.writes == []
    request.respond(200, b'"late"')
    later.callback(value)
    assert channel.done == [request]
    assert reply(channel).body == b'"late"'


@KINDS
@pytest.mark.parametrize(
    ("error", "status", "logs"),
    [(ApiError(409, "taken"), 409, 0), (ZeroDivisionError(), 500, 1), (CancelledError(), 500, 1)],
)
def test_a_route_may_fail_later(routes: Routes, uri: bytes, error: Exception, status: int, logs: int) -> None:
    later: Deferred[Any] = Deferred()
    routes.act = lambda request: later
    request, channel = routes.call(b"GET", uri)
    with capturedLogs() as logged:
        later.errback(error)
    assert channel.done == [request]
    assert reply(channel).status == status
    assert len(logged) == logs


@KINDS
def test_a_route_whose_client_left_is_cancelled_and_says_nothing(routes: Routes, uri: bytes) -> None:
    cancelled: list[object] = []
    later: Deferred[Any] = Deferred(cancelled.append)
    routes.act = lambda request: later
    request, channel = routes.call(b"GET", uri)
    with capturedLogs() as logged:
        request.connection_lost()
    assert cancelled == [later]
    assert (channel.writes, logged) == ([], [])


@KINDS
def test_a_route_may_see_to_a_client_that_left_itself(routes: Routes, uri: bytes) -> None:
    told: list[Request] = []
    later: Deferred[Any] = Deferred(lambda _: told.clear())

    def act(request: Request) -> Deferred[Any]:
        request.on_lost = lambda: told.append(request)
        return later

    routes.act = act
    request, _ = routes.call(b"GET", uri)
    request.connection_lost()
    assert told == [request]


@KINDS
@pytest.mark.parametrize("error", [ApiError(409, "taken"), ZeroDivisionError()])
def test_nothing_is_written_for_a_client_that_left(routes: Routes, uri: bytes, error: Exception) -> None:
    later: Deferred[Any] = Deferred()
    routes.act = lambda request: later
    request, channel = routes.call(b"GET", uri)
    request.on_lost = None
    request.connection_lost()
    later.errback(error)
    assert (channel.writes, channel.done) == ([], [])


def test_headers_all_responses_have_come_from_the_request() -> None:
    app = new_app()
    app.route("/x", methods=["GET"], endpoint="x")(lambda request: request.respond_empty(200))
    gate = Gate(Config(model="m"))
    gate.common_headers = lambda request: b"x-uri: %b\r\n" % request.uri
    router = Router(app, gate)
    for uri in (b"/x", b"/y", b"/x/", b"/%ff"):
        request, channel = made(b"GET", uri)
        router.handle(request)
        assert reply(channel).headers[b"x-uri"] == uri


def test_errors_outside_any_route_have_the_same_shape() -> None:
    error = json.loads(path_error(431, b"/v1/models", "too long"))["error"]
    assert error == {
        "message": "too long",
        "type": "RequestHeaderFieldsTooLargeError",
        "param": None,
        "code": 431,
    }
