"""The guard of `--api-key`: without one of the keys there is nothing but 401 on all paths that need one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hmac import compare_digest

import msgspec

from llmdsim.web.access.paths import KEYLESS
from llmdsim.web.errors import error_body
from llmdsim.wire.request import Request

_KEYLESS = frozenset(path.encode() for path in KEYLESS)


class ApiKeys:
    """A client must send one of `keys`, as `Authorization: Bearer KEY` or `x-api-key: KEY`.

    Every path but those of `paths.KEYLESS` is guarded: no way to spell one gets around it, and unknown ones
    tell nothing. OPTIONS needs no key, since browsers send none with a preflight.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = [key.encode() for key in keys]

    def admits(self, request: Request) -> bool:
        """Whether the request may go on; else it is answered, with a 401."""
        if (
            self._holds_key(request.headers)
            or request.path.rstrip(b"/") in _KEYLESS
            or request.method == b"OPTIONS"
        ):
            return True
        request.respond(401, _refusal(request), extra=b"www-authenticate: Bearer\r\n")
        return False

    def _holds_key(self, headers: Mapping[bytes, bytes]) -> bool:
        given = headers.get(b"authorization")
        if given is not None:
            scheme, _, key = given.partition(b" ")
            if scheme.lower() == b"bearer" and self._is_key(key.strip()):
                return True
        given = headers.get(b"x-api-key")
        return given is not None and self._is_key(given)

    def _is_key(self, given: bytes) -> bool:
        found = False
        for key in self._keys:
            found |= compare_digest(key, given)
        return found


def _refusal(request: Request) -> bytes:
    """The body of a 401, in the shape that SDKs of its path expect."""
    headers = request.headers
    if b"authorization" in headers or b"x-api-key" in headers:
        message = "The API key is not valid."
    else:
        message = "An API key is required: send `Authorization: Bearer KEY` or `x-api-key: KEY`."
    if request.path.startswith(b"/v1/messages"):
        error = {"type": "authentication_error", "message": message}
        return msgspec.json.encode({"type": "error", "error": error})
    return error_body(401, message)
