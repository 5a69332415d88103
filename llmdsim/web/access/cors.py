"""Which pages of other origins browsers may let call this server (CORS), as Starlette has it for vLLM."""

from __future__ import annotations

from collections.abc import Collection

from llmdsim.wire.request import Request

_METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")

#: Headers that pages may set without asking.
_SAFELISTED = ("Accept", "Accept-Language", "Content-Language", "Content-Type")

#: How long a browser may keep the answer to a preflight, in seconds.
_MAX_AGE = 600

_VARY = b"vary: Origin\r\n"
_CREDENTIALS = b"access-control-allow-credentials: true\r\n"


class Cors:
    """`*` among `origins`, `methods` or `headers` is all of them; without any origin none is allowed.

    `credentials` lets pages send cookies and the like.
    """

    def __init__(
        self,
        origins: Collection[str],
        methods: Collection[str],
        headers: Collection[str],
        credentials: bool,
    ) -> None:
        self._origins = frozenset(origin.encode() for origin in origins)
        self._all_origins = "*" in origins
        # Browsers take `*` for no answer when credentials are to be sent.
        self._names_origin = credentials or not self._all_origins
        self._credentials = _CREDENTIALS if credentials else b""
        methods = _METHODS if "*" in methods else tuple(methods)
        self._methods = frozenset(method.encode() for method in methods)
        self._all_headers = "*" in headers
        allowed = sorted({*_SAFELISTED, *headers})
        self._headers = frozenset(name.lower().encode() for name in allowed)
        self._preflight = (
            f"access-control-allow-methods: {', '.join(methods)}\r\naccess-control-max-age: {_MAX_AGE}\r\n"
        ).encode("latin-1", "replace")
        if not self._all_headers:
            line = f"access-control-allow-headers: {', '.join(allowed)}\r\n"
            self._preflight += line.encode("latin-1", "replace")
        if not origins:
            # `lines`, which would say so, need not be called: nothing but preflights can differ.
            self._preflight += _VARY + self._credentials

    def lines(self, request: Request) -> bytes:
        """The header lines of whatever response `request` gets."""
        origin = request.headers.get(b"origin")
        if origin is None:
            # A cache must not give this response to a page.
            return _VARY if self._names_origin else b""
        if not self._names_origin:
            return b"access-control-allow-origin: *\r\n"
        lines = _VARY + self._credentials
        if self._allows(origin):
            lines += b"access-control-allow-origin: %b\r\n" % origin
        return lines

    def answers(self, request: Request) -> bool:
        """Whether an OPTIONS request is a preflight; then it is answered, 400 telling what is not allowed."""
        headers = request.headers
        origin, method = headers.get(b"origin"), headers.get(b"access-control-request-method")
        if origin is None or method is None:
            return False
        lines = self._preflight
        wrong = []
        if not self._allows(origin):
            wrong.append("origin")
        if method not in self._methods:
            wrong.append("method")
        wanted = headers.get(b"access-control-request-headers")
        if wanted is not None:
            if self._all_headers:
                lines += b"access-control-allow-headers: %b\r\n" % wanted
            elif any(name.strip().lower() not in self._headers for name in wanted.split(b",")):
                wrong.append("headers")
        if b"access-control-request-private-network" in headers:
            wrong.append("private-network")
        status, text = (400, f"Disallowed CORS {', '.join(wrong)}") if wrong else (200, "OK")
        request.respond(status, text.encode(), b"text/plain; charset=utf-8", lines)
        return True

    def _allows(self, origin: bytes) -> bool:
        return self._all_origins or origin in self._origins
