"""How a route tells what its request bodies are, for `/openapi.json`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

_Handler = TypeVar("_Handler", bound=Callable[..., Any])

_ATTRIBUTE = "takes"


def takes(body: type[msgspec.Struct]) -> Callable[[_Handler], _Handler]:
    """Mark a route as taking `body` as JSON; it has a field `stream` where the answer may be a stream."""

    def mark(handler: _Handler) -> _Handler:
        setattr(handler, _ATTRIBUTE, body)
        return handler

    return mark


def taken_by(handler: Callable[..., Any]) -> type[msgspec.Struct] | None:
    """What the route was marked with."""
    body: type[msgspec.Struct] | None = getattr(handler, _ATTRIBUTE, None)
    return body
