"""Routes about the server itself: models, health, version, load and metrics."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from typing import Any

import msgspec
from klein import Klein
from twisted.internet.defer import Deferred

from llmdsim.engine.adapters import Adapter
from llmdsim.web.context import VLLM_VERSION, Context
from llmdsim.web.errors import unknown_model
from llmdsim.web.turns import Steps
from llmdsim.wire.request import Request

json = msgspec.json.encode

#: Rows of the list of models that are made in half a millisecond.
CARDS_AT_ONCE = 256


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

    def models(self, request: Request) -> Deferred[None] | None:
        """Every served name, then every adapter."""
        return self._context.turns.take(self._models(request))

    def _models(self, request: Request) -> Steps:
        context = self._context
        cards = [json(self._base_card(name)) for name in context.names]
        for place, adapter in enumerate([*context.adapters], start=1):
            if place % CARDS_AT_ONCE == 0:
                yield
            cards.append(json(self._adapter_card(adapter)))
        request.respond(200, b'{"object":"list","data":[%b]}' % b",".join(cards))

    def model(self, request: Request, name: str) -> None:
        """One served name or adapter; names may hold slashes."""
        context = self._context
        if name in context.names:
            request.respond(200, json(self._base_card(name)))
            return
        adapter = context.adapters.get(name)
        if adapter is None:
            raise unknown_model(name, context.names)
        request.respond(200, json(self._adapter_card(adapter)))

    def _base_card(self, name: str) -> dict[str, Any]:
        return _card(name, self._context.config.model, None, self._context.limits.max_model_len)

    def _adapter_card(self, adapter: Adapter) -> dict[str, Any]:
        # vLLM does not tell an adapter's length.
        return _card(adapter.name, adapter.path, adapter.parent, None)

    def health(self, request: Request) -> None:
        """Alive, while starting, pausing and draining too: 503 once the engine is dead (vLLM)."""
        request.respond_empty(503 if self._context.suspension.dead else 200)

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


def _card(name: str, root: str, parent: str | None, max_model_len: int | None) -> dict[str, Any]:
    now = int(time.time())
    return {
        "id": name,
        "object": "model",
        "created": now,
        "owned_by": "vllm",
        "root": root,
        "parent": parent,
        "max_model_len": max_model_len,
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
