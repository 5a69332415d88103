"""`vllm.grpc.engine.VllmEngine`: what its methods are."""

from __future__ import annotations

from llmdsim.rpc.call import reply
from llmdsim.rpc.calls import Method
from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.web.context import Context
from llmdsim.wire.request import Request


class EngineService:
    """The service of one rank."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def methods(self) -> dict[str, Method]:
        """By name."""
        return {
            "HealthCheck": Method(pb.HealthCheckRequest, self.health_check),
        }

    def health_check(self, request: Request, asked: pb.HealthCheckRequest) -> None:
        """Whether the engine is alive."""
        dead = self._context.suspension.dead
        message = "Engine is not alive" if dead else "Health"
        reply(request, pb.HealthCheckResponse(healthy=not dead, message=message))
