"""One fault of the publisher of KV events as people write it: `delay; for=200ms`."""

from dataclasses import dataclass
from typing import Final

from llmdsim.config.fault_text import duration, integer, split_fault

_PARAMETERS: Final = {
    "drop": (),
    "delay": ("for",),
    "duplicate": (),
    "gap": ("skip",),
    "restart": (),
}
EVENT_FAULTS: Final = tuple(_PARAMETERS)
"""All kinds; docs/kv-events.md says what each does."""


@dataclass(frozen=True, slots=True)
class EventFault:
    """What goes wrong with a batch, in the way of its `kind`, one of EVENT_FAULTS.

    `seconds` is how long it waits, `skip` how many numbers are left out. With `times`, only so many batches
    meet it.
    """

    kind: str
    seconds: float
    skip: int
    times: int | None


def parse_event_fault(text: str) -> EventFault:
    """The fault that `text` describes. Raises ValueError with a sentence that says what is wrong."""
    kind, given = split_fault(text, _PARAMETERS, ("times",))
    return EventFault(
        kind=kind,
        seconds=duration(given.get("for", "1s")),
        skip=integer("skip", given.get("skip", "1"), 1, 1_000_000),
        times=integer("times", given["times"], 1, 1_000_000) if "times" in given else None,
    )
