"""Which of several connectors it is that blocks go by from server to server."""

from __future__ import annotations

import pytest

from llmdsim.config.kv_transfer import transferring

NIXL = {"kv_connector": "NixlConnector"}
STORE = {"kv_connector": "MooncakeStoreConnector"}
OFFLOADING = {"kv_connector": "OffloadingConnector"}


def several(*children: object) -> dict[str, object]:
    return {"kv_connector": "MultiConnector", "kv_connector_extra_config": {"connectors": list(children)}}


@pytest.mark.parametrize(
    ("config", "connector", "engine_id"),
    [
        ({}, "", "own"),
        (NIXL, "NixlConnector", "own"),
        ({"kv_connector": None}, "", "own"),
        (several(OFFLOADING, NIXL), "NixlConnector", "own"),
        (several({**NIXL, "engine_id": "child"}, STORE), "NixlConnector", "child"),
        (several({**NIXL, "engine_id": 7}), "NixlConnector", "own"),
        (several(STORE, OFFLOADING), "MooncakeStoreConnector", "own"),
        (several({"kv_connector": "FlexKVConnectorV1"}), "FlexKVConnectorV1", "own"),
        (several(NIXL, {"kv_connector": "MooncakeConnector"}), "MultiConnector", "own"),
        (several(STORE, STORE), "MultiConnector", "own"),
        (several(OFFLOADING), "MultiConnector", "own"),
        (several(), "MultiConnector", "own"),
        (several("x", None, {}), "MultiConnector", "own"),
        ({"kv_connector": "MultiConnector"}, "MultiConnector", "own"),
        ({"kv_connector": "MultiConnector", "kv_connector_extra_config": [1]}, "MultiConnector", "own"),
        ({**several(STORE), "kv_connector": "NixlConnector"}, "NixlConnector", "own"),
    ],
)
def test_the_connector_between_servers(config: dict[str, object], connector: str, engine_id: str) -> None:
    assert transferring(config, "own") == (connector, engine_id)
