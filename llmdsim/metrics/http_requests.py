"""The `http_*` families: what prometheus_fastapi_instrumentator, which vLLM uses, counts of every request."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import Protocol

from llmdsim.engine.stats import MANY, Histogram
from llmdsim.metrics.block import FamilyBlock

#: What is not counted, found anywhere in a route, or in the path where there is no route; the last is ours.
_EXCLUDED = re.compile(rb"/metrics|/health|/load|/ping|/version|/server_info|^/ready$")

#: What stands for a client that left before it was told a status (nginx's code for it).
_LEFT = 499

_COARSE = (0.1, 0.5, 1.0)
_FINE = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 7.5),
    *(10.0, 30.0, 60.0),
)


class Ended(Protocol):
    """A request whose response is complete, or whose client left."""

    @property
    def method(self) -> bytes: ...
    @property
    def path(self) -> bytes: ...
    @property
    def headers(self) -> Mapping[bytes, bytes]: ...
    @property
    def body(self) -> bytes: ...
    @property
    def route(self) -> str:
        """The path of its route, variables in braces; empty where there is none."""

    @property
    def status(self) -> int:
        """0 when none was sent."""

    @property
    def length(self) -> int:
        """The response's Content-Length; 0 where it has none."""

    @property
    def began(self) -> float:
        """In the seconds of the clock."""


class _Sizes:
    __slots__ = ("received", "requests", "sent")

    def __init__(self) -> None:
        self.requests = 0
        self.received = 0
        self.sent = 0


class _Tally:
    __slots__ = ("observe", "requests", "sizes")

    def __init__(self, sizes: _Sizes, durations: Histogram) -> None:
        self.requests = 0
        self.sizes = sizes
        self.observe = durations.observe


class HttpRequests:
    """A block; its children appear with the first request of their kind. `seconds` is the clock's time."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        #: By route, method and first digit of the status; None for those that are not counted.
        self._tallies: dict[tuple[str, bytes, int], _Tally | None] = {}
        self._sizes: dict[str, _Sizes] = {}
        self._durations: dict[tuple[str, bytes], Histogram] = {}
        self._all = Histogram(_FINE)
        self._total = FamilyBlock("http_requests", "counter", "HTTP requests.")
        self._received = FamilyBlock(
            "http_request_size_bytes", "summary", "Content-Length of HTTP requests; 0 for those without one."
        )
        self._sent = FamilyBlock(
            "http_response_size_bytes", "summary", "Content-Length of HTTP responses; 0 for streams."
        )
        self._fine = FamilyBlock(
            "http_request_duration_highr_seconds",
            "histogram",
            "Seconds from a request's turn to the end of its response, all requests together.",
        )
        self._fine.add_histogram({}, self._all)
        self._coarse = FamilyBlock(
            "http_request_duration_seconds",
            "histogram",
            "Seconds from a request's turn to the end of its response.",
        )
        self._blocks = (self._total, self._received, self._sent, self._fine, self._coarse)

    def count(self, request: Ended) -> None:
        """Count a request that ended."""
        route = request.route
        if not route and _EXCLUDED.search(request.path):
            return
        key = route, request.method, (request.status or _LEFT) // 100
        try:
            tally = self._tallies[key]
        except KeyError:
            tally = self._tallies[key] = self._new(*key)
        if tally is None:
            return
        tally.requests += 1
        sizes = tally.sizes
        sizes.requests += 1
        if b"content-length" in request.headers:
            sizes.received += len(request.body)
        sizes.sent += request.length
        duration = self._seconds() - request.began
        tally.observe(duration)
        self._all.observe(duration)
        if len(self._all.unsettled) > MANY:
            self._all.settle()
            for durations in self._durations.values():
                durations.settle()

    def _new(self, route: str, method: bytes, hundreds: int) -> _Tally | None:
        if _EXCLUDED.search(route.encode()):
            return None
        handler = route or "none"
        by_handler = {"handler": handler}
        by_method = {"handler": handler, "method": method.decode("latin-1")}
        sizes = self._sizes.get(handler)
        if sizes is None:
            sizes = self._sizes[handler] = _Sizes()
            requests = partial(attrgetter("requests"), sizes)
            self._received.add_summary(by_handler, requests, partial(attrgetter("received"), sizes))
            self._sent.add_summary(by_handler, requests, partial(attrgetter("sent"), sizes))
        durations = self._durations.get((handler, method))
        if durations is None:
            durations = self._durations[handler, method] = Histogram(_COARSE)
            self._coarse.add_histogram(by_method, durations)
        tally = _Tally(sizes, durations)
        self._total.add_number({**by_method, "status": f"{hundreds}xx"}, lambda: tally.requests)
        return tally

    def text(self) -> bytes:
        return b"".join([block.text() for block in self._blocks])

    def openmetrics(self) -> bytes:
        return b"".join([block.openmetrics() for block in self._blocks])
