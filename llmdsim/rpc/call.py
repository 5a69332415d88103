"""One gRPC call: its request, and the messages and the status it is answered with."""

from __future__ import annotations

from google.protobuf.message import Message
from twisted.logger import Logger
from twisted.python.failure import Failure

from llmdsim.rpc.status import rpc_error
from llmdsim.web.errors import ApiError
from llmdsim.web.ids import hex_digits
from llmdsim.web.reply_head import LONGEST_ID, REQUEST_ID
from llmdsim.wire.grpc import CONTENT_TYPE, OK_LINES, Code, RpcError, frame, status_lines
from llmdsim.wire.request import Request

log = Logger()


def call_id(request: Request, told: str) -> str:
    """What a call is known by, to Abort for instance: what its message tells, its metadata, or chance.

    Raises ApiError 400 for an id that is too long.
    """
    found = told or request.headers.get(REQUEST_ID, b"").decode("latin-1") or hex_digits()
    if len(found) > LONGEST_ID:
        raise ApiError.parameter(f"A request id is at most {LONGEST_ID} characters long.", "request_id")
    return found


def send(request: Request, message: Message) -> None:
    """Send a message, behind the response's head if that is still to come."""
    data = frame(message.SerializeToString())
    if request.started:
        request.send(data)
    else:
        request.start(200, CONTENT_TYPE, first=data)


def end(request: Request, code: Code = Code.OK, message: str = "", trailers: bytes = b"") -> None:
    """End the call, whatever has been sent."""
    if request.finished:
        return
    request.trailers = trailers + (status_lines(code, message) if code or message else OK_LINES)
    if request.started:
        request.finish()
    else:
        request.start(200, CONTENT_TYPE, end=True)


def reply(request: Request, message: Message) -> None:
    """Answer with one message and OK."""
    request.trailers = OK_LINES
    request.start(200, CONTENT_TYPE, first=frame(message.SerializeToString()), end=True)


def fail(request: Request, error: Exception) -> None:
    """End the call with an error; one whose client should try elsewhere ends the connection in time.

    Anything but ApiError and RpcError is a fault of ours, which is logged.
    """
    if isinstance(error, ApiError):
        if error.status == 503 and error.closes:
            request.keep_alive = False
        error = rpc_error(error)
    elif not isinstance(error, RpcError):
        log.failure("{path} failed", Failure(error), path=request.path)  # type: ignore[no-untyped-call]
        error = RpcError(Code.INTERNAL, "Internal server error")
    end(request, error.code, error.message, error.trailers)
