"""What is counted of HTTP requests, under which handler, method and status."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from prometheus_client.parser import text_string_to_metric_families

from llmdsim.engine.stats import MANY
from llmdsim.metrics import Collector, HttpRequests
from tests.metrics.pages import FORMATS, families, samples, value

#: prometheus_fastapi_instrumentator 8.1, metrics.default().
FINE = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30, 60),
    float("inf"),
)
COARSE = (0.1, 0.5, 1, float("inf"))
KINDS = {
    "http_requests": "counter",
    "http_request_size_bytes": "summary",
    "http_response_size_bytes": "summary",
    "http_request_duration_highr_seconds": "histogram",
    "http_request_duration_seconds": "histogram",
}
CHAT = "/v1/chat/completions"


@dataclass
class Request:
    """A request that ended; `took` before the clock's now, which is 100."""

    route: str = CHAT
    status: int = 200
    method: bytes = b"POST"
    took: float = 0.25
    length: int = 0
    content_length: int = 0
    path: bytes = b"/p"

    @property
    def began(self) -> float:
        return 100 - self.took


def counted(*requests: Request) -> HttpRequests:
    http = HttpRequests(lambda: 100.0)
    for request in requests:
        http.count(request)
    return http


@pytest.mark.parametrize("form", FORMATS)
def test_the_families_are_there_from_the_start_and_their_children_from_the_first_request(form: str) -> None:
    http = HttpRequests(lambda: 100.0)
    page = Collector([http])
    found = families(page, form)
    assert {name: each.type for name, each in found.items() if not name.endswith("_created")} == KINDS
    bare = {each.name for each in samples(page, form)}
    assert bare == {f"http_request_duration_highr_seconds_{end}" for end in ("bucket", "count", "sum")}
    http.count(Request())
    assert {name: each.type for name, each in families(page, form).items() if "_created" not in name} == KINDS
    assert value(page, "http_requests_total", form) == 1


def test_buckets() -> None:
    found = families(Collector([counted(Request())]))
    for name, expected in (
        ("http_request_duration_highr_seconds", FINE),
        ("http_request_duration_seconds", COARSE),
    ):
        bounds = [float(each.labels["le"]) for each in found[name].samples if "le" in each.labels]
        assert tuple(bounds) == expected


@pytest.mark.parametrize(
    ("status", "group"), [(200, "2xx"), (201, "2xx"), (307, "3xx"), (400, "4xx"), (503, "5xx"), (0, "4xx")]
)
def test_statuses_are_grouped_and_a_client_that_left_unanswered_is_4xx(status: int, group: str) -> None:
    http = counted(Request(status=status))
    labels = {"handler": CHAT, "method": "POST", "status": group}
    assert [each.labels for each in samples(http) if each.name == "http_requests_total"] == [labels]


def test_each_kind_of_request_has_its_own_count() -> None:
    http = counted(
        *[Request()] * 3,
        Request(status=400),
        Request(method=b"GET"),
        Request(route="/v1/models/{name}", method=b"GET"),
        Request(route="", path=b"/nowhere", status=404),
        Request(route="", path=b"/elsewhere", status=404),
    )

    def count(**labels: str) -> float:
        return value(http, "http_requests_total", **labels)

    assert count(handler=CHAT, method="POST", status="2xx") == 3
    assert count(handler=CHAT, method="POST", status="4xx") == 1
    assert count(handler=CHAT, method="GET", status="2xx") == 1
    assert count(handler="/v1/models/{name}") == 1
    assert count(handler="none", status="4xx") == 2
    assert value(http, "http_request_duration_highr_seconds_count") == 8
    assert value(http, "http_request_duration_seconds_count", handler=CHAT, method="POST") == 4
    assert value(http, "http_request_size_bytes_count", handler=CHAT) == 5


@pytest.mark.parametrize(
    "route",
    [
        *("/metrics", "/metrics/", "/health", "/health/ready", "/ready", "/load", "/ping", "/version"),
        # The instrumentator looks for the excluded words anywhere in a route.
        *("/server_info", "/v1/load_lora_adapter"),
    ],
)
@pytest.mark.parametrize("routed", [True, False])
def test_some_are_not_counted(route: str, routed: bool) -> None:
    http = counted(Request(route=route) if routed else Request(route="", path=route.encode(), status=404))
    assert value(http, "http_request_duration_highr_seconds_count") == 0
    assert not [each for each in samples(http) if each.name == "http_requests_total"]


@pytest.mark.parametrize("route", ["/v1/models", "/admin/config", "/v1/already", "/readiness"])
def test_others_are(route: str) -> None:
    assert value(counted(Request(route=route)), "http_requests_total", handler=route) == 1


def test_sizes_are_those_of_content_length() -> None:
    http = counted(
        Request(content_length=5, length=70), Request(), Request(content_length=5, length=30, status=400)
    )
    for name, total in (("http_request_size_bytes", 10), ("http_response_size_bytes", 100)):
        assert value(http, f"{name}_sum", handler=CHAT) == total
        assert value(http, f"{name}_count", handler=CHAT) == 3


def test_each_status_is_counted_under_its_hundreds() -> None:
    http = counted(*[Request(status=status) for status in (200, 201, 200, 400, 404, 0, 499, 503)] * 2)
    for status, number in (("2xx", 6), ("4xx", 8), ("5xx", 2)):
        assert value(http, "http_requests_total", handler=CHAT, status=status) == number


def test_durations_run_to_the_end_of_the_response() -> None:
    http = counted(Request(took=0.25), Request(took=2.0), Request(took=100.0))
    for name, buckets in (
        ("http_request_duration_seconds", [0, 1, 1, 3]),
        ("http_request_duration_highr_seconds", [0] * 5 + [1] * 5 + [2] * 11 + [3]),
    ):
        assert [each.value for each in samples(http) if each.name == f"{name}_bucket"] == buckets
        assert value(http, f"{name}_sum") == 102.25


def test_durations_do_not_pile_up_between_scrapes() -> None:
    http = counted(*[Request()] * (3 * MANY))
    (tally,) = http._tallies.values()
    assert tally is not None
    assert len(tally.durations.unsettled) <= MANY
    assert value(http, "http_request_duration_seconds_count") == 3 * MANY


def test_odd_methods_are_escaped() -> None:
    http = counted(Request(method=b'G"\\\xe9'))
    (family,) = [
        each for each in text_string_to_metric_families(http.text().decode()) if each.name == "http_requests"
    ]
    assert family.samples[0].labels["method"] == 'G"\\é'
