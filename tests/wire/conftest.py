"""Stops the date that responses bear."""

from __future__ import annotations

import pytest

from llmdsim.wire import request
from llmdsim.wire.status import status_line
from tests.wire.recorder import DATE


@pytest.fixture(autouse=True)
def _fixed_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "opening", lambda status: status_line(status) + DATE)
