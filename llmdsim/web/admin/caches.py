"""`/reset_prefix_cache` and the other caches that can be reset."""

from __future__ import annotations

import msgspec
from klein import Klein

from llmdsim.web.context import Context
from llmdsim.web.query import read_query
from llmdsim.wire.request import Request

json = msgspec.json.encode


class ResetQuery(msgspec.Struct):
    """What `/reset_prefix_cache` takes.

    `reset_external` makes no difference: copies in CPU memory are forgotten either way.
    """

    reset_running_requests: bool = False
    reset_external: bool = False


class Caches:
    """Routes of one rank."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def mount(self, app: Klein) -> None:
        """Add the routes."""
        app.route("/reset_prefix_cache", methods=["POST"], endpoint="reset_prefix_cache")(self.prefix)
        # There is nothing in these to forget.
        app.route("/reset_mm_cache", methods=["POST"], endpoint="reset_mm_cache")(self.other)
        app.route("/reset_encoder_cache", methods=["POST"], endpoint="reset_encoder_cache")(self.other)

    def prefix(self, request: Request) -> None:
        """Forget the blocks of finished requests; those of running ones too, if they may be preempted."""
        asked = read_query(ResetQuery, request)
        self._context.suspension.require_life()
        done = self._context.driver.reset_prefix_cache(asked.reset_running_requests)
        request.respond(200, json({"success": done}))

    def other(self, request: Request) -> None:
        """Forget what was computed of media."""
        request.respond_empty(200)
