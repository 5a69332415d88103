"""Updates of scripted metrics against a slow model of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.samples import Sample

from tests.metrics.pages import FORMATS, samples
from tests.metrics.scripted.rig import LORAS, MODEL, REASONS, TOKENS, Page
from tests.metrics.vllm import ITL, LATENCY, TTFT

#: Member by member: the families it feeds and, of histograms, their buckets.
HISTOGRAMS: dict[str, tuple[tuple[str, ...], tuple[float, ...]]] = {
    "ttft-buckets-values": (("vllm:time_to_first_token_seconds",), TTFT),
    "tpot-buckets-values": (
        ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
        ITL,
    ),
    "request-tpot-buckets-values": (("vllm:request_time_per_output_token_seconds",), ITL),
    "e2erl-buckets-values": (("vllm:e2e_request_latency_seconds",), LATENCY),
    "request-prompt-tokens": (("vllm:request_prompt_tokens",), TOKENS),
    "request-generation-tokens": (("vllm:request_generation_tokens",), TOKENS),
    "request-max-generation-tokens": (
        ("vllm:request_max_num_generation_tokens", "vllm:max_num_generation_tokens"),
        TOKENS,
    ),
}

COUNTS = st.lists(st.integers(0, 3), max_size=10)
METRICS = st.fixed_dictionaries(
    {},
    optional={
        "running-requests": st.none() | st.integers(0, 9) | st.floats(0, 9),
        "waiting-requests": st.none() | st.integers(0, 9),
        "kv-cache-usage": st.none() | st.floats(0, 1),
        **{name: st.none() | COUNTS for name in HISTOGRAMS},
        "request-success-total": st.none() | st.dictionaries(st.sampled_from(REASONS), st.integers(0, 9)),
        "total-prompt-tokens": st.none() | st.integers(0, 99),
        "total-generation-tokens": st.none() | st.integers(0, 99),
        "loras": st.none()
        | st.lists(
            st.fixed_dictionaries(
                {
                    "running": st.text("ab,", max_size=2),
                    "waiting": st.just(""),
                    "timestamp": st.integers(0, 9),
                }
            ),
            min_size=1,
            max_size=3,
        ),
        "unheard-of": st.integers(),
    },
)


Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def plain(found: Iterable[Sample]) -> Samples:
    return {
        (each.name, frozenset(each.labels.items())): each.value
        for each in found
        if not each.name.endswith("_created")
    }


class Model:
    """What is scripted, changed rule by rule, and written by prometheus_client's own families."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}

    def update(self, metrics: dict[str, Any]) -> None:
        for tokens in ("prompt", "generation"):
            if metrics.get(f"request-{tokens}-tokens") is not None:
                self.state.pop(f"total-{tokens}-tokens", None)
        self.state |= {name: value for name, value in metrics.items() if value is not None}

    def samples(self) -> Samples:
        self.registry = CollectorRegistry()
        self._gauges()
        for member, (names, bounds) in HISTOGRAMS.items():
            if counts := self.state.get(member):
                for name in names:
                    histogram = Histogram(
                        name, "x", ["model_name", "engine"], buckets=bounds, registry=self.registry
                    ).labels(MODEL, "3")
                    for place, count in enumerate(counts):
                        for _ in range(count):
                            histogram.observe(bounds[place] if place < len(bounds) else bounds[-1] + 1)
        for tokens in ("prompt", "generation"):
            self._total(tokens)
        if reasons := self.state.get("request-success-total"):
            success = Counter(
                "vllm:request_success",
                "x",
                ["model_name", "engine", "finished_reason"],
                registry=self.registry,
            )
            for reason in REASONS:
                success.labels(MODEL, "3", reason).inc(reasons.get(reason, 0))
        if loras := self.state.get("loras"):
            names = ["max_lora", "running_lora_adapters", "waiting_lora_adapters"]
            info = Gauge(LORAS, "x", names, registry=self.registry)
            for lora in loras:
                info.labels("1", lora["running"], lora["waiting"]).set(lora["timestamp"])
        return plain(sample for family in self.registry.collect() for sample in family.samples)

    def _gauges(self) -> None:
        for member, name in (
            ("running-requests", "vllm:num_requests_running"),
            ("waiting-requests", "vllm:num_requests_waiting"),
            ("kv-cache-usage", "vllm:kv_cache_usage_perc"),
        ):
            if member in self.state:
                gauge = Gauge(name, "x", ["model_name", "engine"], registry=self.registry)
                gauge.labels(MODEL, "3").set(self.state[member])
        if "waiting-requests" in self.state:
            by_reason = Gauge(
                "vllm:num_requests_waiting_by_reason",
                "x",
                ["model_name", "engine", "reason"],
                registry=self.registry,
            )
            by_reason.labels(MODEL, "3", "capacity").set(self.state["waiting-requests"])
            by_reason.labels(MODEL, "3", "deferred").set(0)

    def _total(self, tokens: str) -> None:
        total = self.state.get(f"total-{tokens}-tokens")
        counts = self.state.get(f"request-{tokens}-tokens")
        if total is None and counts:
            values = [*TOKENS, *[TOKENS[-1] + 1] * len(counts)]
            total = sum(
                int(value) for value, count in zip(values, counts, strict=False) for _ in range(count)
            )
        if total is not None:
            counter = Counter(f"vllm:{tokens}_tokens", "x", ["model_name", "engine"], registry=self.registry)
            counter.labels(MODEL, "3").inc(total)


@settings(max_examples=60, deadline=None)
@given(METRICS, st.lists(METRICS, max_size=3))
def test_updates_against_a_slow_model(start: dict[str, Any], updates: list[dict[str, Any]]) -> None:
    page, model = Page(start), Model()
    model.update(start)
    for metrics in [{}, *updates]:
        page.update(metrics)
        model.update(metrics)
        for form in FORMATS:
            assert plain(samples(page.scripted, form)) == pytest.approx(model.samples())
