"""What `--fake-metrics` may hold: values and functions to report in place of measured metrics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from llmdsim.config.durations import parse_duration

Count = Annotated[int, msgspec.Meta(ge=0)]
Gauge = Annotated[float, msgspec.Meta(ge=0)] | str
Ratio = Annotated[float, msgspec.Meta(ge=0, le=1)] | str
Counts = list[Count]
Reason = Literal["stop", "length", "abort", "error", "repetition"]

#: The largest value that a function of a gauge without a limit may have.
_MOST = 1e300
_NUMBER = r"(\+?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
_FUNCTION = re.compile(rf"(oscillate|ramp|rampreset|squarewave):{_NUMBER}:{_NUMBER}:([^:]+)")


class FakeMetrics(msgspec.Struct, rename="kebab"):
    """Counts of buckets are not cumulative; members that are not known are ignored."""

    running_requests: Gauge | None = None
    waiting_requests: Gauge | None = None
    kv_cache_usage: Ratio | None = None
    ttft_buckets_values: Annotated[Counts, msgspec.Meta(max_length=23)] | None = None
    tpot_buckets_values: Annotated[Counts, msgspec.Meta(max_length=20)] | None = None
    request_tpot_buckets_values: Counts | None = None
    e2erl_buckets_values: Counts | None = None
    queue_time_buckets_values: Counts | None = None
    inf_time_buckets_values: Counts | None = None
    prefill_time_buckets_values: Counts | None = None
    decode_time_buckets_values: Counts | None = None
    request_prompt_tokens: Counts | None = None
    request_generation_tokens: Counts | None = None
    request_params_max_tokens: Counts | None = None
    request_max_generation_tokens: Counts | None = None
    request_success_total: dict[Reason, Count] | None = None
    total_prompt_tokens: Count | None = None
    total_generation_tokens: Count | None = None
    prefix_cache_hits: Count | None = None
    prefix_cache_queries: Count | None = None
    loras: list[Any] | None = None


def fake_metrics_fault(given: Mapping[str, Any]) -> str | None:
    """What is wrong with the value of `--fake-metrics`, or None."""
    try:
        metrics = msgspec.convert(given, FakeMetrics)
    except (msgspec.ValidationError, RecursionError) as error:
        return str(error)
    for name, value, high in (
        ("running-requests", metrics.running_requests, _MOST),
        ("waiting-requests", metrics.waiting_requests, _MOST),
        ("kv-cache-usage", metrics.kv_cache_usage, 1.0),
    ):
        if isinstance(value, str) and not _is_function(value, high):
            return f"{name} is neither a number nor a function such as ramp:0:1:10s within its range"
    hits, queries = metrics.prefix_cache_hits, metrics.prefix_cache_queries
    if (hits is None) != (queries is None) or (hits or 0) > (queries or 0):
        return "prefix-cache-hits and prefix-cache-queries go together, and the hits are not more"
    return None


def _is_function(text: str, high: float) -> bool:
    found = _FUNCTION.fullmatch(text)
    if found is None or max(float(found[2]), float(found[3])) > high:
        return False
    try:
        return parse_duration(found[4]) > 0
    except ValueError:
        return False
