"""Requests that fail on purpose: because they ask for it, or by chance."""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Final

from llmdsim.config.fault import Fault
from llmdsim.config.table import FailureType
from llmdsim.engine.faults import Faults
from llmdsim.web.errors import ApiError
from llmdsim.web.faulty_channel import FaultyChannel
from llmdsim.web.response_form import ResponseForm
from llmdsim.wire.request import Request

#: What is told to wait with a 429, in seconds.
_RETRY_AFTER = 1

_RETURN_ERROR = re.compile(rb"\+?0*([45][0-9]{2})")


#: Headers that ask for an error, and for a fault.
RETURN_ERROR: Final = b"x-return-error"
FAULT: Final = b"x-fault"


class EmptyAnswer(ApiError):
    """A status without a body or a message, as proxies give it for a server that is not there."""

    def body_for(self, path: bytes) -> bytes:
        return b""


class Failures:
    """Of one rank. `model` is the configured one; `clock` is an `IReactorTime`."""

    def __init__(self, faults: Faults, model: str, by_header: bool, clock: Any) -> None:
        self.faults = faults
        self._model = model
        self._by_header = by_header
        self._clock = clock

    def meet(self, request: Request, form: ResponseForm) -> None:
        """Have `request` fail if it is to, or its response, which will be of that form, go wrong later.

        What it asks for comes before what chance has for it: X-Return-Error, X-Fault, a failure, a fault.
        Raises ApiError: the failure, or 400 for headers that make no sense.
        """
        if self._by_header and not request.plain:
            headers = request.headers
            status = headers.get(RETURN_ERROR)
            if status:
                raise self._returned(status)
            text = headers.get(FAULT)
            if text:
                self._ask(request, form, text.decode("latin-1"))
                return
        if self.faults.by_chance:
            failure = self.faults.draw_failure()
            if failure is not None:
                self.faults.count(failure)
                raise failed(failure, self._model)
            fault = self.faults.draw_fault()
            if fault is not None:
                self._arm(request, form, fault)

    def _returned(self, value: bytes) -> ApiError:
        status = _RETURN_ERROR.fullmatch(value.strip())
        if status is None:
            return ApiError(400, "Invalid X-Return-Error header: it takes an HTTP status from 400 to 599.")
        self.faults.count("return_error")
        code = int(status[1])
        message = f"Status {code} was asked for with the header X-Return-Error."
        return ApiError(code, message, headers=_retry_after(code, None))

    def _ask(self, request: Request, form: ResponseForm, text: str) -> None:
        try:
            fault = self.faults.asked_for(text)
        except ValueError as problem:
            raise ApiError(400, f"Invalid X-Fault header: {problem}.") from None
        if fault is not None:
            self._arm(request, form, fault)

    def _arm(self, request: Request, form: ResponseForm, fault: Fault) -> None:
        count = partial(self.faults.count, fault.kind)
        if fault.kind == "status":
            count()
            headers = _retry_after(0, fault.retry_after)
            raise EmptyAnswer(fault.code, "", headers=headers)
        error = ApiError(
            fault.code,
            "This error was injected on purpose.",
            headers=_retry_after(fault.code, fault.retry_after),
        )
        if fault.kind == "error" and fault.after is None:
            count()
            raise error
        FaultyChannel(request, form, fault, error, self._clock, count)
        if fault.kind == "hang" or (fault.kind == "reset" and fault.after is None):
            # It takes no part in the engine; the channel keeps the answer to itself.
            raise error


def failed(kind: FailureType, model: str) -> ApiError:
    """The error of each type of failure, as llm-d-inference-sim gives it, and `Retry-After` with a 429."""
    match kind:
        case "rate_limit":
            message = (
                f"Rate limit of {model} exceeded: 3 requests a minute allowed, 3 used, 1 more asked for."
            )
            return ApiError(429, message, headers=_retry_after(429, None))
        case "invalid_api_key":
            return ApiError(401, "The API key is wrong.")
        case "context_length":
            message = "The context has room for 4096 tokens, and the messages take 4500: shorten them."
            return ApiError(400, message, param="messages")
        case "server_error":
            return ApiError(503, "The server is overloaded, or not ready yet.", "InternalServerError")
        case "invalid_request":
            return ApiError(400, "The request lacks a parameter that it must have: model.", param="model")
        case "model_not_found":
            return ApiError(404, f"The model `{model}-nonexistent` does not exist.", param="model")


def _retry_after(code: int, seconds: int | None) -> tuple[tuple[bytes, bytes], ...]:
    if seconds is None:
        if code != 429:
            return ()
        seconds = _RETRY_AFTER
    return ((b"retry-after", b"%d" % seconds),)
