"""Cross-origin pages: what preflights are answered, and which lines responses of every kind carry."""

from __future__ import annotations

import json

import pytest

from tests.web.access.rig import ask
from tests.web.clients import CHAT, TEXT, fields, reply_of, request
from tests.web.rig import RankRig
from tests.wire.channel import Reply, read_replies

A, B = "http://a.example", "https://b.example:8443"
ORIGIN = b"access-control-allow-origin"
ALL_METHODS = b"DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"
SAFE = "Accept, Accept-Language, Content-Language, Content-Type"


def rank(origins: list[str] | None = None, *flags: str, **lists: list[str]) -> RankRig:
    given = [] if origins is None else ["--allowed-origins", json.dumps(origins)]
    for name, values in lists.items():
        given += [f"--allowed-{name}", json.dumps(values)]
    return RankRig(*given, *flags)


def preflight(
    rig: RankRig, origin: str, method: str = "POST", *headers: bytes, path: str = CHAT, wanted: str = ""
) -> Reply:
    lines = [f"Origin: {origin}".encode(), f"Access-Control-Request-Method: {method}".encode(), *headers]
    if wanted:
        lines.append(f"Access-Control-Request-Headers: {wanted}".encode())
    reply = ask(rig, path.encode(), *lines, method=b"OPTIONS")
    assert reply.headers[b"content-type"] == b"text/plain; charset=utf-8"
    return reply


def cors_lines(reply: Reply) -> dict[str, str]:
    return {
        name.decode().removeprefix("access-control-"): value.decode()
        for name, value in reply.headers.items()
        if name.startswith(b"access-control-") or name == b"vary"
    }


# --- preflights


def test_by_default_no_page_may_call() -> None:
    rig = rank()
    for path in (CHAT, "/health", "/nowhere"):
        reply = preflight(rig, A, path=path, wanted="authorization, content-type")
        assert (reply.status, reply.body) == (400, b"Disallowed CORS origin")
        assert cors_lines(reply) == {
            "vary": "Origin",
            "allow-methods": ALL_METHODS.decode(),
            "max-age": "600",
            "allow-headers": "authorization, content-type",
        }


def test_a_page_of_an_allowed_origin_may() -> None:
    rig = rank([A, B])
    for origin in (A, B):
        reply = preflight(rig, origin, wanted="authorization,x-anything")
        assert (reply.status, reply.body) == (200, b"OK")
        assert cors_lines(reply) == {
            "vary": "Origin",
            "allow-origin": origin,
            "allow-methods": ALL_METHODS.decode(),
            "max-age": "600",
            "allow-headers": "authorization,x-anything",
        }


@pytest.mark.parametrize("origin", [f"{A}/", A.upper(), "http://a.example.evil", "null", f"{A}, {B}", "*"])
def test_an_origin_is_allowed_as_it_is_written_or_not_at_all(origin: str) -> None:
    reply = preflight(rank([A, B]), origin)
    assert (reply.status, reply.body) == (400, b"Disallowed CORS origin")
    assert "allow-origin" not in cors_lines(reply)


def test_a_star_allows_all_origins() -> None:
    reply = preflight(rank(["*"]), "null")
    assert reply.status == 200
    assert cors_lines(reply) == {
        "allow-origin": "*",
        "allow-methods": ALL_METHODS.decode(),
        "max-age": "600",
    }


def test_with_credentials_the_origin_is_named() -> None:
    for origins in (["*"], [A]):
        reply = preflight(rank(origins, "--allow-credentials"), A)
        assert (reply.status, cors_lines(reply)["vary"]) == (200, "Origin")
        assert cors_lines(reply)["allow-origin"] == A
        assert cors_lines(reply)["allow-credentials"] == "true"


@pytest.mark.parametrize(
    ("method", "wanted", "told"),
    [
        ("POST", "", b"OK"),
        ("POST", "Content-Type, X-Mine", b"OK"),
        ("POST", "x-mine,accept-language", b"OK"),
        ("GET", "", b"Disallowed CORS method"),
        ("post", "", b"Disallowed CORS method"),
        ("POST", "authorization", b"Disallowed CORS headers"),
        ("PUT", "x-mine, authorization", b"Disallowed CORS method, headers"),
    ],
)
def test_methods_and_headers_may_be_named(method: str, wanted: str, told: bytes) -> None:
    rig = rank([A], methods=["POST", "DELETE"], headers=["X-Mine"])
    reply = preflight(rig, A, method, wanted=wanted)
    assert (reply.status, reply.body) == (200 if told == b"OK" else 400, told)
    lines = cors_lines(reply)
    assert lines["allow-methods"] == "POST, DELETE"
    assert lines["allow-headers"] == f"{SAFE}, X-Mine"


def test_everything_wrong_is_told_at_once() -> None:
    rig = rank([A], methods=["POST"], headers=[])
    reply = preflight(rig, B, "PUT", b"Access-Control-Request-Private-Network: true", wanted="x")
    assert (reply.status, reply.body) == (400, b"Disallowed CORS origin, method, headers, private-network")


def test_a_preflight_needs_no_key() -> None:
    rig = rank([A], "--api-key", "k")
    assert preflight(rig, A, wanted="authorization").status == 200


@pytest.mark.parametrize(
    "headers", [(), (b"Origin: http://a.example",), (b"Access-Control-Request-Method: POST",)]
)
def test_what_is_no_preflight_is_answered_as_ever(headers: tuple[bytes, ...]) -> None:
    for rig in (rank(), rank([A])):
        reply = ask(rig, CHAT.encode(), *headers, method=b"OPTIONS")
        assert (reply.status, reply.headers[b"allow"]) == (204, b"OPTIONS, POST")


def test_a_head_or_get_with_a_preflights_headers_is_none() -> None:
    reply = ask(rank([A]), b"/health", b"Origin: http://b", b"Access-Control-Request-Method: POST")
    assert reply.status == 200


# --- other responses


def every_kind(rig: RankRig, *headers: str) -> list[Reply]:
    """A response of every kind: whole, streamed, empty, refused, redirected, unknown, malformed."""
    replies = []
    raw = [header.encode() for header in headers]
    for body in (fields(CHAT), fields(CHAT, stream=True), fields(TEXT, stream=True), {"messages": 5}):
        path = TEXT if "prompt" in body else CHAT
        client = rig.connect().send(request(path, body, *headers))
        rig.settle()
        replies.append(reply_of(client))
    paths = (b"/v1/models", b"/health", b"/metrics", b"/health/", b"/nowhere", b"/%ff", b"/docs")
    replies += [ask(rig, path, *raw) for path in paths]
    replies.append(ask(rig, b"/health", *raw, method=b"DELETE"))
    replies.append(ask(rig, b"/v1/models", *raw, method=b"OPTIONS"))
    client = rig.connect().send(
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n"
        + b"".join(b"%b\r\n" % line for line in raw)
        + b"\r\n"
    )
    client.settle()
    (refused,) = read_replies(client.received, [b"POST"], ended=True)
    return [*replies, refused]


def test_all_kinds_of_responses_tell_that_the_page_may_read_them() -> None:
    replies = every_kind(rank([A, B]), f"Origin: {B}")
    assert {reply.status for reply in replies} == {200, 204, 307, 400, 404, 405}
    for reply in replies[:-1]:
        assert cors_lines(reply) == {"allow-origin": B, "vary": "Origin"}
    # The parser gave up before it came to the header.
    assert cors_lines(replies[-1])["vary"] == "Origin"


@pytest.mark.parametrize("header", ["Origin: http://evil.example", "X-Origin: http://a.example"])
def test_others_may_not_and_caches_are_told_so(header: str) -> None:
    for reply in every_kind(rank([A]), header):
        assert cors_lines(reply) == {"vary": "Origin"}


def test_with_a_star_all_may() -> None:
    for reply in every_kind(rank(["*"]), "Origin: null", "Cookie: a=b", "Authorization: Bearer x")[:-1]:
        assert cors_lines(reply) == {"allow-origin": "*"}
    for reply in every_kind(rank(["*"])):
        assert cors_lines(reply) == {}


def test_credentials_are_allowed_to_the_origin_by_name() -> None:
    for reply in every_kind(rank(["*"], "--allow-credentials"), f"Origin: {A}")[:-1]:
        assert cors_lines(reply) == {"allow-origin": A, "allow-credentials": "true", "vary": "Origin"}
    for reply in every_kind(rank(["*"], "--allow-credentials")):
        assert cors_lines(reply) == {"vary": "Origin"}


def test_by_default_responses_say_nothing_of_it() -> None:
    rig = rank()
    for reply in every_kind(rig, f"Origin: {A}"):
        assert cors_lines(reply) == {}
    assert rig.site.common_headers is None, "and it costs nothing"


def test_request_ids_go_along() -> None:
    rig = rank([A], "--enable-request-id-headers")
    for reply in every_kind(rig, f"Origin: {A}", "X-Request-Id: mine")[:-1]:
        assert (reply.headers[b"x-request-id"], reply.headers[ORIGIN]) == (b"mine", A.encode())
    assert preflight(rig, A, "POST", b"X-Request-Id: mine").headers[b"x-request-id"] == b"mine"
