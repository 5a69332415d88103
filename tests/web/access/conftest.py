"""Work for threads is done at once: there is no reactor to wait for one."""

import pytest
from twisted.internet.defer import maybeDeferred


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmdsim.web.access.documentation.deferToThread", maybeDeferred)
