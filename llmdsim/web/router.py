"""From a request to its route: a table compiled from the Klein app, and Klein itself for the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klein import Klein
from klein._app import KleinRequest
from klein._interfaces import IKleinRequest
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.components import registerAdapter
from twisted.python.failure import Failure
from werkzeug.exceptions import MethodNotAllowed, NotFound

from llmdsim.web.errors import ApiError, error_body
from llmdsim.wire.request import Request

log = Logger()

registerAdapter(KleinRequest, Request, IKleinRequest)  # type: ignore[no-untyped-call]

#: A route: answers the request itself, now or later; a Deferred tells of failures that come later.
Handler = Callable[[Request], Any]


def path_error(status: int, path: bytes, message: str) -> bytes:
    """The body of an error that was found before or outside any route."""
    return error_body(status, message)


def fail(request: Request, error: BaseException) -> None:
    """Answer with what a route raised: an ApiError as it says, anything else as a logged 500."""
    if isinstance(error, ApiError) and not request.started:
        extra = b"".join(b"%b: %b\r\n" % header for header in error.headers)
        request.respond(error.status, error.body, extra=extra)
    elif not request.finished:
        request.processingFailed(Failure(error, type(error), error.__traceback__))  # type: ignore[no-untyped-call]


class Router:
    """Give it a Klein app whose routes are all registered; then `handle` answers requests.

    Paths without variables are found in a dictionary and their functions called directly; others, and
    whatever is not known, take the way through Klein, whose own error answers are replaced by ours.
    """

    def __init__(self, app: Klein, common_headers: Callable[[Request], bytes] | None = None) -> None:
        self._common_headers = common_headers
        self._table: dict[tuple[bytes, bytes], Handler] = {}
        self._methods: dict[bytes, set[str]] = {}
        for rule in app.url_map.iter_rules():
            if rule.arguments:
                continue
            path = rule.rule.encode()
            endpoint: Any = app.endpoints[rule.endpoint]
            handler: Handler = getattr(endpoint, "__wrapped__", endpoint)
            methods = rule.methods or {"GET", "HEAD"}
            self._methods.setdefault(path, set()).update(methods)
            for method in methods:
                self._table[path, method.encode()] = handler
        app.handle_errors(NotFound)(self._not_found)
        app.handle_errors(MethodNotAllowed)(self._wrong_method)
        app.handle_errors(Exception)(self._failed)
        self._klein = app.resource()

    def handle(self, request: Request) -> None:
        """Answer one request."""
        if self._common_headers is not None:
            request.common_headers = self._common_headers(request)
        handler = self._table.get((request.path, request.method))
        if handler is None:
            self._handle_otherwise(request)
            return
        try:
            result = handler(request)
        except Exception as error:
            fail(request, error)
            return
        if isinstance(result, Deferred):
            self._await(request, result)

    def _await(self, request: Request, result: Deferred[Any]) -> None:
        def failed(failure: Failure) -> None:
            assert failure.value is not None
            if not (request.finished and isinstance(failure.value, CancelledError)):
                fail(request, failure.value)

        result.addErrback(failed)

    def _handle_otherwise(self, request: Request) -> None:
        methods = self._methods.get(request.path)
        if methods is not None:
            allow = _allow(methods)
            if request.method == b"OPTIONS":
                request.respond_empty(204, allow)
            else:
                self._refuse_method(request, allow)
            return
        try:
            request.path.decode()
        except UnicodeDecodeError:
            request.respond(400, error_body(400, "The path is not valid UTF-8"))
            return
        bare = request.path.rstrip(b"/")
        if bare != request.path and bare in self._methods:
            query = b"?" + request.query if request.query else b""
            request.respond_empty(307, b"location: %b%b\r\n" % (bare, query))
            return
        # It has what Klein uses of IRequest.
        self._klein.render(request)  # type: ignore[arg-type]

    def _refuse_method(self, request: Request, allow: bytes) -> None:
        message = f"Method {request.method.decode('ascii', 'replace')} is not allowed here"
        request.respond(405, error_body(405, message), extra=allow)

    # --- what Klein calls

    def _not_found(self, request: Any, failure: Failure) -> None:
        path = request.path.decode("utf-8", "replace")
        request.respond(404, error_body(404, f"Not Found: {path}"))

    def _wrong_method(self, request: Any, failure: Failure) -> None:
        methods = getattr(failure.value, "valid_methods", None) or ()
        allow = _allow(set(methods))
        if request.method == b"OPTIONS":
            request.respond_empty(204, allow)
        else:
            self._refuse_method(request, allow)

    def _failed(self, request: Any, failure: Failure) -> None:
        assert failure.value is not None
        fail(request, failure.value)


def _allow(methods: set[str]) -> bytes:
    return b"allow: %b\r\n" % ", ".join(sorted(methods | {"OPTIONS"})).encode()
