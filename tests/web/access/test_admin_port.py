"""`--admin-listen`: administration leaves the public port; its own has only probes and metrics besides."""

from __future__ import annotations

import pytest

from llmdsim.web.access.paths import EVERYWHERE, is_administration
from tests.web.access.rig import admin_port, ask
from tests.web.clients import CHAT, TEXT
from tests.web.rig import RankRig

SPLIT = ("--admin-listen", "tcp:0")


@pytest.fixture(scope="module")
def rig() -> RankRig:
    rig = RankRig(*SPLIT)
    rig.rank.context.ready = True
    return rig


@pytest.mark.parametrize(
    "path",
    [
        *("/admin/config", "/admin", "/admin/x/y", "/fake_metrics", "/sleep", "/wake_up", "/is_sleeping"),
        *("/pause", "/resume", "/is_paused", "/reset_prefix_cache", "/server_info", "/abort_requests"),
        *("/collective_rpc", "/start_profile", "/scale_elastic_ep", "/fault_tolerance/apply"),
    ],
)
def test_these_are_administration(path: str) -> None:
    assert is_administration(path)


@pytest.mark.parametrize(
    "path",
    [
        *(*sorted(EVERYWHERE), CHAT, TEXT, "/v1/models", "/v1/load_lora_adapter", "/tokenize", "/"),
        *("/inference/v1/abort_requests", "/administrator", "/v1/admin", "/sleepy", "/query"),
    ],
)
def test_these_are_not(path: str) -> None:
    assert not is_administration(path)


def test_administration_leaves_the_public_port(rig: RankRig) -> None:
    for method in (b"GET", b"POST", b"OPTIONS", b"DELETE"):
        assert ask(rig, b"/admin/config", method=method).status == 404
        assert ask(rig, b"/admin/config/", method=method).status == 404
    assert ask(admin_port(rig), b"/admin/config").status == 200
    assert ask(admin_port(rig), b"/admin/config", method=b"DELETE").status == 405


def test_the_rest_is_not_on_the_other(rig: RankRig) -> None:
    for path in (b"/v1/models", b"/v1/models/m", CHAT.encode(), TEXT.encode()):
        assert ask(admin_port(rig), path).status == 404
        assert ask(admin_port(rig), path, method=b"POST").status == 404
        assert ask(rig, path).status in (200, 405)


@pytest.mark.parametrize("path", sorted(EVERYWHERE | {"/metrics/"}))
def test_probes_metrics_and_documentation_are_on_both(rig: RankRig, path: str) -> None:
    assert ask(rig, path.encode()).status == 200
    assert ask(admin_port(rig), path.encode()).status == 200


def test_each_port_documents_its_own_routes(rig: RankRig) -> None:
    public = ask(rig, b"/openapi.json").error["paths"]
    admin = ask(admin_port(rig), b"/openapi.json").error["paths"]
    assert {CHAT, "/health"} <= public.keys()
    assert "/admin/config" not in public
    assert {"/admin/config", "/health", "/openapi.json"} <= admin.keys()
    assert all(is_administration(path) or path.rstrip("/") in EVERYWHERE for path in admin)


def test_without_the_option_there_is_one_port_for_all() -> None:
    rig = RankRig()
    assert rig.rank.sites == [rig.site]
    for path in (b"/admin/config", b"/v1/models", b"/metrics"):
        assert ask(rig, path).status == 200


def test_both_count_in_the_metrics(rig: RankRig) -> None:
    ask(admin_port(rig), b"/admin/config")
    page = ask(rig, b"/metrics").body.decode()
    assert 'http_requests_total{handler="/admin/config",method="GET",status="2xx"}' in page
    assert ask(admin_port(rig), b"/metrics").body.count(b"vllm:num_requests_running") > 0


def test_keys_and_the_root_path_hold_for_both() -> None:
    rig = RankRig(*SPLIT, "--api-key", "k", "--root-path", "/llm")
    admin = admin_port(rig)
    assert ask(admin, b"/admin/config").status == 401
    assert ask(admin, b"/health").status == 200
    assert ask(admin, b"/llm/admin/config", b"x-api-key: k").status == 200
    # Before it is told that there is nothing.
    assert ask(rig, b"/admin/config").status == 401


def test_a_stopped_rank_ends_the_connections_of_both(rig: RankRig) -> None:
    rig = RankRig(*SPLIT)
    rig.rank.startService()
    clients = rig.connect(), admin_port(rig).connect()
    rig.rank.stopService()
    rig.settle()
    assert [client.fate for client in clients] == ["closed", "closed"]
