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


def test_an_adapter_that_is_loaded_in_place_is_the_same_one() -> None:
    adapters = Adapters()
    held = adapters.load("a", "/old", "m")
    adapters.load("b", "/b", "m")
    assert adapters.load("a", "/new", "other") is held
    assert (held.id, held.path, held.parent) == (1, "/new", "other")
    assert [one.name for one in adapters] == ["a", "b"]


def test_an_adapter_that_comes_again_has_a_new_id() -> None:
    adapters = Adapters()
    assert not adapters.in_use
    first = adapters.load("a", "/a", "m")
    assert adapters.unload("a") is first
    assert adapters.get("a") is None
    assert not len(adapters)
    again = adapters.load("a", "/a", "m")
    assert (first.known, again.known, again.id) == (False, True, 2)
    assert adapters.in_use


def test_only_what_is_known_can_be_unloaded() -> None:
    with pytest.raises(KeyError):
        Adapters().unload("a")
