"""Which tools llm-d-inference-sim takes; every verdict here was seen on the running program."""

from random import Random
from typing import Any

import pytest

from llmdsim.reply.schema import Schema
from llmdsim.reply.strict_tools import MAX_NESTING, strict_problem
from tests.reply.schema.values import Settings

STRING = {"type": "string"}


def tool(parameters: Any, **others: Any) -> dict[str, Any]:
    return {"name": "f", "description": "d", "parameters": parameters, **others}


def with_member(member: Any, **others: Any) -> dict[str, Any]:
    return tool({"type": "object", "properties": {"a": member}, **others})


TAKEN: dict[str, dict[str, Any]] = {
    "a string": with_member(STRING, required=["a"], additionalProperties=False, title="T"),
    "no description": {"name": "f", "parameters": {"type": "object", "properties": {}}},
    "a description of null": tool({"type": "object", "properties": {}}, description=None),
    "no name": {"parameters": {"type": "object", "properties": {}}},
    "another key": tool({"type": "object", "properties": {}}, strict=True),
    "parameters that are no object": tool({"type": "string"}),
    "keywords of numbers": with_member(
        {"type": "integer", "minimum": 0, "maximum": 5, "exclusiveMinimum": True, "exclusiveMaximum": 9}
    ),
    "keywords of strings": with_member(
        {"type": "string", "minLength": 1, "maxLength": 2, "pattern": "a", "format": "date", "default": 1}
    ),
    "a list of items": with_member({"type": "array", "items": [STRING, STRING]}),
    "an empty list of items": with_member({"type": "array", "items": []}),
    "null": with_member({"type": "null"}),
    "an enumeration of strings": with_member({"type": "string", "enum": ["x", "y", "x"]}),
    "an enumeration of integers": with_member({"type": "integer", "enum": [1, 2]}),
    "an enumeration of booleans": with_member({"type": "boolean", "enum": [True]}),
    "an empty enumeration": with_member({"type": "string", "enum": []}),
    "a string with properties": with_member({"type": "string", "properties": {"b": STRING}, "items": STRING}),
}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no parameters": ({"name": "f"}, "parameters are missing"),
    "parameters of null": (tool(None), "parameters must be an object"),
    "no type": (with_member({"description": "x"}), "parameters.a: type must be one of"),
    "a list of types": (with_member({"type": ["string", "null"]}), "parameters.a: type must be one of"),
    "an unknown type": (with_member({"type": "date"}), "parameters.a: type must be one of"),
    "a reference": (with_member({"$ref": "#"}), "parameters.a: type must be one of"),
    "branches": (with_member({"type": "string", "anyOf": [STRING]}), "parameters.a: anyOf is not supported"),
    "definitions": (with_member(STRING, **{"$defs": {}}), "parameters: $defs is not supported"),
    "a dialect": (with_member(STRING, **{"$schema": "x"}), "parameters: $schema is not supported"),
    "a constant": (with_member({"type": "string", "const": "x"}), "parameters.a: const is not supported"),
    "examples": (with_member({"type": "string", "examples": []}), "parameters.a: examples is not supported"),
    "nullable": (with_member({**STRING, "nullable": True}), "parameters.a: nullable is not supported"),
    "an array of anything": (with_member({"type": "array"}), "parameters.a: an array needs items"),
    "an object of anything": (with_member({"type": "object"}), "parameters.a: an object needs properties"),
    "no properties": (tool({"type": "object"}), "parameters: an object needs properties"),
    "properties in a list": (
        tool({"type": "object", "properties": []}),
        "parameters: properties must be an object",
    ),
    "a mixed enumeration": (
        with_member({"type": "string", "enum": ["x", 1]}),
        "parameters.a: the members of enum must be of the type string",
    ),
    "fractions as integers": (
        with_member({"type": "integer", "enum": [1.5]}),
        "parameters.a: the members of enum must be of the type integer",
    ),
    "an enumeration of null": (
        with_member({"type": "null", "enum": [None]}),
        "parameters.a: enum is not supported for the type null",
    ),
    "a mapping": (
        with_member(STRING, additionalProperties=STRING),
        "parameters: additionalProperties must be a boolean",
    ),
    "required as a string": (
        with_member(STRING, required="a"),
        "parameters: required must be an array of strings",
    ),
    "a negative length": (
        with_member({"type": "array", "items": STRING, "minItems": -1}),
        "parameters.a: minItems must be an integer of 0 or more",
    ),
    "a bound in words": (
        with_member({"type": "integer", "minimum": "0"}),
        "parameters.a: minimum must be a number",
    ),
    "a numeric pattern": (
        with_member({"type": "string", "pattern": 1}),
        "parameters.a: pattern must be a string",
    ),
    "a member that is no schema": (with_member("string"), "parameters.a must be an object"),
    "items of true": (
        with_member({"type": "array", "items": True}),
        "parameters.a: items must be an object or an array",
    ),
    "something deep inside": (
        with_member({"type": "array", "items": [STRING, {"type": "object", "properties": {"b": {}}}]}),
        "parameters.a[1].b: type must be one of",
    ),
}


@pytest.mark.parametrize("function", TAKEN.values(), ids=TAKEN)
def test_what_the_peer_takes_is_taken_and_answered(function: dict[str, Any]) -> None:
    assert strict_problem(function) is None
    for seed in range(10):
        Schema(function["parameters"]).generate(Random(seed), Settings())


@pytest.mark.parametrize(("function", "problem"), REFUSED.values(), ids=REFUSED)
def test_what_the_peer_refuses_is_refused_with_a_reason(function: dict[str, Any], problem: str) -> None:
    found = strict_problem(function)
    assert found is not None
    assert found.startswith(problem)
    assert "/" not in found.removeprefix(problem)


def test_endless_nesting_is_refused() -> None:
    schema: dict[str, Any] = STRING
    for _ in range(MAX_NESTING):
        schema = {"type": "array", "items": schema}
    assert "levels deep" in str(strict_problem(tool(schema)))
    assert strict_problem(tool(schema["items"])) is None
