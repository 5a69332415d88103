"""`StartProfile` and `StopProfile`: there is a session of the profiler or there is none, as over HTTP."""

from __future__ import annotations

from llmdsim.rpc.call import reply
from llmdsim.rpc.pb import common_pb2 as pb
from llmdsim.web.context import Context
from llmdsim.wire.grpc import Code, RpcError
from llmdsim.wire.request import Request


class Profile:
    """The methods of one rank."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def start(self, request: Request, asked: pb.StartProfileRequest) -> None:
        """Begin a session; what would be said of how is for the server's start (SMG's servicer)."""
        given = ", ".join(field.name for field, _ in asked.ListFields())
        if given:
            message = f"How to profile is decided as the server starts, and not by a call: {given}"
            raise RpcError(Code.INVALID_ARGUMENT, message)
        if self._context.profiling:
            raise RpcError(Code.INTERNAL, "The profiler runs already; StopProfile ends its session")
        self._context.profiling = True
        reply(request, pb.ProfileResponse(success=True, message="The profiler runs"))

    def stop(self, request: Request, asked: pb.StopProfileRequest) -> None:
        """End the session, if there is one."""
        self._context.profiling = False
        reply(request, pb.ProfileResponse(success=True, message="The profiler has stopped"))
