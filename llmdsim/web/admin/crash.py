"""`/admin/crash`: the death of the engine, on purpose."""

from __future__ import annotations

import msgspec
from klein import Klein
from twisted.logger import Logger

from llmdsim.web.admin.bodies import read_body
from llmdsim.web.admin.development import require_development
from llmdsim.web.context import Context
from llmdsim.web.errors import shown
from llmdsim.web.takes import takes
from llmdsim.wire.request import Request

log = Logger()


class CrashRequest(msgspec.Struct):
    """What the log gives as the reason."""

    message: str = "POST /admin/crash"


class Crash:
    """Routes of one rank."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def mount(self, app: Klein) -> None:
        """Add the routes."""
        app.route("/admin/crash", methods=["POST"], endpoint="crash")(self.crash)

    @takes(CrashRequest)
    def crash(self, request: Request) -> None:
        """Have the engine die as by a fault of its own; 403 outside development mode."""
        body = read_body(CrashRequest, request) if request.body else CrashRequest()
        require_development(self._context.config, "Crashing the engine")
        suspension = self._context.suspension
        suspension.require_life()
        log.critical("the engine died: {reason}", reason=shown(body.message))
        suspension.die()
        request.respond(200, b'{"status":"crashed"}')
