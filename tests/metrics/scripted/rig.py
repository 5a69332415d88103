"""A page of scripted metrics in memory."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.task import Clock

from llmdsim.config import Config, parse, updated
from llmdsim.engine.stats import token_bounds
from llmdsim.metrics import Collector, Scripted
from tests.metrics.pages import FORMATS, families, value

#: Bounds of the histograms of tokens.
TOKENS = token_bounds(100)
MODEL = "org/name"
LORAS = "vllm:lora_requests_info"
REASONS = ("stop", "length", "abort", "error", "repetition")


class Page:
    """The page with `metrics` at the start; `update` goes the way of `/admin/config`."""

    def __init__(self, metrics: dict[str, Any], *flags: str) -> None:
        self.config: Config = parse(
            ["--model", MODEL, "--max-model-len", "100", "--fake-metrics", json.dumps(metrics), *flags], {}
        )
        self.clock = Clock()
        self.scripted = Scripted(self.config, MODEL, "3", self.clock)
        self.scripted.gauges.start()

    def update(self, metrics: object) -> None:
        self.config = updated(self.config, {"fake-metrics": metrics})
        self.scripted.configure(self.config)

    def names(self) -> set[str]:
        """Of the families."""
        both = [set(families(Collector([self.scripted]), form)) for form in FORMATS]
        assert {name for name in both[0] if not name.endswith("_created")} == both[1]
        return both[1]

    def value(self, name: str, **labels: str) -> float:
        return value(self.scripted, name, **labels)

    def total(self, tokens: str = "prompt") -> float | None:
        name = f"vllm:{tokens}_tokens"
        return self.value(f"{name}_total") if name in self.names() else None

    def count(self, tokens: str = "prompt") -> float | None:
        name = f"vllm:request_{tokens}_tokens"
        return self.value(f"{name}_count") if name in self.names() else None
