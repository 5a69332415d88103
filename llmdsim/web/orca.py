"""The engine's load, told in a header of the response to clients that ask for it (ORCA)."""

from __future__ import annotations

from typing import Final, Protocol

#: The request header that asks, with the format as its value.
LOAD_FORMAT: Final = b"endpoint-load-metrics-format"


class Load(Protocol):
    """How busy the engine is, as it is told; None where that is not told."""

    @property
    def waiting(self) -> float | None:
        """Requests in the queue."""

    @property
    def kv_cache_usage(self) -> float | None:
        """The part of the KV cache in use, 0 to 1."""


def load_header(format_: bytes, load: Load) -> bytes:
    """`endpoint-load-metrics` as a header line; nothing for a format but TEXT and JSON, in any case."""
    told = {"num_requests_waiting": load.waiting, "kv_cache_usage_perc": load.kv_cache_usage}
    numbers = {name: float(value) for name, value in told.items() if value is not None}
    if not numbers:
        return b""
    match format_.strip().lower():
        case b"text":
            report = "TEXT " + ", ".join(f"named_metrics.{name}={value}" for name, value in numbers.items())
        case b"json":
            inside = ", ".join(f'"{name}": {value}' for name, value in numbers.items())
            report = f'JSON {{"named_metrics": {{{inside}}}}}'
        case _:
            return b""
    return f"endpoint-load-metrics: {report}\r\n".encode()
