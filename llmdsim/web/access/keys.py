"""The guard of `--api-key`: without one of the keys there is nothing but 401 on all paths that need one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hmac import compare_digest

from llmdsim.web.access.paths import KEYLESS
from llmdsim.web.errors import ApiError
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
        body = _refusal(request.headers).body_for(request.path)
        request.respond(401, body, extra=b"www-authenticate: Bearer\r\n")
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


def _refusal(headers: Mapping[bytes, bytes]) -> ApiError:
    if b"authorization" in headers or b"x-api-key" in headers:
        return ApiError(401, "The API key is not valid.")
    return ApiError(401, "An API key is required: send `Authorization: Bearer KEY` or `x-api-key: KEY`.")
