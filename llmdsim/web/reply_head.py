"""What identifies a reply: its id, and what every frame or body of it begins with."""

from __future__ import annotations

import time
from typing import Final

import msgspec

from llmdsim.web.context import Context, Served
from llmdsim.web.errors import ApiError
from llmdsim.web.ids import hex_digits
from llmdsim.wire.request import Request

#: The header that names a request.
REQUEST_ID: Final = b"x-request-id"

#: Characters of a request id: it is in every frame of a stream.
LONGEST_ID = 1024


class ReplyHead(msgspec.Struct, frozen=True):
    """`created` is in Unix seconds; `fingerprint` is JSON."""

    id: str
    created: int
    served: Served
    fingerprint: bytes

    @property
    def model(self) -> bytes:
        """The name of the model, as JSON."""
        return self.served.json


def reply_head(context: Context, request: Request, served: Served, prefix: str, body_id: str) -> ReplyHead:
    """The head of the reply of `served` to a request whose body names `body_id`, or "".

    Behind `prefix` the id is the caller's, from the header before the body, or 16 random hex digits (vLLM).
    Raises ApiError 400 for one that is too long.
    """
    if not request.plain and (given := request.headers.get(REQUEST_ID)):
        body_id = given.decode("latin-1")
    if not body_id:
        body_id = hex_digits()
    elif len(body_id) > LONGEST_ID:
        raise ApiError.parameter(f"A request id is at most {LONGEST_ID} characters long.", "request_id")
    return ReplyHead(prefix + body_id, int(time.time()), served, context.fingerprint_json)


def request_id_header(request: Request) -> bytes:
    """`X-Request-Id` as a header line: the caller's, or 32 random hex digits (vLLM)."""
    request_id = request.headers.get(REQUEST_ID) or hex_digits(32).encode()
    return b"x-request-id: %b\r\n" % request_id
