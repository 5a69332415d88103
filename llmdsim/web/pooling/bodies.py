"""How the bodies of pooling requests are read: exactly where they fit, else leniently, as pydantic does."""

from __future__ import annotations

from collections.abc import Generator
from typing import Generic, TypeVar

import msgspec

from llmdsim.web import coercion, decoding
from llmdsim.web.context import content_type
from llmdsim.web.pooling.request import PoolingRequest
from llmdsim.web.turns import LONG_BODY
from llmdsim.wire.request import Request

R = TypeVar("R", bound=PoolingRequest)


class BodyReader(Generic[R]):
    """Reads the bodies of one route into its struct."""

    def __init__(self, struct: type[R]) -> None:
        self._struct = struct
        self._decoder = msgspec.json.Decoder(struct)

    def read(self, request: Request) -> Generator[None, None, R]:
        """The request in a body, in steps where it is long. Raises ApiError 400, whatever the bytes."""
        body = request.body
        decoding.refuse_media_type(content_type(request))
        found = decoding.exact(self._decoder, body)
        if len(body) > LONG_BODY:
            yield
        if found is None or not found.exact() or decoding.bad_utf8(body):
            data = decoding.parse(body)
            self._struct.apply_raw_rules(data)
            found = coercion.read_whole(self._struct, data, self._struct.special)
        else:
            decoding.refuse_too_deep(body, found)
        if len(body) > LONG_BODY:
            yield
        found.settle()
        return found
