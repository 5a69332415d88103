"""Bodies of requests to operate the server: small JSON objects."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from llmdsim.web import coercion, decoding
from llmdsim.web.context import content_type
from llmdsim.web.errors import ApiError
from llmdsim.web.turns import LONG_BODY
from llmdsim.wire.request import Request

S = TypeVar("S", bound=msgspec.Struct)


def read_object(request: Request) -> dict[str, Any]:
    """The JSON object that is the body. Raises ApiError: 413 for more than `LONG_BODY` bytes, else 400."""
    if len(request.body) > LONG_BODY:
        raise ApiError(413, f"A request to operate the server has at most {LONG_BODY} bytes of body.")
    decoding.refuse_media_type(content_type(request))
    return decoding.parse(request.body)


def read_body(struct: type[S], request: Request) -> S:
    """The struct that the body describes, read leniently; other members are ignored. Raises as above."""
    return coercion.read_whole(struct, read_object(request), {})
