"""How what went wrong is told to callers."""

from __future__ import annotations

from llmdsim.web.errors import ApiError
from llmdsim.wire.grpc import Code, RpcError

#: By the status that HTTP would tell (grpc-gateway's and llm-d-inference-sim's choice); others are UNKNOWN.
_CODES = {
    400: Code.INVALID_ARGUMENT,
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    404: Code.NOT_FOUND,
    405: Code.UNIMPLEMENTED,
    408: Code.DEADLINE_EXCEEDED,
    409: Code.ABORTED,
    413: Code.RESOURCE_EXHAUSTED,
    429: Code.RESOURCE_EXHAUSTED,
    431: Code.RESOURCE_EXHAUSTED,
    500: Code.INTERNAL,
    501: Code.UNIMPLEMENTED,
    503: Code.UNAVAILABLE,
    504: Code.DEADLINE_EXCEEDED,
}


def rpc_error(error: ApiError) -> RpcError:
    """An error of the API as callers are told it; its headers become trailers."""
    trailers = b"".join(b"%b: %b\r\n" % header for header in error.headers)
    return RpcError(_CODES.get(error.status, Code.UNKNOWN), error.message, trailers)
