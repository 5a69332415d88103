"""What `--kv-transfer-config` may hold: vLLM's description of how KV blocks move between servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from llmdsim.config.table import Config

#: Values of members that are checked; vLLM takes no others. All other members are taken as they come.
_CHECKED: Final = {
    "kv_role": ("kv_producer", "kv_consumer", "kv_both"),
    "kv_load_failure_policy": ("fail", "recompute"),
}

#: How the names of connectors begin by which a server reads from another, and from a store of all servers.
_BETWEEN_SERVERS: Final = ("NixlConnector", "MooncakeConnector", "MoRIIOConnector")
_STORES: Final = ("MooncakeStoreConnector", "SharedStorageConnector", "FlexKV", "HF3FS")


def kv_transfer_fault(config: Mapping[str, object]) -> str | None:
    """What is wrong with it, in words to follow the option's name; None if nothing is."""
    for name, allowed in _CHECKED.items():
        value = config.get(name)
        if value is not None and value not in allowed:
            return f"{name}: {value!r} is not one of {', '.join(allowed)}"
    return None


def disaggregates(config: Config) -> bool:
    """Whether anything is configured that only matters where prefill and decode are apart."""
    return bool(config.kv_transfer_config) or any(
        name.startswith("kv_cache_transfer") or name == "kv_transfer_failure_rate" for name in config.given
    )


def recomputes(config: Mapping[str, object] | None) -> bool:
    """Whether a prompt is prefilled here when its transfer has failed; else its request fails."""
    return config is not None and config.get("kv_load_failure_policy") == "recompute"


def transferring(config: Mapping[str, object], engine_id: str) -> tuple[str, str]:
    """The connector that blocks go by from server to server, and the engine's id there.

    Of several (vLLM's MultiConnector) it is the only one between two servers or, where there is none, the
    only one to a store that all of them share; MultiConnector itself where that is not clear.
    """
    name = str(config.get("kv_connector") or "")
    extra = config.get("kv_connector_extra_config")
    children = extra.get("connectors") if isinstance(extra, dict) else None
    if name != "MultiConnector" or not isinstance(children, list):
        return name, engine_id
    named = [(str(child.get("kv_connector") or ""), child) for child in children if isinstance(child, dict)]
    for kind in (_BETWEEN_SERVERS, _STORES):
        found = [(child_name, child) for child_name, child in named if child_name.startswith(kind)]
        if found:
            break
    if len(found) != 1:
        return name, engine_id
    ((child_name, child),) = found
    own = child.get("engine_id")
    return child_name, own if own and isinstance(own, str) else engine_id
