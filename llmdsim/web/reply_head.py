"""What identifies a reply: its id, and what every frame or body of it begins with."""

from __future__ import annotations

import os
import time
from random import Random

import msgspec

from llmdsim.web.context import Context
from llmdsim.web.errors import ApiError
from llmdsim.wire.request import Request

#: Characters of a request id: it is in every frame of a stream.
LONGEST_ID = 1024

# Ids must not repeat, whatever seed replies are made from and however often the process forks.
_random = Random()
os.register_at_fork(after_in_child=_random.seed)


class ReplyHead(msgspec.Struct, frozen=True):
    """`id` has no prefix yet; `created` is in Unix seconds; `model` and `fingerprint` are JSON."""

    id: str
    created: int
    model: bytes
    fingerprint: bytes


def reply_head(context: Context, request: Request, body_id: str) -> ReplyHead:
    """The head of the reply to a request whose body names `body_id`, or "".

    The id is the caller's, from the header before the body, or 16 random hex digits (vLLM). Raises ApiError
    400 for one that is too long.
    """
    given = request.headers.get(b"x-request-id")
    if given:
        body_id = given.decode("latin-1")
    if len(body_id) > LONGEST_ID:
        raise ApiError.parameter(f"A request id is at most {LONGEST_ID} characters long.", "request_id")
    reply_id = body_id or f"{_random.getrandbits(64):016x}"
    return ReplyHead(reply_id, int(time.time()), context.model_json, context.fingerprint_json)


def request_id_header(request: Request) -> bytes:
    """`X-Request-Id` as a header line: the caller's, or 32 random hex digits (vLLM)."""
    request_id = request.headers.get(b"x-request-id") or b"%032x" % _random.getrandbits(128)
    return b"x-request-id: %b\r\n" % request_id
