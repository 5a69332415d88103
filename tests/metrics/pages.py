"""Pages of the collector, read back by prometheus_client's own parsers."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text
from prometheus_client.samples import Sample

from llmdsim.engine.stats import Stats
from llmdsim.metrics import Block, Collector, engine_blocks

FORMATS = ("text", "openmetrics")


def collector(stats: Stats, model: str = "m", **cache_config: str) -> Collector:
    """The engine's families of one rank."""
    return Collector(engine_blocks(model, [("0", stats)], cache_config))


def families(page: Collector, form: str = "text") -> dict[str, Metric]:
    """Families by name, counters without `_total`; `_created` lines wherever their format has them."""
    read = read_text if form == "text" else read_openmetrics
    body = page.text() if form == "text" else page.openmetrics()
    found: dict[str, Metric] = {}
    for family in read(body.decode()):
        assert family.name not in found, "a family is written twice"
        found[family.name] = family
    return found


def samples(page: Collector | Block, form: str = "text") -> Iterator[Sample]:
    """Every sample but the `_created` ones."""
    for family in families(page if isinstance(page, Collector) else Collector([page]), form).values():
        yield from (each for each in family.samples if not each.name.endswith("_created"))


def value(page: Collector | Block, sample: str, form: str = "text", **labels: str) -> float:
    """The one sample of that name whose labels include `labels`."""
    (found,) = [
        each.value
        for each in samples(page, form)
        if each.name == sample and labels.items() <= each.labels.items()
    ]
    return float(found)
