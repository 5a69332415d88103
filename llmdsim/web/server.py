"""Routes about the server itself: models, health, version, load and metrics."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from typing import Any

import msgspec
from klein import Klein

from llmdsim.web.context import VLLM_VERSION, Context
from llmdsim.web.errors import unknown_model
from llmdsim.wire.request import Request

json = msgspec.json.encode


class Server:
    """Routes of one rank; `metrics` gives the exposition for an Accept header, and its content type."""

    def __init__(self, context: Context, metrics: Callable[[bytes | None], tuple[bytes, bytes]]) -> None:
        self._context = context
        self._metrics = metrics

    def mount(self, app: Klein) -> None:
        """Add the routes."""
        for path, methods, handler in (
            ("/v1/models", ["GET"], self.models),
            ("/v1/models/<path:name>", ["GET"], self.model),
            ("/health", ["GET"], self.health),
            ("/health/ready", ["GET"], self.ready),
            ("/ready", ["GET"], self.ready),
            ("/ping", ["GET", "POST"], self.health),
            ("/version", ["GET"], self.version),
            ("/load", ["GET"], self.load),
            ("/metrics", ["GET"], self.metrics),
            ("/metrics/", ["GET"], self.metrics),
        ):
            app.route(path, methods=methods, endpoint=path)(handler)

    def models(self, request: Request) -> None:
        """Every served name."""
        context = self._context
        cards = [self._card(name) for name in context.names]
        request.respond(200, json({"object": "list", "data": cards}))

    def model(self, request: Request, name: str) -> None:
        """One served name; names may hold slashes."""
        context = self._context
        if name not in context.names:
            raise unknown_model(name, context.names)
        request.respond(200, json(self._card(name)))

    def _card(self, name: str) -> dict[str, Any]:
        context = self._context
        now = int(time.time())
        return {
            "id": name,
            "object": "model",
            "created": now,
            "owned_by": "vllm",
            "root": context.config.model,
            "parent": None,
            "max_model_len": context.limits.max_model_len,
            "permission": [
                {
                    "id": f"modelperm-{zlib.crc32(name.encode()):08x}{now & 0xFFFFFFFF:08x}",
                    "object": "model_permission",
                    "created": now,
                    "allow_create_engine": False,
                    "allow_sampling": True,
                    "allow_logprobs": True,
                    "allow_search_indices": False,
                    "allow_view": True,
                    "allow_fine_tuning": False,
                    "organization": "*",
                    "group": None,
                    "is_blocking": False,
                }
            ],
        }

    def health(self, request: Request) -> None:
        """Alive."""
        request.respond_empty(200)

    def ready(self, request: Request) -> None:
        """Whether new requests are welcome: 503 before start-up is complete, and while they are refused."""
        request.respond_empty(200 if self._context.welcoming else 503)

    def version(self, request: Request) -> None:
        """The vLLM version simulated."""
        request.respond(200, json({"version": VLLM_VERSION}))

    def load(self, request: Request) -> None:
        """Requests being served."""
        stats = self._context.stats
        request.respond(200, json({"server_load": stats.running + stats.waiting}))

    def metrics(self, request: Request) -> None:
        """The Prometheus exposition."""
        request.respond(200, *self._metrics(request.headers.get(b"accept")))
