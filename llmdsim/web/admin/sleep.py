"""`/sleep`, `/wake_up` and `/is_sleeping`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from klein import Klein
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from llmdsim.web.context import Context
from llmdsim.web.errors import shown
from llmdsim.web.query import parameters, read_query
from llmdsim.web.suspension import Mode
from llmdsim.wire.request import Request

log = Logger()

json = msgspec.json.encode


class SleepQuery(msgspec.Struct):
    """What `/sleep` takes."""

    level: Annotated[int, msgspec.Meta(ge=0, le=2)] = 1
    mode: Mode = "abort"


class Sleep:
    """Routes of one rank."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def mount(self, app: Klein) -> None:
        """Add the routes."""
        app.route("/sleep", methods=["POST"], endpoint="sleep")(self.sleep)
        app.route("/wake_up", methods=["POST"], endpoint="wake_up")(self.wake_up)
        app.route("/is_sleeping", methods=["GET"], endpoint="is_sleeping")(self.is_sleeping)

    def sleep(self, request: Request) -> Deferred[None] | None:
        """Put the engine to sleep, if that is enabled; otherwise say that it is awake."""
        query = read_query(SleepQuery, request)
        config = self._context.config
        if not (config.enable_sleep_mode and config.vllm_server_dev_mode):
            log.warn("POST /sleep has no effect without --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1")
            request.respond(200, json({"status": "awake", "level": query.level}))
            return None
        log.info("falling asleep: level {depth}, mode {mode}", depth=query.level, mode=query.mode)
        body = json({"status": "sleeping", "level": query.level})
        return respond_when(self._context.suspension.sleep(query.level, query.mode), request, body)

    def wake_up(self, request: Request) -> None:
        """Wake what the tags name, or everything."""
        tags = parameters(request).get("tags")
        awake = self._context.suspension.wake_up(tags or ())
        log.info("woken: {tags}; fully awake: {awake}", tags=shown(tags or "all"), awake=awake)
        request.respond(200, json({"status": "awake" if awake else "sleeping", "tags": tags}))

    def is_sleeping(self, request: Request) -> None:
        """Whether the engine sleeps."""
        self._context.suspension.require_life()
        request.respond(200, json({"is_sleeping": self._context.suspension.sleeping}))


def respond_when(done: Deferred[None] | None, request: Request, body: bytes) -> Deferred[None] | None:
    """Answer 200 when `done` fires, or now."""
    if done is None:
        request.respond(200, body)
        return None
    return done.addCallback(lambda _: request.respond(200, body))
