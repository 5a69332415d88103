"""The engine's load, told in a header of the response to clients that ask for it (ORCA)."""

from __future__ import annotations

from typing import Final

from llmdsim.engine.stats import Stats

#: The request header that asks, with the format as its value.
LOAD_FORMAT: Final = b"endpoint-load-metrics-format"


def load_header(format_: bytes, stats: Stats) -> bytes:
    """`endpoint-load-metrics` as a header line; nothing for a format but TEXT and JSON, in any case."""
    waiting, usage = float(stats.waiting), float(stats.kv_cache_usage)
    match format_.strip().lower():
        case b"text":
            report = (
                f"TEXT named_metrics.num_requests_waiting={waiting}, "
                f"named_metrics.kv_cache_usage_perc={usage}"
            )
        case b"json":
            report = (
                f'JSON {{"named_metrics": {{"num_requests_waiting": {waiting}, '
                f'"kv_cache_usage_perc": {usage}}}}}'
            )
        case _:
            return b""
    return f"endpoint-load-metrics: {report}\r\n".encode()
