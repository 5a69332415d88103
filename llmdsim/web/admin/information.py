"""What the server tells of itself: `/server_info`, `/kv_event_sources` and `/query`."""

from __future__ import annotations

import os
import platform
import sys
from typing import Literal

import msgspec
from klein import Klein

from llmdsim.config import shown
from llmdsim.web.context import VLLM_VERSION, Context
from llmdsim.web.query import read_query
from llmdsim.wire.request import Request

json = msgspec.json.encode


class InfoQuery(msgspec.Struct):
    """What `/server_info` takes."""

    config_format: Literal["text", "json"] = "text"


class Information:
    """Routes of one rank."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def mount(self, app: Klein) -> None:
        """Add the routes."""
        for path, handler in (
            ("/server_info", self.server_info),
            ("/kv_event_sources", self.kv_event_sources),
            ("/query", self.query),
        ):
            app.route(path, methods=["GET"], endpoint=path)(handler)

    def server_info(self, request: Request) -> None:
        """The configuration, secrets masked, and where this runs."""
        query = read_query(InfoQuery, request)
        config = shown(self._context.config)
        text = ", ".join(f"{name}={value!r}" for name, value in config.items())
        body = {
            "vllm_config": config if query.config_format == "json" else text,
            "vllm_env": _vllm_environment(),
            "system_env": {
                "os": platform.platform(),
                "python_version": sys.version,
                "cpu_info": platform.machine(),
                "vllm_version": VLLM_VERSION,
            },
        }
        request.respond(200, json(body))

    def kv_event_sources(self, request: Request) -> None:
        """Where events of the KV cache are published, by rank."""
        request.respond(200, json(self._context.kv_event_sources))

    def query(self, request: Request) -> None:
        """Engines' ids by rank, as Mooncake's bootstrap server tells them."""
        ids = self._context.connector.engine_ids
        request.respond(200, json({str(rank): {"engine_id": engine_id} for rank, engine_id in ids.items()}))


def _vllm_environment() -> dict[str, str]:
    """Variables of vLLM's, but for keys (vLLM leaves the same ones out)."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith("VLLM_") and "KEY" not in name
    }
