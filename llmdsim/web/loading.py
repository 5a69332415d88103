"""What is answered while the server seems to load its model."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Final

from llmdsim.web.errors import ApiError
from llmdsim.web.refusal import fail
from llmdsim.wire.request import Request

#: What asks whether the process is alive, rather than what it can do.
LIVENESS: Final = frozenset((b"/health", b"/ping"))


class Loading:
    """Until `seconds()` reaches `until`, all but liveness is 503, as from a proxy before a loading vLLM."""

    def __init__(self, until: float, seconds: Callable[[], float]) -> None:
        self._until = until
        self._seconds = seconds

    def admits(self, request: Request) -> bool:
        """Whether a request may go on; one that may not has been answered."""
        if request.path in LIVENESS:
            return True
        fail(request, self.refusal())
        return False

    def refusal(self) -> ApiError:
        """What others are told. There is no better server at this address to connect to anew."""
        left = max(1, ceil(self._until - self._seconds()))
        return ApiError(
            503,
            "The server is loading the model; try again later.",
            headers=((b"retry-after", b"%d" % left),),
            closes=False,
        )
