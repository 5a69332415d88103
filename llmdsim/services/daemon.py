"""The root of the daemon's services, which brings its own log to the application it is run as."""

from __future__ import annotations

import atexit
from typing import Any

from twisted.application.service import MultiService
from twisted.logger import ILogObserver
from twisted.python.components import Componentized

from llmdsim.logs.observer import LogObserver


class Daemon(MultiService):
    """`logs` becomes the log observer of twistd's application, if `installs` says so and it has none yet."""

    def __init__(self, logs: LogObserver, installs: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._logs = logs
        self._installs = installs

    def setServiceParent(self, parent: Any) -> None:
        if (
            self._installs
            and isinstance(parent, Componentized)
            and parent.getComponent(ILogObserver, None) is None  # type: ignore[no-untyped-call]
        ):
            parent.setComponent(ILogObserver, self._logs)  # type: ignore[no-untyped-call]
        super().setServiceParent(parent)  # type: ignore[no-untyped-call]

    def startService(self) -> None:
        # Lines may wait to be written; a fault that ends the process must not take them along.
        atexit.register(self._logs.destination.flush)
        super().startService()  # type: ignore[no-untyped-call]

    def stopService(self) -> Any:
        self._logs.destination.end()
        return super().stopService()  # type: ignore[no-untyped-call]
