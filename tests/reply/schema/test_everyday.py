"""Values for the schemas that tools have."""

import json
from random import Random
from typing import Any

import pytest
from jsonschema import Draft4Validator, Draft7Validator

from llmdsim.reply.schema import Schema
from tests.reply.schema.everyday import BEYOND, EVERYDAY
from tests.reply.schema.oracle import problem
from tests.reply.schema.values import Settings, generated, values


@pytest.mark.parametrize("schema", [*EVERYDAY.values(), *BEYOND.values()], ids=[*EVERYDAY, *BEYOND])
def test_r2_every_value_is_valid(schema: Any) -> None:
    for seed in range(60):
        made = generated(schema, seed)
        assert problem(made.text, schema) is None
        assert made.conforming


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": [{"type": "string"}, {"type": "integer"}], "additionalItems": False},
        {"type": "array", "items": [{"type": "boolean"}], "additionalItems": {"type": "null"}, "minItems": 4},
        {"type": "object", "properties": {"a": {"items": [{"const": 1}]}}, "required": ["a"]},
    ],
)
def test_items_may_be_a_list(schema: Any) -> None:
    for seed in range(40):
        made = generated(schema, seed)
        assert problem(made.text, schema, Draft7Validator) is None
        assert made.conforming


def test_exclusive_bounds_may_be_booleans() -> None:
    schema = {"minimum": 4, "exclusiveMinimum": True, "maximum": 6, "exclusiveMaximum": True}
    for kind in ("integer", "number"):
        for seed in range(40):
            made = generated({"type": kind, **schema}, seed)
            assert problem(made.text, {"type": kind, **schema}, Draft4Validator) is None
            assert made.conforming


def test_members_come_in_the_order_of_the_schema() -> None:
    names = ["zebra", "apple", "mango", "berry"]
    schema = {"properties": {name: {"type": "integer"} for name in names}, "required": names[2:]}
    for value in values(schema, 30):
        assert list(value) == [name for name in names if name in value]


def test_the_same_source_gives_the_same_value() -> None:
    schema = EVERYDAY["pydantic order"]
    assert generated(schema, 5) == generated(schema, 5)
    assert len({generated(schema, seed).text for seed in range(20)}) == 20
    source = Random(5)
    made = [Schema(schema).generate(source, Settings()) for _ in range(2)]
    assert made[0] != made[1]


def test_strings_read_like_what_their_member_is_named() -> None:
    schema = {
        "properties": {name: {"type": "string"} for name in ("city", "firstName", "search_query", "xyz")},
        "required": ["city", "firstName", "search_query", "xyz"],
    }
    value = values(schema, 1)[0]
    assert value["city"].istitle()
    assert value["firstName"].istitle()
    assert " " in value["search_query"]
    assert value["xyz"].isalpha()


def test_nothing_said_is_an_object_outside_and_a_string_inside() -> None:
    assert generated({}).text == generated(True).text == "{}"
    assert isinstance(values({"required": ["a"]}, 1)[0]["a"], str)


def test_a_type_left_out_follows_from_the_keywords() -> None:
    assert all(isinstance(value, list) for value in values({"items": {"type": "null"}}, 20))
    assert all(value > 7 for value in values({"exclusiveMinimum": 7}, 20))
    assert all(len(value) == 3 for value in values({"minLength": 3, "maxLength": 3}, 20))


def test_all_branches_and_types_are_used() -> None:
    assert set(map(type, values({"type": ["string", "null", "boolean"]}))) == {str, type(None), bool}
    branches = {"anyOf": [{"const": 1}, {"const": 2}, {"const": 3}]}
    assert set(values(branches)) == {1, 2, 3}
    assert set(values({"oneOf": branches["anyOf"]})) == {1, 2, 3}
    assert set(values({"enum": ["x", "y", "z"]})) == {"x", "y", "z"}


def test_examples_are_used_where_they_are_valid() -> None:
    assert set(values({"type": "string", "examples": ["north", 3, "south"]}, 20)) == {"north", "south"}
    assert all(isinstance(value, int) for value in values({"type": "integer", "examples": ["north"]}, 20))


def test_null_is_left_to_what_the_library_knows_too() -> None:
    assert None not in values({"type": "string", "nullable": True})


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"minLength": 5, "maxLength": 3, "type": "string"}, ""),
        ({"minimum": 5, "maximum": 3, "type": "integer"}, 0),
        ({"type": "string", "pattern": "("}, ""),
        ({"type": "string", "enum": [1, 2]}, ""),
        ({"allOf": [{"type": "string"}, {"type": "boolean"}]}, None),
        (False, ""),
        ({"type": "boolean", "not": {}}, False),
        ({"type": "array", "minItems": 9, "maxItems": 2}, []),
    ],
)
def test_what_cannot_be_met_is_told_and_gets_the_simplest_value(schema: Any, expected: Any) -> None:
    for wanted, value in (
        (schema, expected),
        (
            {"properties": {"a": schema, "b": {"const": 1}, "c": {}}, "required": ["a", "b"]},
            {"a": expected, "b": 1},
        ),
    ):
        made = generated(wanted)
        assert not made.conforming
        assert json.loads(made.text) == value or (schema is False and made.text == "{}")


def test_an_optional_member_that_cannot_be_is_left_out() -> None:
    schema = {"properties": {"a": {"type": "integer"}, "b": False}, "required": ["a"]}
    for value in values(schema):
        assert list(value) == ["a"]


def test_what_cannot_be_told_does_not_conform() -> None:
    for schema in (
        {"type": "object", "unevaluatedProperties": False},
        {"$ref": "#/nowhere"},
        {"$ref": "https://schemas.example/address.json"},
        {"$dynamicRef": "#node"},
        {"type": "strnig"},
        {"minimum": "5"},
        {"$defs": {"a": {"$id": "https://other.example/", "type": "null"}}, "$ref": "#/$defs/a"},
        {"pattern": "a*+b"},
    ):
        assert not generated(schema).conforming


def test_not_more_members_than_may_be() -> None:
    schema = {
        "properties": {name: {"type": "null"} for name in "abcde"},
        "required": ["d"],
        "maxProperties": 2,
    }
    found = values(schema, 60, tool_call_not_required_param_probability=100)
    assert all(len(value) == 2 and "d" in value for value in found)
    assert {name for value in found for name in value} == set("abcde")


@pytest.mark.parametrize(
    "schema",
    [
        {"format": "email", "pattern": "^[a-m]+@"},
        {"allOf": [{"pattern": "^[a-d]+$"}, {"pattern": "a"}, {"minLength": 2}]},
        {"format": "date", "allOf": [{"pattern": "^202[0-4]"}, {"pattern": "-01$|[2-9]$"}]},
    ],
)
def test_several_formats_and_patterns_are_met_together(schema: Any) -> None:
    for seed in range(40):
        made = generated({"type": "string", **schema}, seed)
        assert made.conforming
        assert problem(made.text, schema) is None


def test_a_branch_that_cannot_be_is_not_taken() -> None:
    schema = {
        "anyOf": [
            {"type": "string", "minLength": 5, "maxLength": 3},
            {"type": "object", "properties": {"a": False}, "required": ["a"]},
            {"type": "null"},
        ]
    }
    assert set(values(schema, 20)) == {None}


def test_a_deep_union_takes_the_way_out() -> None:
    schema: dict[str, Any] = {
        "$defs": {
            "expression": {
                "oneOf": [
                    {"$ref": "#/$defs/sum"},
                    {"$ref": "#/$defs/sum"},
                    {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
                ]
            },
            "sum": {
                "type": "object",
                "properties": {"l": {"$ref": "#/$defs/expression"}, "r": {"$ref": "#/$defs/expression"}},
                "required": ["l", "r"],
            },
        },
        "$ref": "#/$defs/expression",
    }
    schema["$defs"]["expression"]["oneOf"][1] = {"type": "array", "items": {"$ref": "#"}, "minItems": 2}
    for seed in range(40):
        made = generated(schema, seed)
        assert made.conforming
        assert problem(made.text, schema) is None
