"""The families about the process, held against those of prometheus_client."""

from __future__ import annotations

import gc
import os

import pytest
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client import generate_latest as library_text
from prometheus_client.openmetrics.exposition import generate_latest as library_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from llmdsim.metrics import Collector, process, process_blocks
from tests.metrics.pages import value


def shape(page: bytes) -> list[str]:
    """The page's lines without their values."""
    return [line if line[0] == "#" else line.rpartition(" ")[0] for line in page.decode().splitlines()]


def test_the_same_families_in_the_same_order() -> None:
    registry = CollectorRegistry()
    GCCollector(registry)
    PlatformCollector(registry)
    ProcessCollector(registry=registry)
    ours = Collector(process_blocks())
    assert shape(ours.text()) == shape(library_text(registry))
    assert shape(ours.openmetrics()) == shape(library_openmetrics(registry))


@pytest.mark.parametrize(
    ("name", "apart"),
    [
        ("python_info", 0.0),
        ("process_virtual_memory_bytes", 1e8),
        ("process_resident_memory_bytes", 5e7),
        ("process_start_time_seconds", 0.02),
        ("process_cpu_seconds_total", 0.1),
        ("process_open_fds", 2.0),
        ("process_max_fds", 0.0),
    ],
)
def test_the_same_numbers(name: str, apart: float) -> None:
    registry = CollectorRegistry()
    PlatformCollector(registry)
    ProcessCollector(registry=registry)
    (theirs,) = [
        each.value
        for family in text_string_to_metric_families(library_text(registry).decode())
        for each in family.samples
        if each.name == name
    ]
    assert value(Collector(process_blocks()), name) == pytest.approx(theirs, abs=apart)


def test_a_reading_is_never_old() -> None:
    page = Collector(process_blocks())

    def read() -> tuple[float, float, float]:
        return (
            value(page, "process_open_fds"),
            value(page, "process_cpu_seconds_total"),
            value(page, "python_gc_collections_total", generation="2"),
        )

    before = read()
    opened = os.open("/dev/null", os.O_RDONLY)
    gc.collect()
    after = read()
    os.close(opened)
    assert after[0] == before[0] + 1
    assert after[1] > before[1]
    assert after[2] == before[2] + 1


def test_open_files_are_listed_where_the_kernel_does_not_count_them(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = process._open_files()
    real = os.stat
    monkeypatch.setattr(os, "stat", lambda *_: os.stat_result([0] * 10))
    listed = process._open_files()
    monkeypatch.setattr(os, "stat", real)
    assert abs(listed - counted) <= 1  # the listing itself is open
