"""Stops the date that responses bear."""

from __future__ import annotations

import pytest

from llmdsim.wire import request
from tests.wire.recorder import DATE


@pytest.fixture(autouse=True)
def _fixed_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "date_line", lambda: DATE)
