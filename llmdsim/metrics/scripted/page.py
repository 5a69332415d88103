"""The families that are scripted, as one block."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from twisted.logger import Logger

from llmdsim.config import Config, FakeLora, FakeMetrics, read_fake_metrics, unknown_members
from llmdsim.engine.stats import FINISH_REASONS, Histogram, Stats
from llmdsim.metrics.block import FamilyBlock
from llmdsim.metrics.families import FAMILIES, Distribution, Family
from llmdsim.metrics.scripted.buckets import scripted_histogram, scripted_total
from llmdsim.metrics.scripted.gauges import Gauges

log = Logger()

#: The member that each family is made of. A family is shown while its member is there.
MEMBERS = {
    "vllm:num_requests_running": "running_requests",
    "vllm:num_requests_waiting": "waiting_requests",
    "vllm:num_requests_waiting_by_reason": "waiting_requests",
    "vllm:kv_cache_usage_perc": "kv_cache_usage",
    "vllm:prefix_cache_queries": "prefix_cache_queries",
    "vllm:prefix_cache_hits": "prefix_cache_hits",
    "vllm:prompt_tokens": "total_prompt_tokens",
    "vllm:generation_tokens": "total_generation_tokens",
    "vllm:request_success": "request_success_total",
    "vllm:request_prompt_tokens": "request_prompt_tokens",
    "vllm:request_generation_tokens": "request_generation_tokens",
    "vllm:request_max_num_generation_tokens": "request_max_generation_tokens",
    "vllm:request_params_max_tokens": "request_params_max_tokens",
    "vllm:time_to_first_token_seconds": "ttft_buckets_values",
    "vllm:inter_token_latency_seconds": "tpot_buckets_values",
    "vllm:request_time_per_output_token_seconds": "request_tpot_buckets_values",
    "vllm:e2e_request_latency_seconds": "e2erl_buckets_values",
    "vllm:request_queue_time_seconds": "queue_time_buckets_values",
    "vllm:request_inference_time_seconds": "inf_time_buckets_values",
    "vllm:request_prefill_time_seconds": "prefill_time_buckets_values",
    "vllm:request_decode_time_seconds": "decode_time_buckets_values",
    "vllm:time_per_output_token_seconds": "tpot_buckets_values",
    "vllm:max_num_generation_tokens": "request_max_generation_tokens",
}
#: Members that may be functions, and whether they count.
GAUGES = {"running_requests": True, "waiting_requests": True, "kv_cache_usage": False}

LORAS = "vllm:lora_requests_info"


class Scripted:
    """A block: what `config.fake_metrics` says, under the name of the served model and as this engine.

    A family that an update changes begins anew, with another `_created`; the others, and functions that are
    still the same, go on. `clock` is an `IReactorTime`.
    """

    def __init__(self, config: Config, model_name: str, engine: str, clock: Any) -> None:
        self._labels = {"model_name": model_name, "engine": engine}
        self._max_loras = config.max_loras
        #: For the bounds of its histograms.
        self._measured = Stats(config.max_model_len)
        self._shown = FakeMetrics()
        self._unknown: list[str] = []
        self._families: dict[str, FamilyBlock] = {}
        self._blocks: list[FamilyBlock] = []
        self.gauges = Gauges(clock, config.fake_metrics_refresh_interval)
        self.configure(config)

    @property
    def waiting(self) -> float | None:
        """Requests in the queue, as shown; None where they are not scripted."""
        return self.gauges.value("waiting_requests")

    @property
    def kv_cache_usage(self) -> float | None:
        """From 0 to 1, as shown; None where it is not scripted."""
        return self.gauges.value("kv_cache_usage")

    def configure(self, config: Config) -> None:
        """Show what `config` says from now on."""
        given = config.fake_metrics or {}
        unknown = unknown_members(given)
        if unknown and unknown != self._unknown:
            log.warn("--fake-metrics: not known, and ignored: {names}", names=", ".join(unknown))
            self._unknown = unknown
        before, self._shown = self._shown, self._with_totals(read_fake_metrics(given))
        changed = {
            name
            for name in FakeMetrics.__struct_fields__
            if getattr(self._shown, name) != getattr(before, name)
        }
        for name in GAUGES.keys() & changed:
            self.gauges.put(name, getattr(self._shown, name), whole=GAUGES[name])
        for family in FAMILIES:
            if MEMBERS.get(family.name) in changed:
                self._build(family)
        if "loras" in changed:
            self._build_loras(self._shown.loras)
        order = [*(family.name for family in FAMILIES), LORAS]
        self._blocks = [self._families[name] for name in order if name in self._families]

    def text(self) -> bytes:
        return b"".join([block.text() for block in self._blocks])

    def openmetrics(self) -> bytes:
        return b"".join([block.openmetrics() for block in self._blocks])

    def _with_totals(self, metrics: FakeMetrics) -> FakeMetrics:
        """Totals that are not given follow from the counts."""
        derived: dict[str, int] = {}
        for tokens in ("prompt_tokens", "generation_tokens"):
            counts: list[int] | None = getattr(metrics, f"request_{tokens}")
            if counts and getattr(metrics, f"total_{tokens}") is None:
                measured: Histogram = getattr(self._measured, f"request_{tokens}")
                derived[f"total_{tokens}"] = scripted_total(counts, measured.bounds)
        return msgspec.structs.replace(metrics, **derived)

    def _build(self, family: Family) -> None:
        """Make the family anew, or take it away."""
        member = MEMBERS[family.name]
        value = getattr(self._shown, member)
        if value is None or value in ([], {}):
            self._families.pop(family.name, None)
            return
        kind = "histogram" if isinstance(family, Distribution) else family.kind
        block = self._families[family.name] = FamilyBlock(family.name, kind, family.help)
        if isinstance(family, Distribution):
            block.add_histogram(self._labels, scripted_histogram(value, family.read(self._measured).bounds))
        elif member == "request_success_total":
            for reason in dict.fromkeys((*FINISH_REASONS, *value)):
                labels = {**self._labels, "finished_reason": reason}
                block.add_number(labels, partial(value.get, reason, 0))
        elif family.name == "vllm:num_requests_waiting_by_reason":
            block.add_number({**self._labels, "reason": "capacity"}, self.gauges.reader(member))
            block.add_number({**self._labels, "reason": "deferred"}, lambda: 0)
        elif member in GAUGES:
            block.add_number(self._labels, self.gauges.reader(member))
        else:
            block.add_number(self._labels, lambda: value)

    def _build_loras(self, loras: Sequence[FakeLora] | None) -> None:
        """Make the family of adapters anew, a series for each pair of lists, or take it away."""
        if loras is None:
            self._families.pop(LORAS, None)
            return
        block = self._families[LORAS] = FamilyBlock(LORAS, "gauge", "When adapters ran and waited like this.")
        series = {(lora.running, lora.waiting): lora.timestamp for lora in loras} or {("", ""): time.time()}
        for (running, waiting), timestamp in series.items():
            labels = {
                "max_lora": str(self._max_loras),
                "running_lora_adapters": running,
                "waiting_lora_adapters": waiting,
            }
            block.add_number(labels, partial(float, timestamp))
