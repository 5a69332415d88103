"""klog's levels, their exceptions by module, and what Twisted says in passing."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.logger import LogLevel
from twisted.logger._legacy import publishToNewObserver
from twisted.python.log import textFromEventDict

from llmdsim.logs.verbosity import Verbosity
from tests.logs.rig import Log, of


def everything(log: Log, namespace: str = "llmdsim.services.drain") -> list[str]:
    logger = log.logger(namespace)
    logger.debug("trace", v=5)
    logger.debug("debug")
    logger.info("info")
    logger.warn("warn")
    logger.error("error")
    logger.critical("critical")
    return of(namespace.removeprefix("llmdsim.services."), log.lines)


@pytest.mark.parametrize(("v", "told"), [(0, 2), (1, 3), (2, 4), (3, 4), (4, 5), (5, 6), (9, 6)], ids=str)
def test_levels(v: int, told: int) -> None:
    assert everything(Log(v)) == ["trace", "debug", "info", "warn", "error", "critical"][6 - told :]


@pytest.mark.parametrize(
    ("vmodule", "told"),
    [
        ("drain=5", 6),
        ("dr*=0", 2),
        ("services.drain=4", 5),
        ("services/drain=4", 5),
        ("services.*=1", 3),
        ("llmdsim.*.*=1", 3),
        ("web.drain=0", 4),
        ("rain=0", 4),
        ("rank=0,drain=4,*=0", 5),
        ("Drain=0", 4),
    ],
)
def test_a_pattern_takes_the_place_of_the_level(vmodule: str, told: int) -> None:
    assert len(everything(Log(2, vmodule))) == told


@pytest.mark.parametrize("namespace", ["twisted.internet.tcp.Port", "twisted.application.app"])
def test_what_twisted_says_in_passing_is_debug(namespace: str) -> None:
    assert everything(Log(2), namespace) == ["warn", "error", "critical"]
    log = Log(4)
    assert "info" in everything(log, namespace)
    (line,) = [line for line in log.lines if line.endswith("info")]
    assert " DEBUG " in line


def legacy_event(log: Log, **event: Any) -> None:
    publishToNewObserver(log.observer, {"time": 0.0, "isError": 0, "message": (), **event}, textFromEventDict)


def test_old_events_of_twisted_are_debug_unless_they_are_errors() -> None:
    log = Log(2)
    legacy_event(log, message=("Starting factory",))
    assert log.lines == []
    legacy_event(log, message=("it broke",), isError=1)
    assert of("twisted", log.lines) == ["it broke"]
    log = Log(4)
    legacy_event(log, message=("Starting factory",))
    assert of("twisted", log.lines) == ["Starting factory"]


def test_an_event_without_a_level_counts_as_info() -> None:
    assert Verbosity(2).tells({})
    assert not Verbosity(1).tells({})
    assert Verbosity(0).tells({"log_level": LogLevel.critical})
