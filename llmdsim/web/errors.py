"""The one error that request handling raises, and the JSON object every error answer carries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from llmdsim.engine.sequence import Sequence as EngineSequence

#: `error.type` by HTTP status, for statuses that have a name of their own (vLLM 0.33 error_response.py; the
#: peer's table for those vLLM never sends).
_TYPES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    405: "MethodNotAllowedError",
    408: "RequestTimeoutError",
    409: "ConflictError",
    411: "LengthRequiredError",
    413: "RequestTooLargeError",
    414: "URITooLongError",
    415: "UnsupportedMediaTypeError",
    417: "ExpectationFailedError",
    422: "UnprocessableEntityError",
    429: "RateLimitError",
    431: "RequestHeaderFieldsTooLargeError",
    501: "NotImplementedError",
    503: "ServiceUnavailableError",
    505: "HTTPVersionNotSupportedError",
}

#: Where Anthropic's API begins, and its `error.type` by HTTP status (vLLM 0.33 anthropic/protocol.py).
ANTHROPIC = b"/v1/messages"
#: Answers in OpenAI's shape, as the other render routes (vLLM).
RENDER_MESSAGE = b"/v1/messages/render"
ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}

#: Longest rendering of a refused value in a message, in characters: a body of megabytes must not come back.
_SHOWN_VALUE = 200
_SHOWN_ITEMS = 10
_SHOWN_DEPTH = 3


def error_type(status: int) -> str:
    """The `error.type` that goes with a status when the raiser names none."""
    known = _TYPES.get(status)
    if known is not None:
        return known
    return "InternalServerError" if status >= 500 else "APIConnectionError"


def error_body(status: int, message: str, type: str | None = None, param: str | None = None) -> bytes:
    """`{"error": {"message", "type", "param", "code"}}` as compact UTF-8 JSON; `code` is the HTTP status.

    Lone surrogates, which JSON texts may smuggle in and UTF-8 cannot carry, are shown as escapes.
    """
    try:
        return _rendered(status, message, type, param)
    except UnicodeEncodeError:
        return _rendered(status, _printable(message), type, None if param is None else _printable(param))


def is_anthropic(path: bytes) -> bool:
    """Whether errors of a path have Anthropic's shape."""
    return path.startswith(ANTHROPIC) and path != RENDER_MESSAGE


def anthropic_error_body(status: int, message: str) -> bytes:
    """`{"type": "error", "error": {"type", "message"}}` as compact UTF-8 JSON."""
    kind = ANTHROPIC_TYPES.get(status) or ("api_error" if status >= 500 else "invalid_request_error")
    return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": _printable(message)}})


def _rendered(status: int, message: str, type_: str | None, param: str | None) -> bytes:
    error = {"message": message, "type": type_ or error_type(status), "param": param, "code": status}
    return msgspec.json.encode({"error": error})


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def shown(value: object, depth: int = 0) -> str:
    """A refused value as it appears in a message: at most about 200 characters, whatever the client sent.

    `depth` is how many lists it is in already.
    """
    if isinstance(value, str):
        text = value[: _SHOWN_VALUE + 1]
    elif isinstance(value, Mapping):
        text = f"<dict of {len(value)} items>"
    elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        if depth == _SHOWN_DEPTH:
            return "[...]"
        inside = ", ".join(
            repr(item) if isinstance(item, str) else shown(item, depth + 1) for item in value[:_SHOWN_ITEMS]
        )
        text = f"[{inside}{', ...' if len(value) > _SHOWN_ITEMS else ''}]"
    else:
        try:
            text = str(value)
        except ValueError:  # an integer too long for the interpreter to print
            text = f"<{type(value).__name__}>"
    return text if len(text) <= _SHOWN_VALUE else f"{text[:_SHOWN_VALUE]}..."


class ApiError(Exception):
    """An answer that is an error: status, message, `error.type`, `error.param` and extra response headers.

    `headers` are (name, value) byte pairs, for instance `((b"Retry-After", b"1"),)`. A 503 `closes` the
    connection, if not told otherwise: the next try, over another one, may reach another server.
    """

    def __init__(
        self,
        status: int,
        message: str,
        type: str | None = None,
        param: str | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        closes: bool = True,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type or error_type(status)
        self.param = param
        self.headers = headers
        self.closes = closes

    @property
    def body(self) -> bytes:
        """The JSON answer in OpenAI's shape, made when asked for."""
        return error_body(self.status, self.message, self.type, self.param)

    def body_for(self, path: bytes) -> bytes:
        """The JSON answer in the shape of the API that `path` belongs to."""
        if is_anthropic(path):
            return anthropic_error_body(self.status, self.message)
        return self.body

    @classmethod
    def parameter(cls, message: str, param: str, value: object = None, *, status: int = 400) -> ApiError:
        """A refused request field: vLLM ends such a message with the field and, where known, its value."""
        tail = f"parameter={param}" if value is None else f"parameter={param}, value={shown(value)}"
        return cls(status, f"{message} ({tail})", param=param)


def unknown_model(name: str, served: Sequence[str]) -> ApiError:
    """404 for a model that is neither served nor a loaded adapter; `served` are the valid base names."""
    return ApiError(
        404,
        f"The model `{shown(name)}` does not exist. This server knows: {', '.join(served)}.",
        param="model",
    )


def shutting_down() -> ApiError:
    """503 for what is refused, or ended before its time, once shutdown has begun."""
    return ApiError(503, "The server is shutting down.")


def engine_failed() -> ApiError:
    """500 for a reply that the engine failed to complete, and for whatever a dead engine is asked."""
    return ApiError(500, "The engine failed, and this request with it.")


def gave_up(sequence: EngineSequence) -> ApiError:
    """The error for a reply that the engine ended before it was complete."""
    if sequence.finish_reason == "abort":
        return shutting_down()
    remote = sequence.remote_prefill
    if remote is not None and remote.lost and not remote.recomputes:
        return ApiError(500, "The KV blocks of the other server's prefill could not be transferred.")
    return engine_failed()
