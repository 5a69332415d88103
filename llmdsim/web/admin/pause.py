"""`/pause`, `/resume` and `/is_paused`."""

from __future__ import annotations

import msgspec
from klein import Klein
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from llmdsim.web.admin.sleep import respond_when
from llmdsim.web.context import Context
from llmdsim.web.query import read_query
from llmdsim.web.suspension import Mode
from llmdsim.wire.request import Request

log = Logger()

json = msgspec.json.encode


class PauseQuery(msgspec.Struct):
    """What `/pause` takes."""

    mode: Mode = "abort"
    clear_cache: bool = True


class Pause:
    """Routes of one rank."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def mount(self, app: Klein) -> None:
        """Add the routes."""
        app.route("/pause", methods=["POST"], endpoint="pause")(self.pause)
        app.route("/resume", methods=["POST"], endpoint="resume")(self.resume)
        app.route("/is_paused", methods=["GET"], endpoint="is_paused")(self.is_paused)

    def pause(self, request: Request) -> Deferred[None] | None:
        """Stop generating."""
        query = read_query(PauseQuery, request)
        log.info("pausing, mode {mode}", mode=query.mode)
        done = self._context.suspension.pause(query.mode, query.clear_cache)
        return respond_when(done, request, b'{"status":"paused"}')

    def resume(self, request: Request) -> None:
        """Go on."""
        log.info("resuming")
        self._context.suspension.resume()
        request.respond(200, b'{"status":"resumed"}')

    def is_paused(self, request: Request) -> None:
        """Whether the engine is paused."""
        self._context.suspension.require_life()
        request.respond(200, json({"is_paused": self._context.suspension.paused}))
