"""The `http_*` families: what prometheus_fastapi_instrumentator, which vLLM uses, counts of every request."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol

from llmdsim.engine.stats import MANY, Histogram
from llmdsim.metrics.block import FamilyBlock

#: What is not counted, found anywhere in a route, or in the path where there is no route. The last two are
#: ours; gRPC has a server of its own in vLLM (`wire.grpc.ROUTE`).
_EXCLUDED = re.compile(rb"/metrics|/health|/load|/ping|/version|/server_info|^/ready$|^gRPC$")

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
    def content_length(self) -> int:
        """That of the request; 0 where it has none."""

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


class _Tally:
    """Requests of one route, method and first digit of the status."""

    __slots__ = ("durations", "observe", "received", "sent")

    def __init__(self) -> None:
        self.durations = Histogram(_FINE)
        self.observe = self.durations.observe
        self.received = 0
        self.sent = 0


class _Together:
    """Several tallies as one child; its buckets are `bounds`, all of which are bounds of theirs."""

    def __init__(self, bounds: Sequence[float] = _FINE) -> None:
        self.bounds = tuple(bounds)
        self.tallies: list[_Tally] = []
        ends = [*(_FINE.index(bound) + 1 for bound in bounds), len(_FINE) + 1]
        self._slices = list(map(slice, [0, *ends], ends))

    @property
    def counts(self) -> list[int]:
        """Requests by duration, as `Histogram` has them."""
        fine = [
            sum(column) for column in zip(*[tally.durations.counts for tally in self.tallies], strict=True)
        ]
        return [sum(fine[each]) for each in self._slices]

    @property
    def sum(self) -> float:
        """Seconds."""
        return sum(tally.durations.sum for tally in self.tallies)

    def requests(self) -> int:
        """How many."""
        return sum(tally.durations.count for tally in self.tallies)

    def received(self) -> int:
        """Bytes."""
        return sum(tally.received for tally in self.tallies)

    def sent(self) -> int:
        """Bytes."""
        return sum(tally.sent for tally in self.tallies)


class HttpRequests:
    """A block; its children appear with the first request of their kind. `seconds` is the clock's time.

    A request is counted once, in its tally; what families say is added up from these at a scrape.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        #: By route, method and first digit of the status; None for those that are not counted.
        self._tallies: dict[tuple[str, bytes, int], _Tally | None] = {}
        self._all = _Together()
        self._by_handler: dict[str, _Together] = {}
        self._by_method: dict[tuple[str, bytes], _Together] = {}
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
        tally.received += request.content_length
        tally.sent += request.length
        tally.observe(self._seconds() - request.began)
        if len(tally.durations.unsettled) > MANY:
            tally.durations.settle()

    def _new(self, route: str, method: bytes, hundreds: int) -> _Tally | None:
        if _EXCLUDED.search(route.encode()):
            return None
        handler = route or "none"
        by_method = {"handler": handler, "method": method.decode("latin-1")}
        of_handler = self._by_handler.get(handler)
        if of_handler is None:
            of_handler = self._by_handler[handler] = _Together()
            labels = {"handler": handler}
            self._received.add_summary(labels, of_handler.requests, of_handler.received)
            self._sent.add_summary(labels, of_handler.requests, of_handler.sent)
        of_method = self._by_method.get((handler, method))
        if of_method is None:
            of_method = self._by_method[handler, method] = _Together(_COARSE)
            self._coarse.add_histogram(by_method, of_method)
        tally = _Tally()
        for together in (self._all, of_handler, of_method):
            together.tallies.append(tally)
        self._total.add_number({**by_method, "status": f"{hundreds}xx"}, lambda: tally.durations.count)
        return tally

    def text(self) -> bytes:
        return b"".join([block.text() for block in self._blocks])

    def openmetrics(self) -> bytes:
        return b"".join([block.openmetrics() for block in self._blocks])
