"""The families about LoRA adapters, of an engine whose time the test moves."""

from __future__ import annotations

import time

import pytest
from prometheus_client.samples import Sample

from llmdsim.engine.adapters import Adapter, Adapters
from llmdsim.metrics import Block, Collector, lora_blocks
from llmdsim.metrics.lora import INFO, MOST_SERIES
from tests.engine.rig import Rig
from tests.metrics.pages import FORMATS, families, samples, value

LABELS = {"model_name": 'm"1", \\x', "engine": "0"}
FORMS = pytest.mark.parametrize("form", FORMATS)


class Page(Collector):
    """The families of `rig`; switched on unless told."""

    def __init__(self, rig: Rig, as_vllm: bool = False) -> None:
        self.on = True
        self.known = Adapters()
        self.rig = rig
        blocks: list[Block] = lora_blocks(
            rig.engine, rig.settings.max_loras, LABELS, lambda: rig.now, lambda: self.on, as_vllm
        )
        super().__init__(blocks)

    def load(self, *names: str) -> list[Adapter]:
        return [self.known.load(name, "/", "m") for name in names]

    def info(self, form: str = "text") -> list[tuple[str, str]]:
        """Running and waiting adapters of each series."""
        return [
            (each.labels["running_lora_adapters"], each.labels["waiting_lora_adapters"])
            for each in self.series(form)
        ]

    def series(self, form: str = "text") -> list[Sample]:
        return [each for each in samples(self, form) if each.name == INFO]

    def loaded(self, form: str = "text") -> dict[str, str]:
        """Where each adapter is."""
        found = [each for each in samples(self, form) if each.name == "vllm:lora_adapter_loaded"]
        assert all(each.value == 1 for each in found)
        assert all(each.labels.items() >= {**LABELS, "pinned": "false"}.items() for each in found)
        return {each.labels["adapter_name"]: each.labels["level"] for each in found}


@FORMS
def test_there_is_one_series_from_the_start(form: str) -> None:
    page = Page(Rig(max_loras=3))
    (series,) = page.series(form)
    assert series.labels == {"max_lora": "3", "running_lora_adapters": "", "waiting_lora_adapters": ""}
    assert families(page, form)[INFO].type == "gauge"


@FORMS
def test_running_and_waiting_adapters_are_sorted_and_apart(form: str) -> None:
    rig = Rig(slots=3, max_loras=2, inter_token_latency=1.0)
    page = Page(rig)
    a, b, c, d = page.load("a", "b", "c", "d")
    first = rig.add(9, adapter=b)
    assert page.info(form) == [("b", "")]
    second = rig.add(9, adapter=a)
    third = rig.add(9)
    for adapter in (d, a, c, d, None):
        rig.add(9, adapter=adapter)
    assert page.info(form) == [("a,b", "c,d")]
    rig.abort(third)
    assert page.info(form) == [("a,b", "c,d")]
    rig.abort(first)
    assert page.info(form) == [("a,d", "c")]
    rig.abort(second)
    rig.drain()
    assert page.info(form) == [("", "")]


def test_names_are_in_order_whoever_came_first() -> None:
    names = [f"l{number}" for number in range(9)]
    rig = Rig(slots=5, max_loras=5, inter_token_latency=1.0)
    page = Page(rig)
    for adapter in reversed(page.load(*names)):
        rig.add(9, adapter=adapter)
    assert page.info() == [(",".join(names[4:]), ",".join(names[:4]))]


def test_two_of_one_name_are_told_once() -> None:
    rig = Rig(slots=3, max_loras=1, inter_token_latency=1.0)
    page = Page(rig)
    (old,) = page.load("a")
    rig.add(9, adapter=old)
    page.known.unload("a")
    (new,) = page.load("a")
    rig.add(9, adapter=new)
    assert page.info() == [("a", "")]


@FORMS
def test_names_are_escaped_and_come_back(form: str) -> None:
    rig = Rig(slots=1, inter_token_latency=1.0)
    page = Page(rig)
    odd, other = page.load('q"uo\\te\n,{}', "é%s")
    rig.add(9, adapter=odd)
    rig.add(9, adapter=other)
    rig.engine.residency.load(other)
    assert page.info(form) == [(odd.name, other.name)]
    assert page.loaded(form) == {odd.name: "gpu"}


def test_the_value_is_when_it_last_changed_with_its_fraction() -> None:
    rig = Rig(slots=1, inter_token_latency=1.0)
    page = Page(rig)
    (before,) = page.series()
    assert time.time() - 1 < before.value <= time.time()
    first, second = page.load("a", "b")
    sequence = rig.add(9, adapter=first)
    rig.now += 100.25
    (running,) = page.series()
    assert running.value == pytest.approx(time.time() - 100.25, abs=1)
    assert running.value % 1 != 0
    assert page.text() == page.text(), "nothing new until something changes"
    rig.add(9, adapter=second)
    (waiting,) = page.series()
    assert waiting.value == pytest.approx(running.value + 100.25, abs=1)
    rig.now += 0.5
    rig.abort(sequence)
    (last,) = page.series()
    assert last.value > waiting.value


def test_two_changes_in_one_instant_are_both_seen() -> None:
    rig = Rig(slots=1, inter_token_latency=1.0)
    page = Page(rig)
    first, second = page.load("a", "b")
    rig.add(9, adapter=first)
    assert page.info() == [("a", "")]
    rig.add(9, adapter=second)
    assert page.info() == [("a", "b")]


@FORMS
def test_nothing_is_told_until_it_is_on(form: str) -> None:
    for as_vllm in (False, True):
        page = Page(Rig(), as_vllm)
        page.on = False
        assert not families(page, form)
        page.on = True
        assert page.info(form) == [("", "")]


# --- as vLLM 0.33


def test_vllms_lists_are_alike_and_its_series_stay() -> None:
    rig = Rig(slots=3, max_loras=2, inter_token_latency=1.0)
    page = Page(rig, as_vllm=True)
    assert page.info() == [("", "")]
    b, a, c = page.load("b", "a", "c")
    rig.add(9, adapter=b)
    assert page.info() == [("", "")], "not before the first token"
    rig.go()
    assert page.info() == [("", ""), ("b", "b")]
    rig.add(9, adapter=a)
    rig.add(9, adapter=c)
    rig.go()
    assert page.info() == [("", ""), ("b", "b"), ("b,a", "b,a")]
    rig.drain()
    shown = page.series()
    assert {each.labels["running_lora_adapters"] for each in shown} == {"", "b", "b,a"}
    assert max(shown, key=lambda each: each.value).labels["running_lora_adapters"] == ""
    assert set(families(page)) == {INFO}, "0.33 does not tell what is in memory"


def test_vllms_value_is_now_as_long_as_anything_runs() -> None:
    rig = Rig(inter_token_latency=1.0)
    page = Page(rig, as_vllm=True)
    (first,) = page.series()
    assert page.series() == [first]
    rig.add(9)
    (second,) = page.series()
    assert second.value > first.value


def test_vllms_series_are_bounded() -> None:
    rig = Rig(inter_token_latency=1.0)
    page = Page(rig, as_vllm=True)
    page.text()
    for number in range(MOST_SERIES + 10):
        sequence = rig.add(9, adapter=page.load(f"l{number}")[0])
        rig.go()
        page.text()
        rig.abort(sequence)
    assert len(page.series()) == MOST_SERIES
    assert page.info()[-2:] == [(f"l{MOST_SERIES + 9}", f"l{MOST_SERIES + 9}"), ("", "")]


# --- what is in memory


def count(page: Page, form: str = "text") -> tuple[float, float, float]:
    names = ("num_gpu_loaded_lora_adapters", "num_cpu_loaded_lora_adapters", "max_gpu_lora_adapters")
    gpu, cpu, most = (value(page, f"vllm:{name}", form, **LABELS) for name in names)
    return gpu, cpu, most


@FORMS
def test_r61_adapters_in_memory_are_told_without_any_request(form: str) -> None:
    rig = Rig(max_loras=2, max_cpu_loras=3)
    page = Page(rig)
    assert (count(page, form), page.loaded(form)) == ((0, 0, 2), {})
    for adapter in page.load("alice", "bob", "carol"):
        rig.engine.residency.load(adapter)
    assert page.loaded(form) == {"alice": "cpu", "bob": "gpu", "carol": "gpu"}
    assert count(page, form) == (2, 3, 2)
    rig.add(adapter=page.known.get("alice"))
    rig.drain()
    assert page.loaded(form) == {"alice": "gpu", "bob": "cpu", "carol": "gpu"}
    rig.engine.residency.unload(page.known.unload("bob"))
    assert page.loaded(form) == {"alice": "gpu", "carol": "gpu"}
    assert count(page, form) == (2, 2, 2)


def test_an_adapter_is_in_memory_when_it_is_loaded() -> None:
    rig = Rig(max_loras=2, lora_load_time=3.0, time_to_first_token=9.0)
    page = Page(rig)
    first, second = page.load("a", "b")
    rig.add(adapter=first)
    rig.now += 1.0
    rig.add(adapter=second)
    assert (page.loaded(), count(page)) == ({}, (0, 0, 2))
    rig.now += 2.0
    assert (page.loaded(), count(page)) == ({"a": "gpu"}, (1, 1, 2))
    rig.now += 1.0
    assert page.loaded() == {"a": "gpu", "b": "gpu"}


def test_what_is_unloaded_and_still_runs_is_told_once_beside_its_successor() -> None:
    rig = Rig(max_loras=1, max_cpu_loras=2, time_to_first_token=9.0)
    page = Page(rig)
    (old,) = page.load("a")
    rig.add(adapter=old)
    rig.engine.residency.unload(page.known.unload("a"))
    (new,) = page.load("a")
    rig.engine.residency.load(new)
    assert page.loaded() == {"a": "gpu"}
    assert count(page) == (1, 2, 1)
    rig.drain()
    assert (page.loaded(), count(page)) == ({"a": "cpu"}, (0, 1, 1))
