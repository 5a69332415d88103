"""A running clock, and the events that are logged, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from twisted.logger import LogEvent, capturedLogs

from tests.services.clock_rig import ClockRig


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[ClockRig]:
    rig = ClockRig(monkeypatch)
    rig.clock.start()
    yield rig
    rig.close()


@pytest.fixture
def logged() -> Iterator[list[LogEvent]]:
    with capturedLogs() as events:
        yield events
