"""The root service: whose log observer it brings along, and what waits when it ends."""

from __future__ import annotations

import pytest
from twisted.application.service import Application, MultiService
from twisted.logger import ILogObserver
from zope.interface.verify import verifyObject

from llmdsim.services.daemon import Daemon
from tests.logs.rig import Log


def test_it_is_the_log_of_the_application_it_is_given_to() -> None:
    log = Log()
    application = Application("llmdsim")
    Daemon(log.observer, installs=True).setServiceParent(application)
    assert application.getComponent(ILogObserver) is log.observer
    verifyObject(ILogObserver, log.observer)


def test_a_log_that_is_there_stays() -> None:
    log, theirs = Log(), Log()
    application = Application("llmdsim")
    application.setComponent(ILogObserver, theirs.observer)
    Daemon(log.observer, installs=True).setServiceParent(application)
    assert application.getComponent(ILogObserver) is theirs.observer


def test_twistds_own_logger_is_left_alone() -> None:
    application = Application("llmdsim")
    Daemon(Log().observer, installs=False).setServiceParent(application)
    assert application.getComponent(ILogObserver, None) is None


def test_another_service_may_be_its_parent() -> None:
    parent = MultiService()
    daemon = Daemon(Log().observer, installs=True)
    daemon.setServiceParent(parent)
    assert list(parent) == [daemon]


def test_lines_that_wait_are_written_as_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[object] = []
    monkeypatch.setattr("atexit.register", kept.append)
    log = Log()
    daemon = Daemon(log.observer, installs=True)
    daemon.startService()
    log.destination.waiting.append(lambda: "a\n")
    daemon.stopService()
    assert log.text == "a\n"
    assert kept == [log.destination.flush], "and at any other end"
