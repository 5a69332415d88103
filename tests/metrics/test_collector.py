"""What `/metrics` shows: families, labels, buckets and values, read back with prometheus_client's parser."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from llmdsim.engine.stats import Stats
from llmdsim.metrics import Collector
from llmdsim.metrics.families import FAMILIES, Labelled

TTFT = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80),
    *(160, 640, 2560),
)
ITL = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
LATENCY = (
    *(0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920),
    7680,
)
TOKENS_4096 = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)

#: name on the wire -> type, buckets. From vLLM 0.33's v1/metrics/loggers.py and buckets.py.
VLLM: dict[str, tuple[str, tuple[float, ...]]] = {
    "vllm:num_requests_running": ("gauge", ()),
    "vllm:num_requests_waiting": ("gauge", ()),
    "vllm:prompt_tokens_total": ("counter", ()),
    "vllm:generation_tokens_total": ("counter", ()),
    "vllm:request_success_total": ("counter", ()),
    "vllm:request_prompt_tokens": ("histogram", TOKENS_4096),
    "vllm:request_generation_tokens": ("histogram", TOKENS_4096),
    "vllm:request_max_num_generation_tokens": ("histogram", TOKENS_4096),
    "vllm:request_params_max_tokens": ("histogram", TOKENS_4096),
    "vllm:request_params_n": ("histogram", (1, 2, 5, 10, 20)),
    "vllm:time_to_first_token_seconds": ("histogram", TTFT),
    "vllm:inter_token_latency_seconds": ("histogram", ITL),
    "vllm:request_time_per_output_token_seconds": ("histogram", ITL),
    "vllm:e2e_request_latency_seconds": ("histogram", LATENCY),
    "vllm:request_queue_time_seconds": ("histogram", LATENCY),
    "vllm:request_inference_time_seconds": ("histogram", LATENCY),
    "vllm:request_prefill_time_seconds": ("histogram", LATENCY),
    "vllm:request_decode_time_seconds": ("histogram", LATENCY),
    # Known from the Go simulator only.
    "vllm:time_per_output_token_seconds": ("histogram", ITL),
    "vllm:max_num_generation_tokens": ("histogram", TOKENS_4096),
}
REASONS = {"stop", "length", "abort", "error", "repetition"}


def collector(stats: Stats, model: str = "m", *, process: bool = False) -> Collector:
    return Collector(model, [("0", stats)], process=process)


def parsed(page: Collector) -> dict[str, Metric]:
    """Families of the page by their name on the wire, `_created` companions apart."""
    found: dict[str, Metric] = {}
    for family in text_string_to_metric_families(page.render().decode()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert name not in found, "a family is written twice"
        found[name] = family
    return found


def value(page: Collector, sample: str, **labels: str) -> float:
    """The one sample of that name whose labels include `labels`."""
    (found,) = [
        each.value
        for family in parsed(page).values()
        for each in family.samples
        if each.name == sample and labels.items() <= each.labels.items()
    ]
    return float(found)


def test_names_and_types_before_the_first_request() -> None:
    families = {name: each for name, each in parsed(collector(Stats(4096))).items() if "_created" not in name}
    assert {name: each.type for name, each in families.items()} == {
        name: kind for name, (kind, _) in VLLM.items()
    }
    assert all(each.documentation for each in families.values())


@pytest.mark.parametrize(("name", "buckets"), [(n, b) for n, (_, b) in VLLM.items() if b])
def test_buckets(name: str, buckets: tuple[float, ...]) -> None:
    samples = parsed(collector(Stats(4096)))[name].samples
    bounds = [float(each.labels["le"]) for each in samples if each.name == f"{name}_bucket"]
    assert bounds == [*buckets, math.inf]


@pytest.mark.parametrize("name", VLLM)
def test_every_child_is_there_at_zero_with_its_labels(name: str) -> None:
    samples = parsed(collector(Stats(4096)))[name].samples
    assert samples
    assert {each.value for each in samples} == {0}
    for each in samples:
        labels = dict(each.labels)
        assert (labels.pop("model_name"), labels.pop("engine")) == ("m", "0")
        labels.pop("le", None)
        labels.pop("finished_reason", None)
        assert not labels
    if name == "vllm:request_success_total":
        assert {each.labels["finished_reason"] for each in samples} == REASONS


SCALARS = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:prompt_tokens_total": "prompt_tokens",
    "vllm:generation_tokens_total": "generation_tokens",
}


@pytest.mark.parametrize(("name", "attribute"), SCALARS.items())
def test_gauges_and_counters_read_their_own_number(name: str, attribute: str) -> None:
    stats = Stats(4096)
    page = collector(stats)
    assert value(page, name) == 0
    setattr(stats, attribute, 3)
    assert value(page, name) == 3
    setattr(stats, attribute, 2_500_000)
    assert value(page, name) == 2_500_000
    setattr(stats, attribute, 0)
    assert value(page, name) == 0
    assert all(value(page, other) == 0 for other in SCALARS)


@pytest.mark.parametrize("reason", sorted(REASONS))
def test_finished_requests_by_reason(reason: str) -> None:
    stats = Stats(4096)
    page = collector(stats)
    page.render()
    stats.finished[reason] += 2
    counts = {each: value(page, "vllm:request_success_total", finished_reason=each) for each in REASONS}
    assert counts == {each: 2 if each == reason else 0 for each in REASONS}


HISTOGRAMS = {
    "vllm:time_to_first_token_seconds": "time_to_first_token",
    "vllm:inter_token_latency_seconds": "inter_token_latency",
    "vllm:time_per_output_token_seconds": "inter_token_latency",
    "vllm:request_time_per_output_token_seconds": "time_per_output_token",
    "vllm:e2e_request_latency_seconds": "e2e_latency",
    "vllm:request_queue_time_seconds": "queue_time",
    "vllm:request_inference_time_seconds": "inference_time",
    "vllm:request_prefill_time_seconds": "prefill_time",
    "vllm:request_decode_time_seconds": "decode_time",
    "vllm:request_prompt_tokens": "request_prompt_tokens",
    "vllm:request_generation_tokens": "request_generation_tokens",
    "vllm:request_max_num_generation_tokens": "max_num_generation_tokens",
    "vllm:max_num_generation_tokens": "max_num_generation_tokens",
    "vllm:request_params_max_tokens": "params_max_tokens",
    "vllm:request_params_n": "params_n",
}


@pytest.mark.parametrize(("name", "attribute"), HISTOGRAMS.items())
def test_histograms_are_cumulative_and_read_their_own_observations(name: str, attribute: str) -> None:
    stats = Stats(4096)
    page = collector(stats)
    page.render()
    histogram = getattr(stats, attribute)
    first, second = histogram.bounds[:2]
    histogram.observe(first)  # a bound belongs to its own bucket
    histogram.observe_times(second, 3)
    histogram.observe(1e9)
    families = parsed(page)
    buckets = [each.value for each in families[name].samples if each.name == f"{name}_bucket"]
    assert buckets == [1] + [4] * (len(histogram.bounds) - 1) + [5]
    assert value(page, f"{name}_count") == 5
    assert value(page, f"{name}_sum") == first + second * 3 + 1e9
    moved = {
        each.name
        for family in families.values()
        for each in family.samples
        if each.value == 5 and "le" in each.labels
    }
    assert moved == {f"{each}_bucket" for each, source in HISTOGRAMS.items() if source == attribute}


def test_a_histogram_with_millions_of_observations() -> None:
    stats = Stats(4096)
    page = collector(stats)
    stats.inter_token_latency.observe_times(0.02, 999_999)
    assert b'vllm:inter_token_latency_seconds_count{engine="0",model_name="m"} 999999.0\n' in page.render()
    stats.inter_token_latency.observe(0.06)
    text = page.render()
    assert b'vllm:inter_token_latency_seconds_bucket{engine="0",le="0.05",model_name="m"} 999999.0\n' in text
    assert b'vllm:inter_token_latency_seconds_bucket{engine="0",le="+Inf",model_name="m"} 1e+06\n' in text


def test_a_sample_of_zero_moves_its_bucket_though_not_the_sum() -> None:
    stats = Stats(4096)
    page = collector(stats)
    page.render()
    stats.queue_time.observe(0.0)
    assert value(page, "vllm:request_queue_time_seconds_count") == 1
    assert value(page, "vllm:request_queue_time_seconds_sum") == 0


def test_ranks_are_children_of_one_family() -> None:
    ranks = [("0", Stats(4096)), ("1", Stats(4096))]
    page = Collector("m", ranks, process=False)
    ranks[1][1].running = 4
    ranks[1][1].time_to_first_token.observe(0.1)
    assert value(page, "vllm:num_requests_running", engine="0") == 0
    assert value(page, "vllm:num_requests_running", engine="1") == 4
    assert value(page, "vllm:time_to_first_token_seconds_count", engine="0") == 0
    assert value(page, "vllm:time_to_first_token_seconds_count", engine="1") == 1
    assert page.render().count(b"# TYPE vllm:num_requests_running gauge\n") == 1


@given(st.text())
def test_any_model_name_survives(model: str) -> None:
    for family in parsed(collector(Stats(16), model)).values():
        assert {each.labels["model_name"] for each in family.samples} == {model}


@pytest.mark.parametrize("model", ['a"b', "a\\b", "a\\", "a\nb", "100%d.0 %b %s", "模型/🦊", "{x},y=1", ""])
def test_odd_model_names(model: str) -> None:
    stats = Stats(16)
    page = collector(stats, model)
    stats.time_to_first_token.observe_times(3, 2_000_000)
    assert value(page, "vllm:time_to_first_token_seconds_count", model_name=model) == 2_000_000


def test_a_name_that_is_no_unicode_does_not_stop_the_page() -> None:
    assert collector(Stats(16), "caf\udce9").render().decode()


def test_created_companions() -> None:
    before = time.time()
    page = collector(Stats(4096))
    created = {name: each for name, each in parsed(page).items() if name.endswith("_created")}
    expected = {
        f"{name.removesuffix('_total')}_created" for name, (kind, _) in VLLM.items() if kind != "gauge"
    }
    assert set(created) == expected
    for family in created.values():
        assert family.type == "gauge"
        assert all(before <= each.value <= time.time() for each in family.samples)
    assert len(created["vllm:request_success_created"].samples) == len(REASONS)
    bare = Collector("m", [("0", Stats(4096))], process=False, created_series=False)
    assert b"_created" not in bare.render()


def test_written_byte_for_byte_as_the_library_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.25)
    model = 'odd "name" \\ with\nall 100%'
    stats = Stats(2_000_000)
    stats.running, stats.prompt_tokens, stats.finished["abort"] = 7, 1_234_567, 3
    for number in (1 / 256, 0.5, 3.25, 4e6):
        for attribute in HISTOGRAMS.values():
            getattr(stats, attribute).observe(number)
    registry = CollectorRegistry()
    for family in FAMILIES:
        names = ["model_name", "engine", *([family.label] if isinstance(family, Labelled) else [])]
        kind, _ = VLLM.get(family.name) or VLLM[f"{family.name}_total"]
        if kind == "gauge":
            Gauge(family.name, family.help, names, registry=registry).labels(model, "0").set(
                family.read(stats)
            )
        elif kind == "counter":
            counter = Counter(family.name, family.help, names, registry=registry)
            for extra, count in _counts(family.read(stats)):
                counter.labels(model, "0", *extra).inc(count)
        else:
            ours = family.read(stats)
            theirs = Histogram(family.name, family.help, names, registry=registry, buckets=ours.bounds)
            for number in (1 / 256, 0.5, 3.25, 4e6):
                theirs.labels(model, "0").observe(number)
                if ours.count > 4:  # two names share their observations in the loop above
                    theirs.labels(model, "0").observe(number)
    page = collector(stats, model)
    assert page.render().decode().splitlines() == generate_latest(registry).decode().splitlines()


def _counts(read: object) -> Iterator[tuple[tuple[str, ...], float]]:
    if isinstance(read, dict):
        yield from (((label,), count) for label, count in read.items())
    else:
        assert isinstance(read, int)
        yield (), read


def test_extra_blocks_follow_the_table() -> None:
    class Fixed:
        def render(self) -> bytes:
            return b"# HELP x y\n# TYPE x gauge\nx 1.0\n"

    page = Collector("m", [("0", Stats(16))], process=False, extra=[Fixed()])
    assert page.render().endswith(b"x 1.0\n")
    assert value(page, "x") == 1


def test_process_families_come_first_and_are_read_once_a_second() -> None:
    now = [100.0]
    page = Collector("m", [("0", Stats(16))], clock=lambda: now[0])
    families = parsed(page)
    assert families["python_info"].type == "gauge"
    assert {"python_gc_collections_total", "process_cpu_seconds_total"} <= set(families)
    assert next(iter(families)).startswith("python_")
    assert value(page, "process_resident_memory_bytes") > 0

    import gc

    before = value(page, "python_gc_collections_total", generation="2")
    gc.collect()
    now[0] += 0.99
    assert value(page, "python_gc_collections_total", generation="2") == before
    now[0] += 0.02
    assert value(page, "python_gc_collections_total", generation="2") > before
