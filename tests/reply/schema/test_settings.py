"""The options decide where the schema does not: the rules of llm-d-inference-sim without its faults."""

from collections import Counter
from typing import Any

import pytest

from llmdsim.config.table import Config
from llmdsim.reply.schema import ValueSettings
from tests.reply.schema.values import Settings, generated, values

OBJECT = {
    "properties": {
        "must": {"type": "integer"},
        "may": {"type": "integer"},
        "inner": {"type": "object", "properties": {"may": {"type": "integer"}}},
    },
    "required": ["must", "inner"],
}


def test_the_configuration_is_such_a_setting() -> None:
    config: ValueSettings = Config(model="m")
    for name in Settings.__dataclass_fields__:
        assert getattr(config, name) == getattr(Settings(), name)


def test_integers_take_both_ends() -> None:
    found = values({"type": "integer"}, 300, min_tool_call_integer_param=-2, max_tool_call_integer_param=3)
    assert set(found) == {-2, -1, 0, 1, 2, 3}


def test_numbers_stay_within() -> None:
    found = values({"type": "number"}, 300, min_tool_call_number_param=2.5, max_tool_call_number_param=4.0)
    assert min(found) < 2.7
    assert max(found) > 3.8
    assert all(2.5 <= value < 4.0 for value in found)


def test_arrays_take_both_lengths() -> None:
    found = values({"type": "array", "items": {"type": "null"}}, 300)
    assert {len(value) for value in found} == {1, 2, 3, 4, 5}
    found = values(
        {"type": "array"}, 50, min_tool_call_array_param_length=0, max_tool_call_array_param_length=0
    )
    assert all(value == [] for value in found)


@pytest.mark.parametrize(("percent", "least", "most"), [(0, 0, 0), (100, 400, 400), (25, 70, 130)])
def test_members_that_are_not_required_have_their_chances(percent: int, least: int, most: int) -> None:
    outside = values(OBJECT, 400, tool_call_not_required_param_probability=percent)
    assert least <= sum("may" in value for value in outside) <= most
    assert 150 < sum("may" in value["inner"] for value in outside) < 250
    inside = values(OBJECT, 400, object_tool_call_not_required_field_probability=percent)
    assert least <= sum("may" in value["inner"] for value in inside) <= most
    assert all("must" in value for value in outside + inside)


@pytest.mark.parametrize(
    ("schema", "low", "high"),
    [
        ({"type": "integer", "minimum": 500}, 500, 600),
        ({"type": "integer", "maximum": -500}, -600, -500),
        ({"type": "integer", "minimum": 40}, 40, 100),
        ({"type": "integer", "maximum": 40}, 0, 40),
        ({"type": "integer", "minimum": 150, "maximum": 160}, 150, 160),
        ({"type": "integer", "exclusiveMinimum": 100}, 101, 200),
        ({"type": "number", "minimum": 500}, 500, 600),
        ({"type": "number", "minimum": 1e300, "maximum": 1.7e308}, 1e300, 1.7e308),
        ({"type": "number", "minimum": 0.001, "maximum": 0.002}, 0.001, 0.002),
    ],
)
def test_bounds_of_the_schema_win(schema: Any, low: float, high: float) -> None:
    found = values(schema)
    assert all(low <= value <= high for value in found)
    assert len(set(found)) > 5


@pytest.mark.parametrize(
    ("schema", "lengths"),
    [
        ({"minItems": 7}, {7}),
        ({"minItems": 3}, {3, 4, 5}),
        ({"maxItems": 2}, {1, 2}),
        ({"maxItems": 0}, {0}),
        ({"minItems": 6, "maxItems": 8}, {6, 7, 8}),
        ({"prefixItems": [{}, {}, {}]}, {3}),
        ({"prefixItems": [{}, {}], "minItems": 1, "items": False}, {2}),
    ],
)
def test_lengths_of_the_schema_win(schema: Any, lengths: set[int]) -> None:
    found = {len(value) for value in values({"type": "array", **schema})}
    assert found == lengths or (found <= lengths | {1} and "prefixItems" in schema)


def test_enumerations_and_booleans_are_even() -> None:
    for schema in ({"enum": ["a", "b", "c"]}, {"type": "boolean"}):
        counted = Counter(map(str, values(schema, 600)))
        assert max(counted.values()) < 1.4 * min(counted.values())


def test_what_crashes_the_peer_or_gives_its_500() -> None:
    for schema in (
        {"type": "object", "properties": {"a": {"type": "array", "items": [{"type": "string"}]}}},
        {"type": "array"},
        {"type": "object"},
        {"type": "null"},
        {"type": "array", "minItems": "three"},
        {"type": "array", "minItems": 3, "maxItems": 1},
    ):
        generated(schema)
