"""A response that is sent whole, and kept."""

from __future__ import annotations

from collections.abc import Callable

from llmdsim.web.driver import Driver
from llmdsim.web.responses.response import Response
from llmdsim.web.whole import WholeReply
from llmdsim.wire.request import Request


class WholeResponse(WholeReply):
    """The sink of a response's one choice; `keep` is given the finished object."""

    def __init__(
        self, request: Request, driver: Driver, response: Response, keep: Callable[[bytes], None] | None
    ) -> None:
        super().__init__(request, driver, response.body, response.wants)
        self._keep = keep

    def respond(self, body: bytes) -> None:
        if self._keep is not None:
            self._keep(body)
        super().respond(body)
