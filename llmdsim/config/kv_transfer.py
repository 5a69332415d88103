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
