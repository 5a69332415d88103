"""Which format which Accept header gets."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdsim.engine.stats import Stats
from llmdsim.metrics.negotiation import prefers_openmetrics
from tests.metrics.pages import collector

OPENMETRICS = [
    # Prometheus 2, without and with native histograms
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,"
    "application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    # Prometheus 2, later
    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
    # Prometheus 3, without and with native histograms
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,"
    "text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,"
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,"
    "text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.7,"
    "application/openmetrics-text;version=0.0.1;q=0.6,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "text/plain;version=0.0.4;q=0.4,*/*;q=0.3",
    # others
    "application/openmetrics-text",
    "application/openmetrics-text; version=1.0.0; charset=utf-8",
    'Application/OpenMetrics-Text ; Version="1.0.0" ; Q=0.9 , text/plain;q=0.8',
    "application/openmetrics-text;q=0.001",
    "application/openmetrics-text, */*",
    "*/*, application/openmetrics-text",
    "application/openmetrics-text, text/plain;q=0",
    "text/plain;q=0, */*",
    "application/*",
    "text/plain;q=0.5, application/openmetrics-text;q=0.50001",
    "text/plain;q=x, application/openmetrics-text;q=0.1",
    ";;,=,,application/openmetrics-text",
]
TEXT = [
    "",
    "*/*",
    "text/*",
    "text/plain",
    "text/plain;version=0.0.4",
    "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "application/json",
    "application/json, */*",
    # Prometheus 1 and early 2; then it asks for a draft of OpenMetrics
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.1",
    "text/plain;version=0.0.4;q=1,*/*;q=0.1",
    "application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    # Prometheus 3 told to prefer text, or to scrape nothing else
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5,"
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.4,*/*;q=0.3",
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.4",
    "application/openmetrics-text;version=2.0.0",
    "application/openmetrics-text, text/plain",
    "text/plain, application/openmetrics-text",
    "text/plain, application/openmetrics-text;q=0.9",
    "application/openmetrics-text;q=0.4, text/*;q=0.5",
    "application/openmetrics-text;q=0.4, */*;q=0.5",
    "application/openmetrics-text;q=0",
    "application/openmetrics-text;q=0, application/*, */*",
    "application/openmetrics-text;q=-1",
    "application/openmetrics-text;q=2",
    "application/openmetrics-text;q=nan",
    "application/openmetrics-text;q=",
    "application/openmetrics-textual",
    "*/*;q=0",
    "é, \x00, application",
    "application/openmetrics-text" + " " * 2000,
]


@pytest.mark.parametrize("accept", OPENMETRICS)
def test_openmetrics_where_it_is_preferred(accept: str) -> None:
    body, media_type = collector(Stats(16)).page(accept.encode())
    assert media_type == b"application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert body.endswith(b"# EOF\n")


@pytest.mark.parametrize("accept", [None, *TEXT])
def test_text_in_every_other_case(accept: str | None) -> None:
    body, media_type = collector(Stats(16)).page(None if accept is None else accept.encode())
    assert media_type == b"text/plain; version=0.0.4; charset=utf-8"
    assert b"# EOF" not in body


@given(st.binary(max_size=200) | st.text("aplicton/m-x*;,=q.01 ").map(str.encode))
def test_nothing_in_a_header_raises(accept: bytes) -> None:
    assert prefers_openmetrics(accept) in (True, False)


@pytest.mark.parametrize("piece", [b",", b";", b"=", b'"', b"application/openmetrics-text,", b"*/*;q=0.1,"])
def test_a_long_header_costs_little(piece: bytes) -> None:
    began = time.process_time()
    for _ in range(100):
        prefers_openmetrics(piece * (64_000 // len(piece)))
        prefers_openmetrics(piece * (1_000 // len(piece)))
    assert time.process_time() - began < 0.5
