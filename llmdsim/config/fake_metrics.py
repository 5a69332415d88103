"""What `--fake-metrics` may hold: values and functions to report in place of measured metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal

import msgspec

from llmdsim.config.metric_function import parse_function

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Gauge = Annotated[float, msgspec.Meta(ge=0)] | str
Ratio = Annotated[float, msgspec.Meta(ge=0, le=1)] | str
#: More than any family has buckets; further ones all count for +Inf.
Counts = Annotated[list[Count], msgspec.Meta(max_length=128)]
#: vLLM's, then those that llm-d-inference-sim has besides.
Reason = Literal[
    "stop", "length", "abort", "error", "repetition", "tool_calls", "cache_threshold", "remote_decode"
]


class FakeLora(msgspec.Struct):
    """One series of the LoRA gauge: names between commas, and its value, seconds since the epoch."""

    running: str = ""
    waiting: str = ""
    timestamp: float = 0.0


class FakeMetrics(msgspec.Struct, rename="kebab"):
    """Counts of buckets are not cumulative; members that are not known are ignored."""

    running_requests: Gauge | None = None
    waiting_requests: Gauge | None = None
    kv_cache_usage: Ratio | None = None
    ttft_buckets_values: Annotated[list[Count], msgspec.Meta(max_length=23)] | None = None
    tpot_buckets_values: Annotated[list[Count], msgspec.Meta(max_length=20)] | None = None
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
    loras: Annotated[list[FakeLora], msgspec.Meta(max_length=256)] | None = None


_KNOWN = frozenset(field.encode_name for field in msgspec.structs.fields(FakeMetrics))

#: Of what is counted per request and in total.
_TOKENS = ("prompt", "generation")


def read_fake_metrics(given: Mapping[str, Any]) -> FakeMetrics:
    """The value of `--fake-metrics`, checked. Raises ValueError that says what is wrong."""
    try:
        metrics = msgspec.convert(_spelled(given), FakeMetrics)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(str(error)) from None
    for name, value, most in (
        ("running-requests", metrics.running_requests, 1e300),
        ("waiting-requests", metrics.waiting_requests, 1e300),
        ("kv-cache-usage", metrics.kv_cache_usage, 1.0),
    ):
        if isinstance(value, str):
            try:
                parse_function(value, most)
            except ValueError:
                raise ValueError(
                    f"{name} is neither a number nor a function such as ramp:0:1:10s within its range"
                ) from None
    hits, queries = metrics.prefix_cache_hits, metrics.prefix_cache_queries
    if (hits is None) != (queries is None) or (hits or 0) > (queries or 0):
        raise ValueError("prefix-cache-hits and prefix-cache-queries go together, and the hits are not more")
    return metrics


def patched(known: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`known` with members replaced by those of `changes`; null leaves one as it is.

    New counts of prompts or replies take a total away that was given before: it follows from them again.
    Of members that mean nothing only those of `changes` are kept, or updates could fill the memory.
    """
    kept = {name: value for name, value in _spelled(known).items() if name in _KNOWN}
    new = {name: value for name, value in _spelled(changes).items() if value is not None}
    for tokens in _TOKENS:
        if f"request-{tokens}-tokens" in new:
            kept.pop(f"total-{tokens}-tokens", None)
    return kept | new


def unknown_members(given: Mapping[str, Any]) -> list[str]:
    """Names in `--fake-metrics` that mean nothing."""
    return sorted(_spelled(given).keys() - _KNOWN)


def _spelled(given: Mapping[str, Any]) -> dict[str, Any]:
    """With llm-d-inference-sim's YAML put right: totals without dashes, adapters as JSON texts."""
    members = dict(given)
    for tokens in _TOKENS:
        total = members.pop(f"total{tokens}tokens", None)
        if total is not None:
            members.setdefault(f"total-{tokens}-tokens", total)
    if isinstance(members.get("loras"), list):
        members["loras"] = list(_decoded(members["loras"]))
    return members


def _decoded(loras: Iterable[object]) -> Iterable[object]:
    for lora in loras:
        if isinstance(lora, str):
            with suppress(ValueError, RecursionError):
                lora = msgspec.json.decode(lora)  # noqa: PLW2901 - what is no JSON is refused as it is
        yield lora
