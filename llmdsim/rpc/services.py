"""The methods of all services, by path; loads what they are made of."""

from __future__ import annotations

from llmdsim.rpc.calls import Method
from llmdsim.rpc.engine_service import EngineService
from llmdsim.web.context import Context


def methods(context: Context) -> dict[bytes, Method]:
    """Every method of one rank."""
    found: dict[bytes, Method] = {}
    for service, name in ((EngineService(context), "vllm.grpc.engine.VllmEngine"),):
        for method_name, method in service.methods().items():
            found[f"/{name}/{method_name}".encode()] = method
    return found
