"""HTTP/1.1 itself: methods, paths, versions, framing, and requests that are none."""

import json
import time

import pytest

from tests.integration.client import Client, Connection, request_bytes
from tests.integration.daemon import Daemon, Pool

pytestmark = pytest.mark.integration

BODY = json.dumps({"prompt": "a b", "max_tokens": 2}).encode()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/health", b""),
        ("/health/ready", b""),
        ("/ready", b""),
        ("/ping", b""),
        ("/version", b'{"version":"0.33.0"}'),
        ("/load", b'{"server_load":0}'),
    ],
)
def test_small_routes(client: Client, path: str, body: bytes) -> None:
    reply = client.get(path)
    assert (reply.status, reply.body) == (200, body)
    if not body:
        assert "content-type" not in reply.headers
        assert reply.headers["content-length"] == "0"


def test_ping_may_be_posted(client: Client) -> None:
    assert client.ask("POST", "/ping", b"").status == 200


@pytest.mark.parametrize("path", ["/nowhere", "/v1", "/v1/chat", "/", "/v1/chat/completions/x", "/%00"])
def test_r21_unknown_paths(client: Client, path: str) -> None:
    for method in ("GET", "POST"):
        reply = client.ask(method, path, b"" if method == "POST" else None)
        assert reply.status == 404
        assert reply.error["type"] == "NotFoundError"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("DELETE", "/v1/completions", "POST"),
        ("POST", "/v1/models", "GET"),
        ("POST", "/v1/models/some/name", "GET"),
        ("PUT", "/health", "GET"),
        ("PATCH", "/ping", "POST"),
    ],
)
def test_r21_wrong_methods(client: Client, method: str, path: str, allowed: str) -> None:
    reply = client.ask(method, path, b"{}" if method == "POST" else None)
    assert reply.status == 405
    assert reply.error["type"] == "MethodNotAllowedError"
    assert allowed in reply.headers["allow"].split(", ")
    assert method not in reply.headers["allow"].split(", ")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models", "/v1/models/a/b", "/health"])
def test_options_tells_the_methods(client: Client, path: str) -> None:
    reply = client.ask("OPTIONS", path)
    assert reply.status in (200, 204)
    assert "OPTIONS" in reply.headers["allow"]
    assert ("POST" if "completions" in path else "GET") in reply.headers["allow"]


@pytest.mark.parametrize(
    "path", ["/health", "/metrics", "/v1/models", "/v1/models/m", "/version", "/admin/config"]
)
def test_head_is_get_without_the_body(client: Client, path: str) -> None:
    with client.connect() as connection:
        connection.request("HEAD", path)
        head = connection.read_reply(head_only=True)
        assert head.status == 200
        # Nothing may follow: the next response starts at once.
        connection.request("GET", path)
        whole = connection.read_reply()
        assert whole.status == 200
        assert head.headers.get("content-type") == whole.headers.get("content-type")
        if path != "/metrics":
            assert head.headers["content-length"] == str(len(whole.body))


def test_head_of_errors_has_no_body_either(client: Client) -> None:
    with client.connect() as connection:
        for path, status in (("/nowhere", 404), ("/v1/completions", 405)):
            connection.request("HEAD", path)
            assert connection.read_reply(head_only=True).status == status
        connection.request("GET", "/health")
        assert connection.read_reply().status == 200


@pytest.mark.parametrize("path", ["/v1/chat/completions/", "/v1/models/", "/health/", "/v1/completions/?a=b"])
def test_a_trailing_slash_is_redirected(client: Client, path: str) -> None:
    method = "POST" if "completions" in path else "GET"
    reply = client.ask(method, path, BODY if method == "POST" else None)
    assert reply.status == 307
    assert reply.headers["location"].endswith(path.replace("/?", "?").rstrip("/"))


def test_a_query_changes_nothing(client: Client) -> None:
    assert client.get("/health?x=1").status == 200
    assert client.ask("POST", "/v1/completions?x=1", BODY).status == 200


def test_one_connection_serves_many(client: Client) -> None:
    with client.connect() as connection:
        for number in range(30):
            connection.post("/v1/completions", {"prompt": "a", "max_tokens": 1, "stream": number % 2 == 0})
            assert connection.read_reply().status == 200
            connection.request("GET", "/nowhere")
            assert connection.read_reply().status == 404


def test_r90_pipelined_requests_are_answered_in_order(daemon_with: Pool) -> None:
    client = daemon_with("--time-to-first-token", "300ms", "--inter-token-latency", "50ms").client
    with client.connect() as connection:
        stream = json.dumps({"prompt": "a", "max_tokens": 2, "ignore_eos": True, "stream": True}).encode()
        connection.send(
            request_bytes("POST", "/v1/completions", stream)
            + request_bytes("GET", "/version")
            + request_bytes("GET", "/nowhere")
            + request_bytes("POST", "/v1/completions", BODY)
        )
        assert connection.read_head()[0] == 200
        assert [event.data for event in connection.events()][-1] == "[DONE]"
        assert connection.read_reply().body == b'{"version":"0.33.0"}'
        assert connection.read_reply().status == 404
        assert connection.read_reply().json["object"] == "text_completion"


def test_a_request_in_single_bytes(client: Client) -> None:
    with client.connect() as connection:
        for byte in request_bytes("POST", "/v1/completions", BODY):
            connection.send(bytes([byte]))
        assert connection.read_reply().status == 200


def test_a_chunked_body(client: Client) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = b"".join(b"%x\r\n%b\r\n" % (1, BODY[i : i + 1]) for i in range(len(BODY)))
    with client.connect() as connection:
        connection.send(head + chunks + b"0\r\nTrailer: x\r\n\r\n")
        assert connection.read_reply().status == 200
        connection.send(head + b"%x;ext=1\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY))
        assert connection.read_reply().status == 200


def test_connection_close_is_heeded(client: Client) -> None:
    for stream in (False, True):
        with client.connect() as connection:
            body = json.dumps({"prompt": "a", "max_tokens": 2, "stream": stream}).encode()
            connection.request("POST", "/v1/completions", body, {"Connection": "close"})
            reply = connection.read_reply()
            assert reply.status == 200
            assert reply.headers["connection"] == "close"
            assert connection.closed_by_server()


def test_http_1_0(client: Client) -> None:
    """No chunks: a stream ends with the connection."""
    with client.connect() as connection:
        connection.request("POST", "/v1/completions", BODY, version="1.0")
        reply = connection.read_reply()
        assert reply.status == 200
        assert reply.json["object"] == "text_completion"
        assert connection.closed_by_server()
    with client.connect() as connection:
        stream = json.dumps({"prompt": "a", "max_tokens": 2, "ignore_eos": True, "stream": True}).encode()
        connection.request("POST", "/v1/completions", stream, version="1.0")
        status, headers, _ = connection.read_head()
        assert status == 200
        assert "transfer-encoding" not in headers
        frames = connection.read_to_end().decode().split("\n\n")
        assert frames[-2:] == ["data: [DONE]", ""]
        assert len(frames) == 4
    with client.connect() as connection:
        connection.request("GET", "/health", None, {"Connection": "keep-alive"}, version="1.0")
        assert connection.read_reply().headers["connection"].lower() == "keep-alive"
        connection.request("GET", "/health", version="1.0")
        assert connection.read_reply().status == 200
        assert connection.closed_by_server()


def test_r89_expect_100_continue(client: Client) -> None:
    with client.connect() as connection:
        head = request_bytes("POST", "/v1/completions", BODY, {"Expect": "100-continue"})[: -len(BODY)]
        connection.send(head)
        assert connection.read_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.send(BODY)
        assert connection.read_reply().status == 200


def test_r89_a_body_that_was_announced_too_large_is_refused_before_it_is_sent(daemon_with: Pool) -> None:
    client = daemon_with("--max-request-body-size-mb", "1").client
    with client.connect() as connection:
        head = b"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 1048577\r\n"
        connection.send(head + b"Expect: 100-continue\r\n\r\n")
        reply = connection.read_reply()
        assert reply.status == 413
        assert reply.error["type"] == "RequestTooLargeError"
        assert connection.closed_by_server()


def test_r89_a_body_too_large_is_413_though_it_is_sent_whole(daemon_with: Pool) -> None:
    client = daemon_with("--max-request-body-size-mb", "1").client
    fits = json.dumps({"prompt": "a", "max_tokens": 1, "user": ""}).encode()
    fits = fits[:-2] + b"x" * ((1 << 20) - len(fits)) + b'"}'
    assert len(fits) == 1 << 20
    assert client.ask("POST", "/v1/completions", fits).status == 200
    assert client.ask("POST", "/v1/completions", fits + b" ").status == 413
    with client.connect() as connection:
        connection.send(b"POST /v1/completions HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(20):
            connection.send(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        assert connection.read_reply().status == 413


REFUSED = [
    (b"nonsense\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    (b"GET /health HTTP/3.7\r\nHost: a\r\n\r\n", 505),
    (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
    (
        b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\n\r\n",
        400,
    ),
    (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
    (b"GET /health HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", 431),
    (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
    (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\nhello", 400),
    (b"GET /health HTTP/2.0\r\nHost: a\r\n\r\n", 505),
    (b"GET /health\r\n\r\n", 505),
    (b"PRI * HTTP/2.0\r\n\r\nSN\r\n\r\n", 400),
    (b"GET /he\x00lth HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    (b"GET /h\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: a\r\nX: a\x01b\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\nHost: a\n\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n", 417),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), 400),
]


@pytest.mark.parametrize(("sent", "status"), REFUSED, ids=[repr(sent[:70]) for sent, _ in REFUSED])
def test_r91_what_is_not_http_is_refused_and_the_connection_ends(
    client: Client, sent: bytes, status: int
) -> None:
    """The peer says 200 to most of these (reports G)."""
    with client.connect() as connection:
        connection.send(sent)
        reply = connection.read_reply()
        assert reply.status == status
        assert reply.error["message"]
        assert reply.headers["connection"] == "close"
        assert connection.closed_by_server()
    assert client.get("/health").status == 200


def test_other_encodings_of_the_path(client: Client) -> None:
    assert client.get("/he%61lth").status == 200
    assert client.get("/%ff").status == 400
    with client.connect() as connection:
        connection.send(b"GET http://somewhere/health HTTP/1.1\r\nHost: somewhere\r\n\r\n")
        assert connection.read_reply().status == 200


def test_idle_connections_are_closed_after_a_while() -> None:
    with (
        Daemon("--keep-alive-timeout", "1") as daemon,
        daemon.client.connect() as idle,
        daemon.client.connect() as silent,
        slow_request(daemon) as slow,
    ):
        idle.request("GET", "/health")
        assert idle.read_reply().status == 200
        began = time.monotonic()
        assert idle.closed_by_server()
        assert silent.closed_by_server()
        reply = slow.read_reply()
        assert reply.status == 408
        assert reply.error["type"] == "RequestTimeoutError"
        assert time.monotonic() - began < 6


def slow_request(daemon: Daemon) -> Connection:
    """One whose head never ends."""
    connection = daemon.client.connect()
    connection.send(b"GET /health HTTP/1.1\r\nHost: t\r\n")
    return connection


def test_a_request_longer_than_the_time_out_is_not_idle() -> None:
    flags = ("--keep-alive-timeout", "1", "--time-to-first-token", "2300ms")
    with Daemon(*flags) as daemon:
        assert daemon.client.chat(max_tokens=1).status == 200
