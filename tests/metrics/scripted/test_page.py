"""The page of scripted metrics, read back by prometheus_client's parsers."""

from __future__ import annotations

import time
from typing import Any

import pytest
from twisted.logger import capturedLogs

from llmdsim.metrics import Collector
from tests.metrics.pages import FORMATS, families, samples, value
from tests.metrics.scripted.rig import LORAS, MODEL, REASONS, Page
from tests.metrics.vllm import FAMILIES


def test_nothing_scripted_is_an_empty_page() -> None:
    page = Page({})
    assert page.scripted.text() == page.scripted.openmetrics() == b""
    assert (page.scripted.waiting, page.scripted.kv_cache_usage) == (None, None)


#: Per member: its value, and the samples that must be there, and no family else.
EVERY: dict[str, tuple[Any, dict[str, float]]] = {
    "running-requests": (10, {"vllm:num_requests_running": 10}),
    "kv-cache-usage": (0.4, {"vllm:kv_cache_usage_perc": 0.4}),
    "total-prompt-tokens": (7, {"vllm:prompt_tokens_total": 7}),
    "total-generation-tokens": (2**40, {"vllm:generation_tokens_total": 2**40}),
    "ttft-buckets-values": (
        [1, 2, 3],
        {"vllm:time_to_first_token_seconds_count": 6, "vllm:time_to_first_token_seconds_sum": 0.041},
    ),
    "tpot-buckets-values": (
        [0, 5],
        {
            "vllm:inter_token_latency_seconds_count": 5,
            "vllm:inter_token_latency_seconds_sum": 0.125,
            "vllm:time_per_output_token_seconds_count": 5,
            "vllm:time_per_output_token_seconds_sum": 0.125,
        },
    ),
    "request-tpot-buckets-values": (
        [1, 0, 2],
        {
            "vllm:request_time_per_output_token_seconds_count": 3,
            "vllm:request_time_per_output_token_seconds_sum": 0.11,
        },
    ),
    "request-prompt-tokens": (
        [1, 2, 3],
        {
            "vllm:request_prompt_tokens_count": 6,
            "vllm:request_prompt_tokens_sum": 20,
            "vllm:prompt_tokens_total": 20,
        },
    ),
    "request-generation-tokens": (
        [0, 0, 0, 0, 0, 0, 0, 2],
        {
            "vllm:request_generation_tokens_count": 2,
            "vllm:request_generation_tokens_sum": 202,
            "vllm:generation_tokens_total": 202,
        },
    ),
    "request-params-max-tokens": (
        [5],
        {"vllm:request_params_max_tokens_count": 5, "vllm:request_params_max_tokens_sum": 5},
    ),
    "request-max-generation-tokens": (
        [1, 2],
        {
            "vllm:request_max_num_generation_tokens_count": 3,
            "vllm:request_max_num_generation_tokens_sum": 5,
            "vllm:max_num_generation_tokens_count": 3,
            "vllm:max_num_generation_tokens_sum": 5,
        },
    ),
    **{
        f"{member}-buckets-values": (
            [0, 1, 2, *[0] * 18, 1, 1],
            {f"vllm:{name}_seconds_count": 5, f"vllm:{name}_seconds_sum": 0.5 + 1.6 + 2 * 7681},
        )
        for member, name in (
            ("e2erl", "e2e_request_latency"),
            ("queue-time", "request_queue_time"),
            ("inf-time", "request_inference_time"),
            ("prefill-time", "request_prefill_time"),
            ("decode-time", "request_decode_time"),
        )
    },
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("member", EVERY)
def test_every_member_feeds_its_families_alone(member: str, form: str) -> None:
    given, expected = EVERY[member]
    page = Page({member: given})
    for name, number in expected.items():
        assert value(page.scripted, name, form) == pytest.approx(number)
    assert {name for name, *_ in samples(page.scripted, form)} <= {
        *expected,
        *(name.replace("_count", "_bucket") for name in expected),
    }
    for sample in samples(page.scripted, form):
        assert sample.labels["model_name"] == MODEL
        assert sample.labels["engine"] == "3"


def test_the_queue_shows_by_reason_too() -> None:
    page = Page({"waiting-requests": 30})
    assert page.names() == {"vllm:num_requests_waiting", "vllm:num_requests_waiting_by_reason"}
    assert page.value("vllm:num_requests_waiting") == 30
    assert page.value("vllm:num_requests_waiting_by_reason", reason="capacity") == 30
    assert page.value("vllm:num_requests_waiting_by_reason", reason="deferred") == 0


def test_hits_and_queries() -> None:
    page = Page({"prefix-cache-hits": 0, "prefix-cache-queries": 10})
    assert page.names() == {"vllm:prefix_cache_hits", "vllm:prefix_cache_queries"}
    assert page.value("vllm:prefix_cache_hits_total") == 0
    assert page.value("vllm:prefix_cache_queries_total") == 10


def test_reasons_that_are_not_given_are_zero() -> None:
    page = Page({"request-success-total": {"length": 3, "remote_decode": 2}})
    assert [
        (each.labels["finished_reason"], each.value)
        for each in samples(page.scripted)
        if each.name == "vllm:request_success_total"
    ] == [("stop", 0), ("length", 3), ("abort", 0), ("error", 0), ("repetition", 0), ("remote_decode", 2)]
    page.update({"request-success-total": {"stop": 1}})
    reasons = {each.labels["finished_reason"]: each.value for each in samples(page.scripted)}
    assert reasons == {**dict.fromkeys(REASONS, 0), "stop": 1}
    page.update({"request-success-total": {}})
    assert page.names() == set()


def lora_series(page: Page) -> dict[tuple[str, str, str], float]:
    return {
        (
            each.labels["max_lora"],
            each.labels["running_lora_adapters"],
            each.labels["waiting_lora_adapters"],
        ): (each.value)
        for each in samples(page.scripted)
        if each.name == LORAS
    }


def test_adapters_are_a_series_each_and_never_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_800_000_000.5)
    loras = [
        {"running": "lora4,lora2", "waiting": "lora3", "timestamp": 1257894567},
        {"running": "lora4,lora3", "waiting": "", "timestamp": 1257894569},
    ]
    page = Page({"loras": loras}, "--max-loras", "4", "--max-cpu-loras", "4")
    assert lora_series(page) == {
        ("4", "lora4,lora2", "lora3"): 1257894567,
        ("4", "lora4,lora3", ""): 1257894569,
    }
    assert "model_name" not in next(samples(page.scripted)).labels
    page.update({"loras": [loras[0], {"running": 'a"\\\n', "timestamp": 1.25}, {**loras[0], "timestamp": 3}]})
    assert lora_series(page) == {("4", "lora4,lora2", "lora3"): 3, ("4", 'a"\\\n', ""): 1.25}
    page.update({"loras": []})
    assert lora_series(page) == {("4", "", ""): 1_800_000_000.5}
    monkeypatch.setattr(time, "time", lambda: 1_800_000_009.0)
    page.update({"running-requests": 1})
    assert lora_series(page) == {("4", "", ""): 1_800_000_000.5}, "when it was set"


def test_families_are_those_of_the_measured_page() -> None:
    """Kinds, labels and buckets of everything that can be scripted, in the same order."""
    everything = {member: given for member, (given, _) in EVERY.items()}
    page = Page(
        {
            **everything,
            "waiting-requests": 1,
            "prefix-cache-hits": 1,
            "prefix-cache-queries": 1,
            "request-success-total": {"stop": 1},
        },
        "--max-model-len",
        "4096",
    )
    shown = families(Collector([page.scripted]))
    names = [name for name in shown if not name.endswith("_created")]
    assert names == [name for name in FAMILIES if name in names]
    assert len(names) == 23
    for name in names:
        known = FAMILIES[name]
        assert shown[name].type == known.kind
        if known.buckets:
            bounds = [float(each.labels["le"]) for each in shown[name].samples if "le" in each.labels]
            assert bounds == [*known.buckets, float("inf")]
        if known.label:
            assert [each.labels[known.label] for each in shown[name].samples] == list(known.values)


def test_an_update_leaves_what_it_does_not_name_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_800_000_000.0)
    page = Page({"total-prompt-tokens": 1, "ttft-buckets-values": [1], "running-requests": "ramp:0:100:10s"})
    page.clock.advance(2)
    monkeypatch.setattr(time, "time", lambda: 1_800_000_002.0)
    page.update(
        {
            "ttft-buckets-values": [2],
            "running-requests": "ramp:0:100:10s",
            "waiting-requests": "ramp:0:10:10s",
        }
    )
    (total,) = families(Collector([page.scripted]))["vllm:prompt_tokens_created"].samples
    (ttft,) = families(Collector([page.scripted]))["vllm:time_to_first_token_seconds_created"].samples
    assert (total.value, ttft.value) == (1_800_000_000, 1_800_000_002)
    page.clock.advance(3)
    assert page.value("vllm:num_requests_running") == 50, "the same function goes on"
    assert page.value("vllm:num_requests_waiting") == 3, "a new one has its own time"
    page.update({"running-requests": 7})
    page.clock.advance(1)
    assert page.value("vllm:num_requests_running") == 7
    page.update({"running-requests": "ramp:0:100:10s"})
    page.clock.advance(1)
    assert page.value("vllm:num_requests_running") == 10


@pytest.mark.parametrize("tokens", ["prompt", "generation"])
@pytest.mark.parametrize(
    "phases",
    [
        # In each phase the list and the total that are set (... is not named), then the histogram's count and
        # the total that are shown.
        [([1, 2, 3], ..., 6, 20), ([0, 1], ..., 1, 2), ([2], ..., 2, 2)],
        [([1], ..., 1, 1), (..., 50, 1, 50), ([0, 3], ..., 3, 6)],
        [([1], 70, 1, 70), ([0, 1], ..., 1, 2), (..., 9, 1, 9)],
        [(..., 5, None, 5), ([1, 1], ..., 2, 3), ([], ..., None, None)],
        [([3], ..., 3, 3), ([], ..., None, None), ([0, 0, 1], ..., 1, 5)],
        [([3], 9, 3, 9), (..., ..., 3, 9), ([1], 4, 1, 4)],
        [(..., ..., None, None), (..., 8, None, 8), ([], 6, None, 6)],
    ],
)
def test_the_life_of_a_list_of_tokens_and_its_total(phases: list[Any], tokens: str) -> None:
    page: Page | None = None
    for counts, total, count, shown in phases:
        given = {f"request-{tokens}-tokens": counts, f"total-{tokens}-tokens": total}
        metrics = {name: value for name, value in given.items() if value is not ...}
        if page is None:
            page = Page(metrics)
        else:
            page.update(metrics)
        assert (page.count(tokens), page.total(tokens)) == (count, shown)


def test_unknown_members_are_told_once() -> None:
    with capturedLogs() as events:
        page = Page({"Running": 1, "running-requests": 1})
        page.update({"running-requests": 2})
        page.update({"x": 2})
        page.update({"x": 3})
    assert [event["names"] for event in events] == ["Running", "x"]
