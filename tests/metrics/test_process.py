"""The families about the process."""

from __future__ import annotations

import pytest

from llmdsim.metrics import Collector, ProcessBlock
from llmdsim.metrics.process import KEPT
from tests.metrics.pages import FORMATS, families, value

NAMES = [
    *("python_gc_objects_collected", "python_gc_objects_uncollectable", "python_gc_collections"),
    *("python_info", "process_virtual_memory_bytes", "process_resident_memory_bytes"),
    *("process_start_time_seconds", "process_cpu_seconds", "process_open_fds", "process_max_fds"),
]


@pytest.mark.parametrize("form", FORMATS)
def test_python_and_process_families(form: str) -> None:
    page = Collector([ProcessBlock(lambda: 0.0)])
    assert list(families(page, form)) == NAMES
    assert value(page, "process_resident_memory_bytes", form) > 1e6


def test_one_reading_lasts_a_second() -> None:
    now = 0.0
    block = ProcessBlock(lambda: now)
    first = block.text(), block.openmetrics()
    spent = sum(number * number for number in range(2_000_000))  # moves process_cpu_seconds_total
    assert spent
    now = KEPT / 2
    assert (block.text(), block.openmetrics()) == first
    now = KEPT
    assert block.text() != first[0]
    assert block.openmetrics() != first[1]
