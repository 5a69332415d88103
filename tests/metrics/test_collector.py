"""Both formats tell the same, each in its own way and as prometheus_client writes it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_latest

from llmdsim.engine.stats import Histogram as Distribution
from llmdsim.engine.stats import Stats
from llmdsim.metrics import Collector, block
from llmdsim.metrics.block import FamilyBlock
from tests.metrics.pages import FORMATS, collector, families, samples
from tests.metrics.vllm import FAMILIES


def test_created_lines_stand_where_their_format_has_them() -> None:
    before = time.time()
    page = collector(Stats(4096))
    counted = [name for name, known in FAMILIES.items() if known.kind != "gauge"]
    text, openmetrics = families(page, "text"), families(page, "openmetrics")
    assert {name for name in text if name.endswith("_created")} == {f"{name}_created" for name in counted}
    assert not any(name.endswith("_created") for name in openmetrics)
    for name in counted:
        apart = text[f"{name}_created"]
        assert apart.type == "gauge"
        inside = [each for each in openmetrics[name].samples if each.name == f"{name}_created"]
        assert [(each.labels, each.value) for each in inside] == [
            (each.labels, each.value) for each in apart.samples
        ]
        assert len(inside) == max(1, len(FAMILIES[name].values))
        assert all(before <= each.value <= time.time() for each in inside)


def test_created_lines_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block, "CREATED", False)
    page = collector(Stats(4096))
    assert b"_created" not in page.text() + page.openmetrics()
    assert len(families(page)) == len(families(page, "openmetrics")) == len(FAMILIES) + 1


def test_both_formats_tell_the_same() -> None:
    stats = Stats(4096)
    page = collector(stats)
    counted = [getattr(stats, name) for name in Stats.__slots__]
    for number, each in enumerate(counted):
        if isinstance(each, Distribution):
            each.observe(number / 8)
    stats.prompt_tokens = 1_234_567
    assert list(samples(page, "text")) == list(samples(page, "openmetrics"))


def test_openmetrics_ends_with_its_mark_and_names_counters_without_total() -> None:
    text = collector(Stats(16)).openmetrics().decode()
    assert text.endswith("\n# EOF\n")
    assert text.count("# EOF") == 1
    assert "# TYPE vllm:prompt_tokens counter\n" in text
    assert "# HELP vllm:prompt_tokens " in text
    assert "\nvllm:prompt_tokens_total{" in text
    assert "# TYPE vllm:iteration_tokens_total histogram\n" in text
    assert "vllm_" not in text


@given(st.text())
def test_any_label_survives(text: str) -> None:
    number = FamilyBlock("x", "gauge", "A number.")
    number.add_number({"label": text}, lambda: 1)
    histogram = FamilyBlock("y", "histogram", "Buckets.")
    histogram.add_histogram({"label": text}, Distribution((1.0, 2.0)))
    for form in FORMATS:
        assert {each.labels["label"] for each in samples(Collector([number, histogram]), form)} == {text}


MODEL = 'odd "name" \\ with\nall 100%'
OBSERVED = (1 / 256, 0.5, 3.25, 4e6)


def test_written_byte_for_byte_as_the_library_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A family of each kind, with and without children."""
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.25)
    labels = {"model": MODEL, "a": "1"}
    distribution = Distribution((0.5, 1.0, 1e6))
    for number in OBSERVED:
        distribution.observe(number)

    def ours(prefix: str) -> Collector:
        blocks = {
            kind: FamilyBlock(f"{prefix}{kind}", kind, "Help with a \\.")  # type: ignore[arg-type]
            for kind in ("gauge", "counter", "histogram", "summary")
        }
        for each in (labels, {**labels, "a": "2"}):
            blocks["gauge"].add_number(each, lambda: 7)
            blocks["counter"].add_number(each, lambda: 1_234_567)
            blocks["histogram"].add_histogram(each, distribution)
            blocks["summary"].add_summary(each, lambda: len(OBSERVED), lambda: sum(OBSERVED))
        empty = FamilyBlock(f"{prefix}empty", "counter", "None.")
        return Collector([*blocks.values(), empty])

    def theirs(prefix: str) -> CollectorRegistry:
        registry = CollectorRegistry()
        text = "Help with a \\."
        names = ("model", "a")
        gauge = Gauge(f"{prefix}gauge", text, names, registry=registry)
        counter = Counter(f"{prefix}counter", text, names, registry=registry)
        histogram = Histogram(
            f"{prefix}histogram", text, names, registry=registry, buckets=distribution.bounds
        )
        summary = Summary(f"{prefix}summary", text, names, registry=registry)
        Counter(f"{prefix}empty", "None.", names, registry=registry)
        for a in ("1", "2"):
            gauge.labels(MODEL, a).set(7)
            counter.labels(MODEL, a).inc(1_234_567)
            for number in OBSERVED:
                histogram.labels(MODEL, a).observe(number)
                summary.labels(MODEL, a).observe(number)
        return registry

    assert ours("x:").text() == generate_latest(theirs("x:"))
    # The library would write `x_` for `x:` here, which is why the pages are not its own.
    assert ours("x_").openmetrics() == openmetrics_latest(theirs("x_"))
