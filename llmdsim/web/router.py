"""From a request to its route, as registered with Klein."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Any, NamedTuple
from urllib.parse import quote

from klein import Klein
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from werkzeug.exceptions import HTTPException, MethodNotAllowed
from werkzeug.routing import PathConverter

from llmdsim.web.access.gate import Gate
from llmdsim.web.errors import ApiError, shown
from llmdsim.web.refusal import fail
from llmdsim.wire.request import Request

#: A route: given the request and the variables of its path, it answers the request, now or later. What it
#: raises, or a Deferred it returns fails with, is the answer; the Deferred is cancelled if the client leaves.
Handler = Callable[..., Any]

#: A variable of a rule, with its converter.
_VARIABLE = re.compile(r"<(?:\w+:)?(\w+)>")


class _Name(PathConverter):
    """The rest of a path, which may begin with a slash: models are named by the folders they lie in."""

    regex = r"[\s\S]+?"
    part_isolating = False


def new_app() -> Klein:
    """A Klein app for routes; their variables of kind `path` may hold anything."""
    app = Klein()
    app.url_map.merge_slashes = False
    app.url_map.converters = {**app.url_map.converters, "path": _Name}
    return app


class Route(NamedTuple):
    """One rule of an app. `path` has its variables, whose names are `variables`, in braces."""

    endpoint: str
    rule: str
    path: str
    variables: frozenset[str]
    methods: frozenset[str]
    handler: Handler


def routes_of(app: Klein) -> Iterator[Route]:
    """Every route of an app, in the order they were added."""
    for rule in app.url_map.iter_rules():
        endpoint: Any = app.endpoints[rule.endpoint]
        yield Route(
            rule.endpoint,
            rule.rule,
            _VARIABLE.sub(r"{\1}", rule.rule),
            frozenset(rule.arguments),
            frozenset(rule.methods or ()),
            getattr(endpoint, "__wrapped__", endpoint),
        )


def part_of(app: Klein, wanted: Callable[[str], bool]) -> Klein:
    """An app with those routes of another whose rules are wanted."""
    part = new_app()
    part.endpoints.update(app.endpoints)
    for rule in app.url_map.iter_rules():
        if wanted(rule.rule):
            part.url_map.add(rule.empty())
    return part


def path_error(status: int, path: bytes, message: str) -> bytes:
    """The body of an error that was found before or outside any route."""
    return ApiError(status, message).body_for(path)


class Router:
    """Give it a Klein app whose routes are all registered; then `handle` answers requests.

    Klein holds the routes; its own way of rendering is not taken: it ends the response when a handler returns
    None, needs a Host header to match a path, and answers errors in its own form. Paths without variables are
    found in a dictionary, others by the app's map of URLs, and one function calls them all.
    `gate` is what all of them pass first; `taken` gives what is to be called for a route.
    """

    def __init__(
        self, app: Klein, gate: Gate, taken: Callable[[Route], Handler] = attrgetter("handler")
    ) -> None:
        self._common_headers = gate.common_headers
        self._gate_admits = self._admits = gate.admits
        self._answers_preflight = gate.answers_preflight
        self._root = quote(gate.root_path).encode()
        self._map = app.url_map.bind("")
        self._handlers: dict[str, tuple[Handler, str]] = {}
        self._table: dict[tuple[bytes, bytes], tuple[Handler, str]] = {}
        self._paths: set[bytes] = set()
        for route in routes_of(app):
            handler = taken(route)
            self._handlers[route.endpoint] = handler, route.path
            if not route.variables:
                path = route.rule.encode()
                self._paths.add(path)
                for method in route.methods:
                    self._table[path, method.encode()] = handler, route.path

    def hold(self, admits: Callable[[Request], bool]) -> None:
        """Until `release`, answer only requests that `admits`, behind the gate, lets through.

        It answers the others itself.
        """
        gate_admits = self._gate_admits
        if gate_admits is None:
            self._admits = admits
        else:
            self._admits = lambda request: gate_admits(request) and admits(request)

    def release(self) -> None:
        """Answer all requests again."""
        self._admits = self._gate_admits

    def handle(self, request: Request) -> None:
        """Answer one request."""
        if self._common_headers is not None:
            request.common_headers = self._common_headers(request)
        if self._admits is not None and not self._admits(request):
            return
        found = self._table.get((request.path, request.method))
        if found is not None:
            handler, request.route = found
            self._call(request, handler)
        else:
            self.match(request)

    def _call(self, request: Request, handler: Handler, variables: Mapping[str, Any] | None = None) -> None:
        try:
            result = handler(request, **variables) if variables else handler(request)
        except Exception as error:
            fail(request, error)
            return
        # Most answer at once, and to ask what is no Deferred whether it is one takes a while.
        if result is not None and isinstance(result, Deferred):
            request.on_lost = request.on_lost or result.cancel
            result.addErrback(self._failed_later, request)

    def _failed_later(self, failure: Failure, request: Request) -> None:
        assert failure.value is not None
        # Once the request is over, there is nobody to tell: what fails now is most likely its own cancelling.
        if not request.finished:
            fail(request, failure.value)

    def match(self, request: Request) -> None:
        """Answer a request that has passed the gate, by the app's map of URLs."""
        if request.method == b"OPTIONS" and self._answers_preflight(request):
            return
        try:
            path = request.path.decode()
        except UnicodeDecodeError:
            request.respond(400, path_error(400, request.path, "The path is not valid UTF-8"))
            return
        method = request.method.decode("latin-1")
        try:
            endpoint, variables = self._map.match(path, method)
        except MethodNotAllowed as error:
            self._wrong_method(request, set(error.valid_methods or ()))
        except HTTPException:
            self._not_found(request, path)
        else:
            handler, request.route = self._handlers[endpoint]
            self._call(request, handler, variables)

    def _wrong_method(self, request: Request, methods: set[str]) -> None:
        allow = b"allow: %b\r\n" % ", ".join(sorted(methods | {"OPTIONS"})).encode()
        if request.method == b"OPTIONS":
            request.respond_empty(204, allow)
            return
        message = f"Method {request.method.decode('latin-1')} is not allowed here"
        request.respond(405, path_error(405, request.path, message), extra=allow)

    def _not_found(self, request: Request, path: str) -> None:
        bare = request.path.rstrip(b"/")
        if bare != request.path and bare in self._paths:
            query = b"?" + request.query if request.query else b""
            request.respond_empty(307, b"location: %b%b%b\r\n" % (self._root, bare, query))
            return
        request.respond(404, path_error(404, request.path, f"Not Found: {shown(path)}"))
