"""Signals: which are taken when, and what each begins."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from twisted.logger import capturedLogs

from llmdsim.services.signals import note_signals
from tests.services.drain_rig import DrainRig, masked


def test_both_signals_are_taken_and_nothing_is_done_within_them(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = DrainRig(monkeypatch)
    assert {signal.SIGTERM, signal.SIGINT} <= set(rig.installed)
    rig.installed[signal.SIGTERM](signal.SIGTERM, None)
    # It may have interrupted anything.
    assert (rig.rank.context.draining, rig.reactor.stops) == (False, 0)
    rig.reactor.turn()
    assert (rig.rank.context.draining, rig.reactor.stops) == (True, 1)


def test_what_was_held_back_during_start_up_is_delivered_now(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = DrainRig(monkeypatch)
    assert rig.masked == [(signal.SIG_UNBLOCK, {signal.SIGHUP, signal.SIGUSR1})]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_hangup_is_a_reload_unless_there_was_a_terminal(
    monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setattr(os, "isatty", lambda descriptor: terminal and descriptor == 0)
    rig = DrainRig(monkeypatch)
    rig.installed[signal.SIGHUP](signal.SIGHUP, None)
    # It may have interrupted anything.
    assert (rig.reloads, rig.reactor.stops) == (0, 0)
    rig.kill(signal.SIGHUP)
    assert (rig.reloads, rig.reactor.stops) == ((0, 1) if terminal else (2, 0))


def test_what_others_have_done_about_signals_is_left_so(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {signal.SIGHUP: signal.SIG_IGN, signal.SIGUSR1: lambda number, frame: None}
    assert set(DrainRig(monkeypatch, found=found).installed) == {signal.SIGTERM, signal.SIGINT}


def test_log_rotation_without_a_log_file_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = DrainRig(monkeypatch, found={signal.SIGUSR1: signal.SIG_DFL})
    assert rig.installed[signal.SIGUSR1] is signal.SIG_IGN


def test_signals_are_noted_while_the_daemon_is_being_made(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: dict[int, Any] = {}
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    changes = masked(monkeypatch)
    noted = note_signals()
    # The others are held back, to be delivered when their meaning is known.
    assert changes == [(signal.SIG_BLOCK, {signal.SIGHUP, signal.SIGUSR1})]
    assert set(handlers) == {signal.SIGTERM, signal.SIGINT}
    assert noted == []
    for number, handler in handlers.items():
        handler(number, None)
    assert noted == ["SIGTERM", "SIGINT"]


@pytest.mark.parametrize("noted", [("SIGTERM",), ("SIGINT", "SIGTERM"), ("SIGTERM",) * 3])
def test_a_signal_before_the_reactor_ran_ends_it_once_it_does(
    monkeypatch: pytest.MonkeyPatch, noted: tuple[str, ...]
) -> None:
    with capturedLogs():
        rig = DrainRig(monkeypatch, noted=noted)
    assert rig.reactor.stops == 1
    assert rig.clock.getDelayedCalls() == []
