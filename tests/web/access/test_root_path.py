"""`--root-path`: the same server below a path, whether the proxy in front takes it off or not."""

from __future__ import annotations

import pytest

from tests.web.access.rig import ask
from tests.web.clients import TEXT, fields, reply_of, request
from tests.web.rig import RankRig

WRITTEN = pytest.mark.parametrize("written", ["/llm/a", "llm/a", "/llm/a/", "//llm/a//"])


@WRITTEN
def test_it_is_taken_off_where_it_is_there(written: str) -> None:
    rig = RankRig("--root-path", written)
    for prefix in (b"/llm/a", b"", b"/%6clm/a"):
        assert ask(rig, prefix + b"/v1/models").status == 200
        assert ask(rig, prefix + b"/v1/models/m").status == 200
        assert ask(rig, prefix + b"/nowhere").status == 404
        client = rig.connect().send(request(prefix.decode() + TEXT, fields(TEXT)))
        rig.settle()
        assert reply_of(client).status == 200


@pytest.mark.parametrize(
    ("path", "left"),
    [
        ("/llm/ab/v1/models", "/llm/ab/v1/models"),
        ("/llm/a/llm/a/v1/models", "/llm/a/v1/models"),
        ("/llm/v1/models", "/llm/v1/models"),
        ("//llm/a/x", "//llm/a/x"),
        ("/llm/a//x", "//x"),
        ("/llm/a", "/"),
        ("/llm/a/", "/"),
    ],
)
def test_nothing_else_is(path: str, left: str) -> None:
    reply = ask(RankRig("--root-path", "/llm/a"), path.encode())
    assert reply.status == 404
    assert reply.error["error"]["message"] == f"Not Found: {left}"


@pytest.mark.parametrize("root", ["", "/"])
def test_an_empty_one_is_none(root: str) -> None:
    rig = RankRig("--root-path", root)
    assert rig.site.handle.__self__._admits is None  # type: ignore[attr-defined]
    assert ask(rig, b"/v1/models/").headers[b"location"] == b"/v1/models"


@pytest.mark.parametrize(("root", "location"), [("/llm", b"/llm"), ("/é b", b"/%C3%A9%20b")])
def test_redirects_lead_to_where_the_proxy_serves_it(root: str, location: bytes) -> None:
    rig = RankRig("--root-path", root)
    for prefix in (b"", location):
        reply = ask(rig, prefix + b"/v1/models/?a=b")
        assert (reply.status, reply.headers[b"location"]) == (307, location + b"/v1/models?a=b")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (b"/llm/v1/models", 401),
        (b"/v1/models", 401),
        (b"/llm", 401),
        (b"/llm/llm/health", 401),
        (b"/llm//v1/models", 401),
        (b"/llmx/v1/models", 401),
        (b"/llm/health", 200),
        (b"/health", 200),
        (b"/%6c%6cm/health", 200),
        (b"/llm/health/", 307),
        (b"/llm/../health", 401),
    ],
)
def test_keys_guard_what_is_below_it(path: bytes, status: int) -> None:
    rig = RankRig("--root-path", "/llm", "--api-key", "k")
    assert ask(rig, path).status == status
    assert ask(rig, path, b"x-api-key: k").status in (200, 307, 404)


def test_metrics_and_logs_know_the_route_and_the_address() -> None:
    rig = RankRig("--root-path", "/llm")
    ended = []
    rig.site.on_ended.append(ended.append)
    ask(rig, b"/llm/v1/models")
    assert [(request.route, request.path, request.uri) for request in ended] == [
        ("/v1/models", b"/v1/models", b"/llm/v1/models")
    ]
