"""Routes about worker processes and their profiler; there are none, and clients need not know."""

from __future__ import annotations

from typing import Any

import msgspec
from klein import Klein

from llmdsim.web.admin.bodies import read_body
from llmdsim.web.context import Context
from llmdsim.web.errors import ApiError
from llmdsim.web.takes import takes
from llmdsim.wire.request import Request

json = msgspec.json.encode


class RpcRequest(msgspec.Struct):
    """What every worker would be asked to do."""

    method: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    timeout: float | None = None


class ProfileRequest(msgspec.Struct):
    """How one session of the profiler would differ."""

    profile_prefix: str | None = None
    delay_iterations: int | None = None
    max_iterations: int | None = None
    profiler_kwargs: dict[str, Any] | None = None


class Workers:
    """Routes of one rank."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def mount(self, app: Klein) -> None:
        """Add the routes."""
        for path, handler in (
            ("/collective_rpc", self.rpc),
            ("/start_profile", self.start_profile),
            ("/stop_profile", self.stop_profile),
            ("/is_scaling_elastic_ep", self.scaling),
        ):
            app.route(path, methods=["POST"], endpoint=path)(handler)

    @takes(RpcRequest)
    def rpc(self, request: Request) -> None:
        """One worker, which has nothing to say."""
        read_body(RpcRequest, request)
        request.respond(200, b'{"results":[null]}')

    @takes(ProfileRequest)
    def start_profile(self, request: Request) -> None:
        """Begin a session, unless one is under way (409)."""
        if request.body:
            read_body(ProfileRequest, request)
        if self._context.profiling:
            raise ApiError(409, "The profiler runs already; POST /stop_profile ends its session.")
        self._context.profiling = True
        request.respond_empty(200)

    def stop_profile(self, request: Request) -> None:
        """End the session."""
        self._context.profiling = False
        request.respond_empty(200)

    def scaling(self, request: Request) -> None:
        """Never on the way from one number of ranks to another."""
        status = {"phase": "idle", "epoch": None, "error": None, "requested_data_parallel_size": None}
        request.respond(200, json({"is_scaling_elastic_ep": False, **status}))
