"""The table of paths that keys, ports and documentation go by."""

from __future__ import annotations

from typing import Final

#: Probes, metrics and documentation: on every port, without a key.
EVERYWHERE: Final = frozenset(
    (
        "/health",
        "/health/ready",
        "/ready",
        "/ping",
        "/metrics",
        "/load",
        "/version",
        "/docs",
        "/openapi.json",
    )
)

#: Without a key too: what other servers and routers of a deployment ask, which are given none (vLLM).
KEYLESS: Final = EVERYWHERE | {"/kv_event_sources", "/query"}

#: First segments of the paths for administration and development.
_ADMINISTRATION: Final = frozenset(
    (
        "admin",
        "fake_metrics",
        "sleep",
        "wake_up",
        "is_sleeping",
        "release_kv_cache_memory",
        "pause",
        "resume",
        "is_paused",
        "abort_requests",
        "reset_prefix_cache",
        "reset_mm_cache",
        "reset_encoder_cache",
        "server_info",
        "collective_rpc",
        "start_profile",
        "stop_profile",
        "init_weight_transfer_engine",
        "shutdown_weight_transfer_engine",
        "start_weight_update",
        "start_draft_weight_update",
        "update_weights",
        "finish_weight_update",
        "update_weight_version",
        "weight_info",
        "weight_checker",
        "get_world_size",
        "scale_elastic_ep",
        "is_scaling_elastic_ep",
        "fault_tolerance",
    )
)


def is_administration(path: str) -> bool:
    """Whether a path, or the rule of a route, belongs to administration or development."""
    return path.split("/", 2)[1] in _ADMINISTRATION


def is_public(path: str) -> bool:
    """Whether the public port serves it while another one is for administration."""
    return not is_administration(path)


def is_on_admin_port(path: str) -> bool:
    """Whether a port for administration serves it."""
    return is_administration(path) or path.rstrip("/") in EVERYWHERE
