"""The methods of all services, by path; loads what they are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from llmdsim.kvevents.feed import Feed
from llmdsim.rpc.calls import Method
from llmdsim.rpc.engine_service import EngineService
from llmdsim.rpc.health import Health
from llmdsim.rpc.reflection import VERSIONS, Reflection
from llmdsim.web.context import Context

ENGINE, HEALTH = "vllm.grpc.engine.VllmEngine", "grpc.health.v1.Health"


class Service(Protocol):
    """What has methods."""

    def methods(self) -> Mapping[str, Method]:
        """By name."""


def methods(context: Context, feed: Feed) -> dict[bytes, Method]:
    """Every method of one rank."""
    names = (ENGINE, HEALTH, *VERSIONS)
    services: dict[str, Service] = {ENGINE: EngineService(context, feed), HEALTH: Health(context, names)}
    services |= {name: Reflection(pb, names) for name, pb in VERSIONS.items()}
    return {
        f"/{name}/{method_name}".encode(): method
        for name, service in services.items()
        for method_name, method in service.methods().items()
    }
