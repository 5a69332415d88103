"""What every request passes on its way to a route, and what every response carries on its way back."""

from __future__ import annotations

from collections.abc import Callable

from llmdsim.config import Config
from llmdsim.web.access.cors import Cors
from llmdsim.web.access.keys import ApiKeys
from llmdsim.web.reply_head import request_id_header
from llmdsim.wire.request import Request


class Gate:
    """What a configuration asks of all requests; what it does not ask for is None, and costs nothing.

    `common_headers` gives header lines for any response. `admits` takes the root path off a request's path
    and tells whether the request may go on; one that may not has been answered. `answers_preflight` is asked
    about OPTIONS requests, and tells whether it has answered one. `root_path` begins with a slash unless it
    is empty.
    """

    def __init__(self, config: Config) -> None:
        bare = config.root_path.strip("/")
        self.root_path = f"/{bare}" if bare else ""
        self._root = self.root_path.encode()
        self._keys = ApiKeys(config.api_key) if config.api_key else None
        cors = Cors(
            config.allowed_origins, config.allowed_methods, config.allowed_headers, config.allow_credentials
        )
        self.answers_preflight = cors.answers
        self.common_headers = _joined(
            request_id_header if config.enable_request_id_headers else None,
            cors.lines if config.allowed_origins else None,
        )
        self.admits: Callable[[Request], bool] | None = None
        if self._root:
            self.admits = self._admits_below_root
        elif self._keys is not None:
            self.admits = self._keys.admits

    def _admits_below_root(self, request: Request) -> bool:
        path, root = request.path, self._root
        # Some proxies take it off themselves.
        if path.startswith(root) and path[len(root) : len(root) + 1] in (b"/", b""):
            request.path = path[len(root) :] or b"/"
        return self._keys is None or self._keys.admits(request)


_Lines = Callable[[Request], bytes]


def _joined(first: _Lines | None, second: _Lines | None) -> _Lines | None:
    if first is None or second is None:
        return first or second
    return lambda request: first(request) + second(request)
