"""A server that seems to load its model: liveness is answered, all else is 503 on a connection that stays."""

from __future__ import annotations

import json

import pytest

from llmdsim.web.loading import Loading
from tests.web.access.rig import admin_port, ask
from tests.web.clients import CHAT, fields, request
from tests.web.rig import RankRig
from tests.wire.channel import get, read_replies


def loading_rig(*flags: str, seconds: float = 10.0) -> RankRig:
    rig = RankRig(*flags)
    loading = Loading(rig.clock.seconds() + seconds, rig.clock.seconds)
    for router in rig.rank.routers:
        router.hold(loading.admits)
    return rig


@pytest.mark.parametrize("flags", [(), ("--api-key", "k"), ("--root-path", "/llm")])
def test_all_routes_but_liveness_are_503(flags: tuple[str, ...]) -> None:
    rig = loading_rig(*flags)
    app = RankRig(*flags).rank
    paths = {route for router in app.routers for route, _ in router._table}
    assert len(paths) > 40
    for path in paths:
        reply = ask(rig, path, b"Authorization: Bearer k")
        assert reply.status == (200 if path in (b"/health", b"/ping") else 503), path


def test_liveness_is_found_below_a_root_path() -> None:
    rig = loading_rig("--root-path", "/llm")
    assert (ask(rig, b"/llm/health").status, ask(rig, b"/llm/v1/models").status) == (200, 503)


def test_the_refusal_says_how_long_it_will_be_and_keeps_the_connection() -> None:
    rig = loading_rig()
    client = rig.connect().send(request(CHAT, fields(CHAT)), get(b"/nowhere"))
    rig.clock.advance(9.5)
    client.send(get(b"/metrics"), request("/v1/messages", {}))
    rig.clock.advance(0.5)
    # A moment before the handover the time may be over.
    client.send(get(b"/health/ready"))
    methods = [b"POST", b"GET", b"GET", b"POST", b"GET"]
    replies = read_replies(client.received, methods, ended=False)
    assert [reply.status for reply in replies] == [503] * 5
    assert [reply.headers[b"retry-after"] for reply in replies] == [b"10", b"10", b"1", b"1", b"1"]
    assert client.fate == "open"
    assert all(b"connection" not in reply.headers for reply in replies)
    error = replies[0].error["error"]
    assert (error["type"], error["code"]) == ("ServiceUnavailableError", 503)
    assert "loading" in error["message"]
    assert json.loads(replies[3].body)["error"]["type"] == "overloaded_error", "in Anthropic's shape"


def test_the_port_for_administration_waits_too() -> None:
    rig = loading_rig("--admin-listen", "tcp:0")
    admin = admin_port(rig)
    assert [ask(admin, path).status for path in (b"/health", b"/admin/config")] == [200, 503]


@pytest.mark.parametrize("flags", [(), ("--root-path", "/llm")])
def test_all_is_as_ever_after_the_release(flags: tuple[str, ...]) -> None:
    rig = loading_rig(*flags)
    client = rig.connect().send(get(b"/v1/models"))
    (router,) = rig.rank.routers
    router.release()
    client.send(get(b"/v1/models"))
    replies = read_replies(client.received, [b"GET"] * 2, ended=False)
    assert [reply.status for reply in replies] == [503, 200]
