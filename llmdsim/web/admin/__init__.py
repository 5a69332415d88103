"""The routes that operate the server rather than use it, one module a family."""

from __future__ import annotations

from klein import Klein

from llmdsim.web.admin import aborting, caches, configuration, crash, information, kv, pause, sleep, workers
from llmdsim.web.context import Context


class Admin:
    """All these routes of one rank."""

    def __init__(self, context: Context) -> None:
        self._families = (
            sleep.Sleep(context),
            pause.Pause(context),
            aborting.Aborting(context),
            caches.Caches(context),
            information.Information(context),
            workers.Workers(context),
            configuration.Configuration(context),
            crash.Crash(context),
            kv.Kv(context),
        )

    def mount(self, app: Klein) -> None:
        """Add the routes."""
        for family in self._families:
            family.mount(app)
