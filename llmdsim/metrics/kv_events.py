"""What became of the events of the KV cache, as families of our own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Protocol

from llmdsim.metrics.block import Block, FamilyBlock


class Counts(Protocol):
    """What is shown of one rank."""

    batches: int
    events: int
    overflows: int
    replays: int
    refused_replays: int

    @property
    def faults(self) -> Mapping[str, int]:
        """Batches by the kind of fault they met."""


_FAMILIES = (
    ("llmdsim:kv_event_batches", "batches", "Batches of KV events, each with a number of its own."),
    ("llmdsim:kv_events", "events", "KV events in these batches."),
    (
        "llmdsim:kv_event_subscriber_overflows",
        "overflows",
        "Batches that found the queue of a subscriber full, who misses more until half is read.",
    ),
    ("llmdsim:kv_event_replays", "replays", "Requests for replay that were answered to the end."),
    (
        "llmdsim:kv_event_replays_refused",
        "refused_replays",
        "Requests for replay that were not answered to the end: too many, not read, or the client left.",
    ),
)


def kv_event_blocks(engine: str, counts: Counts) -> list[Block]:
    """The families of the rank that `engine` is the label of."""
    blocks = []
    for name, field, help_text in _FAMILIES:
        block = FamilyBlock(name, "counter", help_text)
        block.add_number({"engine": engine}, partial(getattr, counts, field))
        blocks.append(block)
    faults = FamilyBlock(
        "llmdsim:kv_event_faults_injected", "counter", "Batches of KV events that met a fault, by its kind."
    )
    for kind in counts.faults:
        faults.add_number({"engine": engine, "kind": kind}, partial(counts.faults.__getitem__, kind))
    return [*blocks, faults]
