"""The answer to a request whose route raised an error."""

from __future__ import annotations

from twisted.python.failure import Failure

from llmdsim.web.errors import ApiError
from llmdsim.wire.request import Request


def fail(request: Request, error: BaseException) -> None:
    """Answer with what a route raised: an ApiError as it says, anything else as a logged 500."""
    if isinstance(error, ApiError) and not request.started:
        if error.status == 503 and error.closes:
            request.keep_alive = False
        extra = b"".join(b"%b: %b\r\n" % header for header in error.headers)
        request.respond(error.status, error.body_for(request.path), extra=extra)
    else:
        request.fail(Failure(error, type(error), error.__traceback__))  # type: ignore[no-untyped-call]
