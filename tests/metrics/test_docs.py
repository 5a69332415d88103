"""docs/metrics.md names every family there is."""

from __future__ import annotations

import re
from pathlib import Path

from llmdsim.config import parse
from llmdsim.engine.stats import Stats
from llmdsim.kvevents.counts import EventCounts
from llmdsim.metrics import (
    Collector,
    HttpRequests,
    kv_event_blocks,
    lora_blocks,
    own_blocks,
    transfer_blocks,
)
from llmdsim.reply.author import Author
from llmdsim.tokenization import BuiltinTokenizer
from tests.engine.rig import Rig
from tests.metrics.pages import collector, families
from tests.metrics.vllm import FAMILIES

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()


def test_every_family_and_label_value_is_documented() -> None:
    rows = "\n".join(line for line in PAGE.splitlines() if line.startswith("| `"))
    words = set(re.findall(r"`([\w:]+)`", rows))
    stats = Stats(16)
    author = Author(parse(["--model", "m"], {}), BuiltinTokenizer())
    others = Collector(
        [
            *own_blocks([("0", stats, author)]),
            *kv_event_blocks("0", EventCounts()),
            *transfer_blocks("m", [("0", stats)], early=True),
            HttpRequests(lambda: 0.0),
            *lora_blocks(Rig().engine, 1, {}, lambda: 0.0, lambda: True, as_vllm=False),
        ]
    )
    shown = {**families(collector(stats)), **families(others)}
    for name, family in shown.items():
        if not name.endswith("_created"):
            bare = name.removeprefix("vllm:") + ("_total" if family.type == "counter" else "")
            assert bare in words
    for known in FAMILIES.values():
        assert {known.label, *known.values} - {""} <= words
