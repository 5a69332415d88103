"""What became of the events of one rank, in numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

from llmdsim.config.event_fault import EVENT_FAULTS


@dataclass(slots=True)
class EventCounts:
    """From the start on, whatever a fault may have begun anew.

    `overflows` counts batches that found the queue of a subscriber full; `replays` requests for replay that
    were answered to the end, and `refused_replays` those that were not.
    """

    batches: int = 0
    events: int = 0
    overflows: int = 0
    replays: int = 0
    refused_replays: int = 0
    #: Batches that met each kind of fault.
    faults: dict[str, int] = field(default_factory=lambda: dict.fromkeys(EVENT_FAULTS, 0))
