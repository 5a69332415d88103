"""The registry of adapters."""

from __future__ import annotations

import pytest

from llmdsim.engine.adapters import Adapters


def test_adapters_keep_their_order_and_have_ids_of_their_own() -> None:
    adapters = Adapters()
    for name in ("b", "a", "c"):
        adapters.load(name, f"/{name}", "m")
    assert [(one.name, one.path, one.id, one.parent) for one in adapters] == [
        ("b", "/b", 1, "m"),
        ("a", "/a", 2, "m"),
        ("c", "/c", 3, "m"),
    ]
    assert len(adapters) == 3


def test_an_adapter_that_is_replaced_keeps_its_id_and_its_place() -> None:
    adapters = Adapters()
    held = adapters.load("a", "/old", "m")
    adapters.load("b", "/b", "m")
    new = adapters.load("a", "/new", "m")
    assert (new.id, [one.path for one in adapters]) == (held.id, ["/new", "/b"])
    assert held.path == "/old"
    assert adapters.get("a") is new


def test_an_adapter_that_comes_again_has_a_new_id() -> None:
    adapters = Adapters()
    adapters.load("a", "/a", "m")
    adapters.unload("a")
    assert adapters.get("a") is None
    assert not len(adapters)
    assert adapters.load("a", "/a", "m").id == 2


def test_only_what_is_known_can_be_unloaded() -> None:
    with pytest.raises(KeyError):
        Adapters().unload("a")
