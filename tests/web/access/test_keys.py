"""`--api-key`: who is let in, what the others are told, and that no way to write a path gets past it."""

from __future__ import annotations

import json

import pytest
from twisted.logger import capturedLogs

from llmdsim.web.access.paths import EVERYWHERE, KEYLESS
from tests.logs.rig import LoggedRank
from tests.web.access.rig import ask
from tests.web.clients import CHAT, TEXT, events, fields, reply_of, request
from tests.web.rig import RankRig
from tests.wire.channel import get

KEYS = ("--api-key", "sk-one", "k y", "clé")
GUARDED = (
    *(CHAT, TEXT, "/v1/models", "/v1/models/m", "/v1", "/v1beta", "/v2/rerank", "/v1/nothing"),
    *("/tokenize", "/detokenize", "/inference/v1/generate", "/pooling", "/score", "/rerank", "/classify"),
    *("/admin/config", "/admin", "/fake_metrics", "/sleep", "/wake_up", "/is_sleeping", "/pause", "/resume"),
    *("/is_paused", "/reset_prefix_cache", "/server_info", "/abort_requests", "/collective_rpc"),
    *("/", "/nowhere", "/healthy", "/metrics/x", "/health/live"),
)


@pytest.fixture(scope="module")
def rig() -> RankRig:
    rig = RankRig(*KEYS)
    rig.rank.context.ready = True
    return rig


@pytest.mark.parametrize("path", GUARDED)
@pytest.mark.parametrize("method", [b"GET", b"POST", b"DELETE", b"HEAD", b"PROPFIND"])
def test_without_a_key_there_is_nothing_but_a_401(rig: RankRig, path: str, method: bytes) -> None:
    reply = ask(rig, path.encode(), method=method)
    assert (reply.status, reply.headers[b"www-authenticate"]) == (401, b"Bearer")
    if method != b"HEAD":
        error = reply.error["error"]
        assert (error["type"], error["param"], error["code"]) == ("AuthenticationError", None, 401)
        assert "API key" in error["message"]


@pytest.mark.parametrize("path", sorted(KEYLESS))
def test_probes_metrics_and_documentation_need_none(rig: RankRig, path: str) -> None:
    for way in (path, f"{path}/", f"{path}?x"):
        for headers in ((), (b"Authorization: Bearer wrong",)):
            # 404 where another server has the route.
            assert ask(rig, way.encode(), *headers).status in (200, 307, 404)
    assert path not in EVERYWHERE or ask(rig, path.encode()).status == 200


def test_every_route_is_guarded_unless_the_table_says_otherwise(rig: RankRig) -> None:
    router = rig.site.handle.__self__  # type: ignore[attr-defined]
    paths = [route for _, route in router._handlers.values()]
    assert {CHAT, TEXT, "/v1/models", "/admin/config", "/health"} <= set(paths)
    for path in paths:
        guarded = ask(rig, path.encode(), method=b"TRACE").status == 401
        assert guarded == (path.rstrip("/") not in KEYLESS), path


@pytest.mark.parametrize(
    "headers",
    [
        (b"Authorization: Bearer sk-one",),
        (b"authorization: bearer sk-one",),
        (b"AUTHORIZATION:   BEARER   sk-one  ",),
        (b"Authorization: Bearer k y",),
        ("Authorization: Bearer clé".encode(),),
        (b"x-api-key: sk-one",),
        (b"X-API-Key: k y",),
        (b"Authorization: Bearer wrong", b"x-api-key: sk-one"),
        (b"Authorization: Bearer sk-one", b"x-api-key: wrong"),
        (b"Authorization: Basic c2stb25l", b"x-api-key: sk-one"),
    ],
)
def test_any_of_the_keys_is_let_in_by_either_header(rig: RankRig, headers: tuple[bytes, ...]) -> None:
    assert ask(rig, b"/v1/models", *headers).status == 200
    assert ask(rig, b"/v1/nothing", *headers).status == 404


@pytest.mark.parametrize(
    "headers",
    [
        (b"Authorization: Bearer",),
        (b"Authorization: Bearer ",),
        (b"Authorization: ",),
        (b"Authorization: sk-one",),
        (b"Authorization: Bearersk-one",),
        (b"Authorization: Basic sk-one",),
        (b"Authorization: Bearer sk-onesk-one",),
        (b"Authorization: Bearer sk-on",),
        (b"Authorization: Bearer sk-one2",),
        (b"Authorization: Bearer SK-ONE",),
        (b"Authorization: Bearer sk-one k y",),
        (b"Authorization: Bearer sk-one, Bearer sk-one",),
        (b"Authorization: Bearer k",),
        (b"x-api-key: ",),
        (b"x-api-key: Bearer sk-one",),
        (b"x-api-key: wrong", b"x-api-key: sk-one"),
        (b"api-key: sk-one",),
        (b"Cookie: x-api-key=sk-one",),
        (b"Proxy-Authorization: Bearer sk-one",),
    ],
)
def test_what_is_no_key_is_not_let_in(rig: RankRig, headers: tuple[bytes, ...]) -> None:
    assert ask(rig, b"/v1/models", *headers).status == 401


def test_a_key_in_the_address_is_none(rig: RankRig) -> None:
    assert ask(rig, b"/v1/models?api_key=sk-one&x-api-key=sk-one").status == 401


@pytest.mark.parametrize(
    "path",
    [
        *(b"//v1/models", b"/v1//models", b"///v1/models", b"/./v1/models", b"/health/../v1/models"),
        *(b"/%761/models", b"/v1%2Fmodels", b"/%2Fv1/models", b"/%2e/v1/models", b"/%2576%31/models"),
        *(b"/v1/models/", b"/v1/models?", b"/v1/models;x", b"/v1/models%00", b"/V1/MODELS"),
        *(b"http://sim/v1/models", b"http://sim//v1/models", b"/health%2f..%2fv1/models", b"/v1/models%20"),
        *(b"/admin/config/", b"//admin/config", b"/admin//config", b"/%61dmin/config"),
        *(b"/health;/v1/models", b"/metrics/../admin/config", b"*", b"/v1\\models", b"/%ff"),
    ],
)
def test_no_way_to_write_a_path_gets_past_it(rig: RankRig, path: bytes) -> None:
    assert ask(rig, path).status == 401


def test_a_path_that_is_spelled_another_way_is_the_open_one(rig: RankRig) -> None:
    assert ask(rig, b"/%68ealth").status == 200
    assert ask(rig, b"http://sim/health?x=1").status == 200


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens", "/v1/messages/"])
def test_the_messages_api_is_told_in_its_own_shape(rig: RankRig, path: str) -> None:
    for headers in ((), (b"x-api-key: wrong",)):
        reply = ask(rig, path.encode(), *headers, method=b"POST")
        assert (reply.status, list(reply.error)) == (401, ["type", "error"])
        assert reply.error["type"] == "error"
        assert reply.error["error"]["type"] == "authentication_error"
        assert "API key" in reply.error["error"]["message"]


def test_it_tells_a_missing_key_from_a_wrong_one(rig: RankRig) -> None:
    missing, wrong = ask(rig, b"/v1/models"), ask(rig, b"/v1/models", b"x-api-key: nope-nope")
    assert "required" in missing.error["error"]["message"]
    assert "not valid" in wrong.error["error"]["message"]
    assert b"nope" not in wrong.body


def test_options_needs_no_key(rig: RankRig) -> None:
    assert ask(rig, b"/v1/models", method=b"OPTIONS").status == 204


@pytest.mark.parametrize("stream", [False, True])
def test_a_generation_with_a_key_is_as_ever(stream: bool) -> None:
    open_, keyed = RankRig("--mode", "echo"), RankRig("--mode", "echo", *KEYS)
    body = fields(TEXT, stream=stream, prompt="one two three", request_id="x")
    said = []
    for rig, headers in ((open_, ()), (keyed, ("Authorization: Bearer sk-one",))):
        client = rig.connect().send(request(TEXT, body, *headers))
        rig.settle()
        reply = reply_of(client)
        assert (reply.status, reply.complete) == (200, True)
        choices = events(reply.body)[:-1] if stream else [json.loads(reply.body)]
        said.append([choice["text"] for frame in choices for choice in frame["choices"]])
    assert said[0] == said[1]


def test_nothing_runs_for_a_client_without_a_key(rig: RankRig) -> None:
    reply = reply_of(rig.connect().send(request(CHAT, fields(CHAT))))
    assert reply.status == 401
    assert rig.rank.engine.idle
    assert rig.rank.stats.finished["length"] == 0


def test_a_refused_client_keeps_its_connection(rig: RankRig) -> None:
    client = rig.connect().send(get(b"/v1/models"), get(b"/v1/models", b"x-api-key: sk-one"))
    assert client.statuses() == [401, 200]
    assert client.fate == "open"


@pytest.mark.parametrize("flags", [(), ("--api-key",), ("--api-key", "")])
def test_without_keys_nothing_is_asked(flags: tuple[str, ...]) -> None:
    rig = RankRig(*flags)
    router = rig.site.handle.__self__  # type: ignore[attr-defined]
    assert router._admits is None
    assert ask(rig, b"/v1/models").status == 200


def test_a_refusal_carries_what_every_response_does() -> None:
    rig = RankRig(*KEYS, "--enable-request-id-headers", "--allowed-origins", '["http://a"]')
    reply = ask(rig, b"/v1/models", b"X-Request-Id: mine", b"Origin: http://a")
    assert reply.status == 401
    assert reply.headers[b"x-request-id"] == b"mine"
    # Unlike with vLLM, a page can read why.
    assert reply.headers[b"access-control-allow-origin"] == b"http://a"


def test_keys_are_never_told() -> None:
    flags = (*KEYS, "--log-http", "--access-log", "-v", "5")
    with LoggedRank(*flags) as rig, capturedLogs() as logged:
        ask(rig, b"/v1/models?api_key=sk-one", b"Authorization: Bearer sk-one")
        ask(rig, b"/v1/models", b"x-api-key: sk-one")
        ask(rig, b"/admin/config", b"x-api-key: sk-one")
        ask(rig, b"/v1/models", b"Authorization: Bearer sk-one, sk-one")
        shown = ask(rig, b"/admin/config", b"x-api-key: sk-one").body
        rig.log.destination.flush()
        told = rig.log.text + repr(logged)
    assert "/v1/models" in told
    assert "sk-one" not in told
    assert b"sk-one" not in shown
