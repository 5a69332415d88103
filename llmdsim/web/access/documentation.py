"""`/openapi.json`, and `/docs`, a page that shows it and needs nothing from anywhere else."""

from __future__ import annotations

from functools import cached_property
from importlib.resources import files

import msgspec
from klein import Klein
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from llmdsim.web.access.openapi import openapi
from llmdsim.wire.request import Request

_POLICY = b"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"


class Documentation:
    """Routes that describe `app`, themselves included, when first asked for.

    `root_path` is where a proxy serves the app, `keyed` whether there are keys.
    """

    def __init__(self, app: Klein, root_path: str, keyed: bool) -> None:
        self._app = app
        self._root_path = root_path
        self._keyed = keyed
        self._document = b""

    def mount(self) -> None:
        """Add the routes."""
        app = self._app
        app.route("/openapi.json", methods=["GET"], endpoint="openapi")(self.openapi)
        app.route("/docs", methods=["GET"], endpoint="docs")(self.docs)

    def openapi(self, request: Request) -> Deferred[None] | None:
        """The OpenAPI description of this server."""
        if self._document:
            request.respond(200, self._document)
            return None
        # It takes tens of milliseconds.
        return deferToThread(self._describe).addCallback(lambda _: request.respond(200, self._document))

    def docs(self, request: Request) -> None:
        """The same for people."""
        policy = b"content-security-policy: %b\r\n" % _POLICY
        request.respond(200, self._page, b"text/html; charset=utf-8", policy)

    def _describe(self) -> None:
        self._document = msgspec.json.encode(openapi(self._app, self._root_path, self._keyed))

    @cached_property
    def _page(self) -> bytes:
        return files(__package__).joinpath("docs.html").read_bytes()
