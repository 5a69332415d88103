"""How one fault of the publisher is written."""

from __future__ import annotations

import pytest

from llmdsim.config import ConfigError, parse
from llmdsim.config.event_fault import EVENT_FAULTS, EventFault, parse_event_fault


def test_everything_a_fault_may_say() -> None:
    assert parse_event_fault(" Delay ; for= 250ms; times=2") == EventFault("delay", 0.25, 1, 2)
    assert parse_event_fault("gap;skip=7").skip == 7


@pytest.mark.parametrize("kind", EVENT_FAULTS)
def test_every_kind_needs_nothing_but_its_name(kind: str) -> None:
    assert parse_event_fault(kind) == EventFault(kind, 1.0, 1, None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("lose", "'lose' is not a kind of fault; there are drop, delay, duplicate, gap, restart"),
        ("drop; for=1s", "'for=1s' is not one of times=, which drop may have"),
        ("gap; skip=0", "skip=0 is not an integer from 1 to 1000000"),
        ("delay; for=2h", "for=2h is not a duration of at most 1h0m0s"),
    ],
)
def test_what_is_wrong_is_said(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^--kv-event-faults: {problem}"):
        parse(["--model", "m", "--kv-event-faults", text], {})
