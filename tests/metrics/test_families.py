"""Names, kinds, labels, children and buckets, held against what vLLM shows, in both formats."""

from __future__ import annotations

import math

import pytest

from llmdsim.engine.stats import Stats
from llmdsim.metrics import Collector, kv_block_blocks
from tests.metrics.pages import FORMATS, collector, families
from tests.metrics.vllm import CACHE_CONFIG, DASHBOARDS, FAMILIES, RESIDENCY

INFO = "vllm:cache_config_info"


@pytest.fixture(params=FORMATS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_names_kinds_and_order(form: str) -> None:
    found = families(collector(Stats(4096)), form)
    kinds = {name: each.type for name, each in found.items() if not name.endswith("_created")}
    assert list(kinds.items()) == [*((name, known.kind) for name, known in FAMILIES.items()), (INFO, "gauge")]
    # Quotes would have to be escaped in one format and not in the other.
    assert all(each.documentation and '"' not in each.documentation for each in found.values())


def test_r3_counters_of_the_prefix_cache_end_in_total(form: str) -> None:
    page = collector(Stats(4096))
    shown = (page.text() if form == "text" else page.openmetrics()).decode()
    for name in ("queries", "hits"):
        assert f'vllm:prefix_cache_{name}_total{{engine="0",model_name="m"}} 0' in shown


@pytest.mark.parametrize("name", FAMILIES)
def test_every_child_is_there_at_zero_with_its_labels_and_no_other(name: str, form: str) -> None:
    known = FAMILIES[name]
    samples = [
        each
        for each in families(collector(Stats(4096)), form)[name].samples
        if not each.name.endswith("_created")
    ]
    suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "gauge": ("",)}
    assert {each.name for each in samples} == {name + suffix for suffix in suffixes[known.kind]}
    own = []
    for each in samples:
        labels = dict(each.labels)
        for label, expected in (("model_name", "m"), ("engine", "0")):
            assert labels.pop(label, None) == (expected if label in known.common else None)
        labels.pop("le", None)
        if known.label:
            own.append(labels.pop(known.label))
        assert not labels
        assert each.value == (1 if labels == {} and own[-1:] == ["awake"] else 0)
    assert tuple(own) == known.values


@pytest.mark.parametrize(
    ("name", "buckets"), [(n, each.buckets) for n, each in FAMILIES.items() if each.buckets]
)
def test_buckets(name: str, buckets: tuple[float, ...], form: str) -> None:
    samples = families(collector(Stats(4096)), form)[name].samples
    bounds = [float(each.labels["le"]) for each in samples if each.name == f"{name}_bucket"]
    assert bounds == [*buckets, math.inf]


def test_token_buckets_end_with_the_context() -> None:
    samples = families(collector(Stats(10)))["vllm:request_prompt_tokens"].samples
    assert [each.labels["le"] for each in samples if "le" in each.labels] == [
        "1.0",
        "2.0",
        "5.0",
        "10.0",
        "+Inf",
    ]


def test_the_cache_is_described_without_a_model(form: str) -> None:
    (sample,) = families(collector(Stats(16), **CACHE_CONFIG), form)[INFO].samples
    assert sample.value == 1
    assert sample.labels == {**CACHE_CONFIG, "engine": "0"}


def test_r54_what_the_dashboards_query_is_there() -> None:
    text = collector(Stats(4096)).text().decode()
    assert len(set(DASHBOARDS)) == 17
    for name in DASHBOARDS:
        assert f"\n{name}{{" in text, name


def test_times_of_kv_blocks_have_vllms_names_and_buckets(form: str) -> None:
    stats = Stats(16)
    stats.block_times.count(3.0, 2.0, [0.5, 0.25])
    found = families(Collector(kv_block_blocks("m", [("0", stats)])), form)
    names = ["lifetime", "idle_before_evict", "reuse_gap"]
    assert [each for each in found if not each.endswith("_created")] == [
        f"vllm:kv_block_{name}_seconds" for name in names
    ]
    for name, count, total in zip(names, (1, 1, 2), (3.0, 2.0, 0.75), strict=True):
        samples = found[f"vllm:kv_block_{name}_seconds"].samples
        bounds = [float(each.labels["le"]) for each in samples if "le" in each.labels]
        assert bounds == [*RESIDENCY, math.inf]
        values = {each.name: each.value for each in samples if each.name.endswith(("_count", "_sum"))}
        assert [*values.values()] == [count, total]
