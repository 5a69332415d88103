"""The opening of a dataset at start: who gets it, and what becomes of a daemon without it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import capturedLogs

from llmdsim.services import dataset as module
from llmdsim.services.dataset import DatasetService
from tests.reply.dataset.files import row, write
from tests.web.rig import RankRig


class Rig:
    """A service for one rank whose threads are none; `failures` is what ended the daemon."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *flags: str) -> None:
        monkeypatch.setattr(module, "deferToThread", maybeDeferred)
        self.web = RankRig(*flags)
        self.rank = self.web.rank
        self.hooks: list[Callable[[], None]] = []
        self.failures: list[str] = []
        reactor: Any = self
        self.service = DatasetService(
            self.rank.config, [self.rank], self.web.clock, reactor, self.failures.append
        )

    def callWhenRunning(self, hook: Callable[[], None]) -> None:
        self.hooks.append(hook)

    def run(self) -> list[str]:
        with capturedLogs() as logged:
            self.service.startService()
            for hook in self.hooks:
                hook()
        return [event["log_format"].format(**event) for event in logged]


def test_a_rank_has_it_once_it_is_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = write(tmp_path / "d", [row("q", "a"), (None, "", 1)])
    rig = Rig(monkeypatch, "--dataset-path", str(path), "--dataset-in-memory")
    assert rig.run() == [f"dataset {path}: 1 rows, in memory", f"dataset {path}: 1 rows cannot be used"]
    assert rig.rank.context.stored is not None
    assert rig.service.opened.called
    assert rig.failures == []


@pytest.mark.parametrize("flags", [(), ("--mm-encoder-only", "--dataset-path", "/none")])
def test_who_needs_none_waits_for_none(monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]) -> None:
    rig = Rig(monkeypatch, *flags)
    assert rig.run() == []
    assert rig.service.opened.called
    assert rig.rank.context.stored is None


def test_one_that_is_in_use_is_done_without(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = write(tmp_path / "d", [row("q", "a")])
    rig = Rig(monkeypatch, "--dataset-path", str(path))
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        (line,) = rig.run()
    assert "in use by another process" in line
    assert rig.service.opened.called
    assert (rig.rank.context.stored, rig.failures) == (None, [])


def test_one_that_is_none_ends_the_daemon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "d"
    path.write_bytes(b"nothing of the kind" * 100)
    rig = Rig(monkeypatch, "--dataset-path", str(path))
    rig.run()
    assert rig.failures == [f"--dataset-path {path}: file is not a database"]
    assert not rig.service.opened.called


def test_a_daemon_that_ends_meanwhile_does_not_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = write(tmp_path / "d", [row("q", "a")])
    rig = Rig(monkeypatch, "--dataset-path", str(path))
    never: Deferred[Any] = Deferred()
    monkeypatch.setattr(module, "deferToThread", lambda *_: never)
    rig.run()
    ended = rig.service.stopService()
    assert ended is not None
    assert ended.called
    assert rig.failures == []
