"""What the server tells of itself, and the routes that find nothing to do."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from tests.web.admin.operator import call, told
from tests.web.clients import TEXT
from tests.web.rig import RankRig


@pytest.mark.parametrize("format_", ["text", "json"])
def test_server_info_masks_secrets(monkeypatch: pytest.MonkeyPatch, format_: str) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "hidden-in-the-environment")
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
    rig = RankRig("--api-key", "sesame")
    reply = call(rig, "GET", f"/server_info?config_format={format_}", b"", b"Authorization: Bearer sesame")
    info = json.loads(reply.body)
    assert list(info) == ["vllm_config", "vllm_env", "system_env"]
    assert info["vllm_env"]["VLLM_LOGGING_LEVEL"] == "DEBUG"
    assert b"sesame" not in reply.body
    assert b"hidden-in" not in reply.body
    config = info["vllm_config"]
    assert config["model"] == "m" if format_ == "json" else "model='m'" in config
    assert "python_version" in info["system_env"]


def test_server_info_is_text_unless_asked_and_refuses_other_formats() -> None:
    rig = RankRig()
    assert isinstance(told(rig, "GET", "/server_info")["vllm_config"], str)
    reply = call(rig, "GET", "/server_info?config_format=xml")
    assert (reply.status, reply.error["error"]["param"]) == (400, "query.config_format")


def test_the_engine_has_an_id_which_is_that_of_its_transfers() -> None:
    rig = RankRig()
    told_first = told(rig, "GET", "/query")
    assert list(told_first) == ["0"]
    assert str(UUID(told_first["0"]["engine_id"])) == told_first["0"]["engine_id"]
    assert told(rig, "GET", "/query") == told_first
    assert told(RankRig(), "GET", "/query") != told_first
    reply = told(rig, "POST", TEXT, {"prompt": "a", "kv_transfer_params": {"do_remote_decode": True}})
    assert reply["kv_transfer_params"]["remote_engine_id"] == told_first["0"]["engine_id"]


def test_nobody_publishes_events() -> None:
    assert told(RankRig(), "GET", "/kv_event_sources") == {}


def test_caches_are_reset() -> None:
    rig = RankRig()
    assert call(rig, "POST", "/reset_prefix_cache?reset_external=true").body == b'{"success":true}'
    for path in ("/reset_mm_cache", "/reset_encoder_cache"):
        reply = call(rig, "POST", path)
        assert (reply.status, reply.body) == (200, b"")
    reply = call(rig, "POST", "/reset_prefix_cache?reset_running_requests=7")
    assert (reply.status, reply.error["error"]["param"]) == (400, "query.reset_running_requests")


def test_the_profiler_has_one_session_at_a_time() -> None:
    rig = RankRig()
    assert call(rig, "POST", "/stop_profile").status == 200
    assert call(rig, "POST", "/start_profile").status == 200
    assert call(rig, "POST", "/start_profile", {"profile_prefix": "a"}).status == 409
    reply = call(rig, "POST", "/stop_profile")
    assert (reply.status, reply.body) == (200, b"")
    assert call(rig, "POST", "/start_profile", {"delay_iterations": "x"}).status == 400
    assert call(rig, "POST", "/start_profile", {"profile_prefix": "a", "other": 1}).status == 200


def test_workers_have_nothing_to_say() -> None:
    rig = RankRig()
    assert told(rig, "POST", "/collective_rpc", {"method": "f", "args": [1]}) == {"results": [None]}
    assert call(rig, "POST", "/collective_rpc", {}).status == 400
    assert told(rig, "POST", "/is_scaling_elastic_ep")["is_scaling_elastic_ep"] is False
