"""`/admin/config` and `/fake_metrics`: the configuration, and changing it at run time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from klein import Klein
from twisted.logger import Logger

from llmdsim.config import ConfigError, shown, updated
from llmdsim.web.admin.bodies import read_object
from llmdsim.web.context import Context
from llmdsim.web.errors import ApiError
from llmdsim.wire.request import Request

log = Logger()

json = msgspec.json.encode


class Configuration:
    """Routes of one rank."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def mount(self, app: Klein) -> None:
        """Add the routes."""
        app.route("/admin/config", methods=["GET"], endpoint="get_config")(self.get)
        app.route("/admin/config", methods=["POST"], endpoint="post_config")(self.post)
        app.route("/fake_metrics", methods=["POST"], endpoint="fake_metrics")(self.patch_metrics)

    def get(self, request: Request) -> None:
        """The effective configuration, secrets masked."""
        request.respond(200, json(shown(self._context.config)))

    def post(self, request: Request) -> None:
        """Change all of the options that the body names, or none; answer as `get`."""
        # null changes nothing (llm-d-inference-sim).
        self._change({} if request.body.strip() == b"null" else read_object(request))
        self.get(request)

    def patch_metrics(self, request: Request) -> None:
        """Change members of one option, as llm-d-inference-sim did once."""
        self._change({"fake-metrics": read_object(request)})
        request.respond_empty(204)

    def _change(self, changes: Mapping[str, Any]) -> None:
        context = self._context
        try:
            config = updated(context.config, changes)
        except ConfigError as error:
            raise ApiError(400, str(error)) from None
        context.reconfigure(config)
        log.info("configuration changed: {names}", names=sorted(changes))
