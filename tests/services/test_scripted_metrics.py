"""Scripted metrics of a whole rank: what the page has, and that nothing else takes notice."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.metrics.pages import FORMATS, families, value
from tests.metrics.vllm import CACHE_CONFIG
from tests.web.admin.operator import call, told
from tests.web.clients import TEXT, post
from tests.web.rig import RankRig

CONFIG, FAKE = "/admin/config", "/fake_metrics"
SCRIPT = {
    "running-requests": 10,
    "waiting-requests": 30,
    "kv-cache-usage": 0.4,
    "request-prompt-tokens": [1, 2, 3],
    "request-success-total": {"stop": 7},
    "ttft-buckets-values": [1],
}


def scripted(script: object, *flags: str) -> RankRig:
    return RankRig("--fake-metrics", json.dumps(script), *flags)


def page(rig: RankRig, form: str = "text") -> bytes:
    accept = b"Accept: " + (b"text/plain" if form == "text" else b"application/openmetrics-text")
    reply = call(rig, "GET", "/metrics", b"", accept)
    assert reply.status == 200
    return reply.body


@pytest.mark.parametrize("flags", [(), ("--disable-log-stats",)])
def test_only_what_is_scripted_is_reported(flags: tuple[str, ...]) -> None:
    rig = scripted(SCRIPT, *flags)
    assert set(families(rig.rank.metrics.collector, "openmetrics")) == {
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:num_requests_waiting_by_reason",
        "vllm:kv_cache_usage_perc",
        "vllm:prompt_tokens",
        "vllm:request_prompt_tokens",
        "vllm:request_success",
        "vllm:time_to_first_token_seconds",
        "vllm:cache_config_info",
    }
    (info,) = families(rig.rank.metrics.collector)["vllm:cache_config_info"].samples
    assert info.labels.keys() == {*CACHE_CONFIG, "engine"}
    assert page(scripted({})).count(b"# TYPE ") == 1


def test_without_a_script_everything_is_measured() -> None:
    names = families(RankRig().rank.metrics.collector)
    assert {"vllm:num_requests_running", "http_requests", "process_cpu_seconds"} <= set(names)


@pytest.mark.parametrize("form", FORMATS)
def test_real_requests_change_nothing_on_the_page_and_are_served(form: str) -> None:
    rig = scripted(SCRIPT, "--time-to-first-token", "1s", "--max-num-seqs", "2", "--enable-kvcache")
    before = page(rig, form)
    clients = [post(rig, TEXT, max_tokens=2) for _ in range(5)]
    left = post(rig, TEXT, max_tokens=2)
    assert (rig.rank.stats.running, rig.rank.stats.waiting) == (2, 4)
    assert page(rig, form) == before
    assert told(rig, "GET", "/load") == {"server_load": 6}
    left.rst()
    post(rig, TEXT, max_tokens=-1)
    for _ in range(3):
        rig.clock.advance(1)
        assert page(rig, form) == before
    assert [client.replies("POST")[0].status for client in clients] == [200] * 5
    assert rig.rank.stats.finished["length"] == 5
    assert page(rig, form) == before


def times_to_first_token(*flags: str) -> list[float]:
    """When tokens come with a load that counts, on the clock of a rank with these flags."""
    rig = RankRig(
        *("--time-to-first-token", "1s", "--max-num-seqs", "3", "--time-factor-under-load", "3", *flags)
    )
    rig.rank.startService()
    revealed = []
    for _ in range(3):
        post(rig, TEXT, max_tokens=1)
    for _ in range(40):
        rig.clock.advance(0.25)
        revealed.append(rig.rank.stats.generation_tokens)
    rig.rank.stopService()
    return revealed


def test_the_load_factor_is_that_of_real_requests() -> None:
    real = times_to_first_token()
    assert real[-1] == 3
    for running in (0, 10, "ramp:0:100:1s"):
        assert times_to_first_token("--fake-metrics", json.dumps({"running-requests": running})) == real


def test_functions_move_while_the_rank_is_up() -> None:
    rig = scripted({"running-requests": "ramp:0:100:10s"})
    calls = len(rig.clock.calls)
    rig.clock.advance(3)
    rig.rank.startService()
    rig.clock.advance(5)
    assert value(rig.rank.metrics.collector, "vllm:num_requests_running") == 50
    told(rig, "POST", CONFIG, {"fake-metrics": {"waiting-requests": "ramp:0:100:10s"}})
    rig.clock.advance(2)
    assert value(rig.rank.metrics.collector, "vllm:num_requests_running") == 70
    assert value(rig.rank.metrics.collector, "vllm:num_requests_waiting") == 20
    rig.rank.stopService()
    rig.clock.advance(2)
    assert value(rig.rank.metrics.collector, "vllm:num_requests_running") == 70
    assert len(rig.clock.calls) <= calls


def test_updates_show_by_either_route() -> None:
    rig = scripted(SCRIPT)
    told(rig, "POST", CONFIG, {"fake-metrics": {"running-requests": 3}, "inter-token-latency": "1ms"})
    assert value(rig.rank.metrics.collector, "vllm:num_requests_running") == 3
    reply = call(rig, "POST", FAKE, {"request-prompt-tokens": [], "waiting-requests": "squarewave:4:5:1s"})
    assert (reply.status, reply.body) == (204, b"")
    assert value(rig.rank.metrics.collector, "vllm:num_requests_waiting") == 4
    assert not {"vllm:prompt_tokens", "vllm:request_prompt_tokens"} & set(
        families(rig.rank.metrics.collector)
    )
    shown = told(rig, "GET", CONFIG)["fake-metrics"]
    assert shown == {
        **SCRIPT,
        "running-requests": 3,
        "request-prompt-tokens": [],
        "waiting-requests": "squarewave:4:5:1s",
    }


@pytest.mark.parametrize(
    "body",
    [
        {"running-requests": 7, "total-prompt-tokens": -1},
        {"running-requests": 7, "kv-cache-usage": "ramp:0:2:1s"},
        {"running-requests": 7, "prefix-cache-hits": 1},
        {"running-requests": 7, "loras": [1]},
        {"request-success-total": {"never": 1}, "running-requests": 7},
    ],
)
@pytest.mark.parametrize("path", [CONFIG, FAKE])
def test_a_wrong_update_changes_nothing_at_all(path: str, body: dict[str, Any]) -> None:
    rig = scripted(SCRIPT)
    before, known = page(rig), told(rig, "GET", CONFIG)
    reply = call(rig, "POST", path, body if path == FAKE else {"fake-metrics": body, "prefill-overhead": 1})
    assert reply.status == 400
    assert reply.error["error"]["message"].startswith("--fake-metrics: ")
    assert page(rig) == before
    assert told(rig, "GET", CONFIG) == known


@pytest.mark.parametrize("body", [{"fake-metrics": None}, {"fake-metrics": {}}, {}])
def test_null_and_nothing_leave_it_as_it_is(body: dict[str, Any]) -> None:
    rig = scripted(SCRIPT)
    before = page(rig)
    assert told(rig, "POST", CONFIG, body)["fake-metrics"] == SCRIPT
    assert call(rig, "POST", FAKE, dict.fromkeys(SCRIPT)).status == 204
    assert told(rig, "GET", CONFIG)["fake-metrics"] == SCRIPT
    assert page(rig) == before


def test_it_cannot_begin_while_running() -> None:
    rig = RankRig()
    for path, body in ((CONFIG, {"fake-metrics": {"running-requests": 1}}), (FAKE, {"running-requests": 1})):
        reply = call(rig, "POST", path, body)
        assert reply.status == 400
        assert "was not started with --fake-metrics" in reply.error["error"]["message"]
