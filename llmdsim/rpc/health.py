"""`grpc.health.v1.Health`: whether the server, or one of its services, is up."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure

from llmdsim.rpc.call import fail, reply, send
from llmdsim.rpc.calls import Method
from llmdsim.rpc.pb import grpc_health_v1_pb2 as pb
from llmdsim.web.context import Context
from llmdsim.web.errors import shown
from llmdsim.wire.grpc import Code, RpcError
from llmdsim.wire.request import Request

#: Seconds from one look at what is watched to the next.
INTERVAL = 0.1

SERVING = pb.HealthCheckResponse.SERVING
NOT_SERVING = pb.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = pb.HealthCheckResponse.SERVICE_UNKNOWN


class Health:
    """The service of one rank; `services` are those there are.

    They serve from the end of the start until shutdown begins, or the engine dies; pauses and sleep make no
    difference (vLLM).
    """

    def __init__(self, context: Context, services: Sequence[str]) -> None:
        self._context = context
        self._names = ("", *services)
        #: What is watched, with what was told last.
        self._watched: dict[Request, tuple[str, pb.HealthCheckResponse.ServingStatus]] = {}
        self._look = LoopingCall(self._look_round)
        self._look.clock = context.turns.clock

    def methods(self) -> dict[str, Method]:
        """By name."""
        method = partial(Method, about_health=True)
        return {
            "Check": method(pb.HealthCheckRequest, self.check),
            "List": method(pb.HealthListRequest, self.list),
            "Watch": method(pb.HealthCheckRequest, self.watch, endless=True),
        }

    @property
    def _status(self) -> pb.HealthCheckResponse.ServingStatus:
        context = self._context
        up = context.ready and not context.draining and not context.suspension.dead
        return SERVING if up else NOT_SERVING

    def check(self, request: Request, asked: Any) -> None:
        """The status of a service now."""
        if asked.service not in self._names:
            raise RpcError(Code.NOT_FOUND, f"there is no service {shown(asked.service)}")
        reply(request, pb.HealthCheckResponse(status=self._status))

    def list(self, request: Request, asked: Any) -> None:
        """The status of all services now."""
        each = pb.HealthCheckResponse(status=self._status)
        reply(request, pb.HealthListResponse(statuses=dict.fromkeys(self._names, each)))

    def watch(self, request: Request, asked: Any) -> None:
        """The status of a service, now and whenever it has changed."""
        known = asked.service in self._names
        status = self._status if known else SERVICE_UNKNOWN
        if known:
            # What is not there will never be.
            self._watched[request] = asked.service, status
            request.on_lost = lambda: self._forget(request)
        send(request, pb.HealthCheckResponse(status=status))
        if self._watched and not self._look.running:
            self._look.start(INTERVAL, now=False).addErrback(self._look_failed)

    def _look_failed(self, failure: Failure) -> None:
        """End all that would be told nothing any more."""
        assert isinstance(failure.value, Exception)
        watched, self._watched = list(self._watched), {}
        for request in watched:
            fail(request, failure.value)

    def _forget(self, request: Request) -> None:
        self._watched.pop(request, None)

    def _look_round(self) -> None:
        status = self._status
        for request, (name, told) in list(self._watched.items()):
            if told != status and not request.channel.write_paused:
                self._watched[request] = name, status
                send(request, pb.HealthCheckResponse(status=status))
        if not self._watched:
            self._look.stop()
