"""How a route tells what its request bodies are, for `/openapi.json`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

_Handler = TypeVar("_Handler", bound=Callable[..., Any])

Bodies = tuple[type[msgspec.Struct], ...]

_ATTRIBUTE = "takes"


def takes(*bodies: type[msgspec.Struct]) -> Callable[[_Handler], _Handler]:
    """Mark a route as taking one of `bodies` as JSON.

    They have a field `stream` where the answer may be a stream.
    """

    def mark(handler: _Handler) -> _Handler:
        setattr(handler, _ATTRIBUTE, bodies)
        return handler

    return mark


def taken_by(handler: Callable[..., Any]) -> Bodies:
    """What the route was marked with; nothing where it was not."""
    bodies: Bodies = getattr(handler, _ATTRIBUTE, ())
    return bodies
