"""Signals: SIGTERM and SIGINT ask for an end, SIGHUP for the configuration to be read again."""

from __future__ import annotations

import atexit
import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

from twisted.application.service import Service

#: Signals that ask for an end.
STOPPING = (signal.SIGTERM, signal.SIGINT)

#: Signals that mean something else to a daemon, and are its death where nobody has said so.
OTHERS = (signal.SIGHUP, signal.SIGUSR1)


def note_signals() -> list[str]:
    """The names of signals that ask for an end, as they come while the daemon is still being made.

    The others wait until it is known what they mean.
    """
    noted: list[str] = []
    signal.pthread_sigmask(signal.SIG_BLOCK, OTHERS)
    for number in STOPPING:
        signal.signal(number, lambda number, frame: noted.append(signal.Signals(number).name))
    atexit.register(_ignore)
    return noted


def _ignore() -> None:
    """Python resets handlers when it ends; one signal more would then end the process in its own way."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)


class Signals(Service):
    """Has `end` called, with the name of the signal, or `reload`; `noted` came before the reactor ran."""

    def __init__(
        self,
        noted: Sequence[str],
        reactor: Any,
        end: Callable[[str], object],
        reload: Callable[[], object],
    ) -> None:
        self._noted = noted
        self._reactor = reactor
        self._end = end
        self._reload = reload

    def startService(self) -> None:
        super().startService()  # type: ignore[no-untyped-call]
        # Twisted installs its own handlers as the reactor starts; ours must come after.
        self._reactor.callWhenRunning(self._install)

    def _install(self) -> None:
        for number in STOPPING:
            signal.signal(number, self._on_signal)
        # The default of these is death. SIGUSR1 is taken already where there are log files to put aside, and
        # SIGHUP may be ignored already, by nohup.
        if signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
            # To a daemon it says that its configuration has changed; where there was a terminal, it is gone.
            signal.signal(signal.SIGHUP, self._on_signal if os.isatty(0) else self._on_hangup)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, OTHERS)
        for name in self._noted:
            self._end(name)

    def _on_signal(self, number: int, frame: object) -> None:
        self._reactor.callFromThread(self._end, signal.Signals(number).name)

    def _on_hangup(self, number: int, frame: object) -> None:
        self._reactor.callFromThread(self._reload)
