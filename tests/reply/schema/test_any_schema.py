"""Schemas of the documented keywords give valid values; anything at all gives some value, soon."""

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from llmdsim.reply.schema import Schema
from tests.reply.measuring import cpu_time
from tests.reply.schema.everyday import BEYOND, EVERYDAY
from tests.reply.schema.oracle import problem
from tests.reply.schema.values import Settings, generated

NAMES = st.sampled_from(["a", "b", "city", "user_id", "ü", "x y"])
FORMATS = [
    "date-time",
    "date",
    "time",
    "duration",
    "email",
    "uri",
    "uuid",
    "ipv4",
    "ipv6",
    "hostname",
    "other",
]
PATTERNS = ["^[a-z]+$", "[0-9]{2}", "^(ab|cd)*$", "^x", "z$", r"^\w+\.\w{2,3}$"]


def _pairs(low: int, high: int, *keywords: str) -> st.SearchStrategy[dict[str, Any]]:
    """Each keyword or not, their values ascending."""

    def chosen(numbers: list[int], given_ones: list[bool]) -> dict[str, Any]:
        numbers = sorted(numbers)
        return {
            keyword: number
            for keyword, number, wanted in zip(keywords, numbers, given_ones, strict=True)
            if wanted
        }

    size = len(keywords)
    return st.builds(
        chosen,
        st.lists(st.integers(low, high), min_size=size, max_size=size),
        st.lists(st.booleans(), min_size=size, max_size=size),
    )


@st.composite
def numeric(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["integer", "number"]))
    schema: dict[str, Any] = {"type": kind}
    low = draw(st.one_of(st.integers(-1000, 1000), st.floats(-1e6, 1e6)))
    width = draw(st.one_of(st.integers(3, 500), st.floats(3, 1e4)))
    if draw(st.booleans()):
        schema[draw(st.sampled_from(["minimum", "exclusiveMinimum"]))] = low
    if draw(st.booleans()):
        schema[draw(st.sampled_from(["maximum", "exclusiveMaximum"]))] = low + width
    elif draw(st.booleans()):
        schema["multipleOf"] = draw(st.sampled_from([1, 2, 5, 0.5, 0.25, 0.01, 7, 1000, 1.5]))
    return schema


SCALARS = st.one_of(
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.just({}),
    st.just(True),
    numeric(),
    _pairs(0, 40, "minLength", "maxLength").map(lambda lengths: {"type": "string", **lengths}),
    st.sampled_from(FORMATS).map(lambda name: {"type": "string", "format": name}),
    st.sampled_from(PATTERNS).map(lambda pattern: {"type": "string", "pattern": pattern}),
    st.lists(
        st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.text(max_size=4), st.just({"a": [1]})),
        min_size=1,
        max_size=4,
    ).map(lambda options: {"enum": options}),
    st.integers(-3, 3).map(lambda value: {"const": value, "title": "T", "description": "D"}),
    st.lists(
        st.sampled_from(["string", "integer", "null", "boolean", "object"]), min_size=1, unique=True
    ).map(lambda types: {"type": types}),
    st.sampled_from(["whole", "text"]).map(lambda name: {"$ref": f"#/$defs/{name}"}),
    st.just({"type": "string", "nullable": True, "default": "d", "examples": ["one", "two"]}),
)


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    properties = draw(st.dictionaries(NAMES, inner, max_size=4))
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    names = sorted(properties)
    if names:
        schema["required"] = draw(st.lists(st.sampled_from(names), unique=True))
    schema |= draw(
        st.one_of(st.just({}), st.booleans().map(lambda b: {"additionalProperties": b}))
        if names
        else st.one_of(st.just({}), inner.map(lambda each: {"additionalProperties": each}))
    )
    if draw(st.booleans()):
        schema["minProperties"] = draw(st.integers(0, len(names)))
    if draw(st.booleans()):
        schema["maxProperties"] = draw(st.integers(max(len(names), 1), 6))
    return schema


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "array", **draw(_pairs(0, 6, "minItems", "maxItems"))}
    if draw(st.booleans()):
        schema["prefixItems"] = draw(st.lists(inner, min_size=1, max_size=3))
    if draw(st.booleans()):
        schema["items"] = draw(inner)
    elif "prefixItems" not in schema and draw(st.booleans()):
        # Beside the first ones, which may be the same constant, nothing could be unique.
        schema |= {"items": {"type": "integer"}, "uniqueItems": True}
    return schema


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        objects(inner),
        arrays(inner),
        several.map(lambda schemas: {"anyOf": schemas}),
        # What several objects, or a number's bounds, say together can be met.
        st.lists(objects(st.just({"type": "integer"})), min_size=1, max_size=3).map(
            lambda schemas: {
                "allOf": [
                    {key: schema[key] for key in ("type", "properties", "required") if key in schema}
                    for schema in schemas
                ]
            }
        ),
        st.lists(
            st.sampled_from([{"type": "string"}, {"type": "integer"}, {"type": "null"}, {"type": "array"}]),
            min_size=1,
            max_size=3,
            unique_by=str,
        ).map(lambda schemas: {"oneOf": schemas}),
        st.lists(NAMES, min_size=1, max_size=3, unique=True).map(
            lambda kinds: {
                "oneOf": [
                    {"properties": {"kind": {"const": kind}, "n": {"type": "integer"}}, "required": ["kind"]}
                    for kind in kinds
                ]
            }
        ),
    )


DEFINITIONS = {
    "whole": {"type": "integer", "minimum": 2},
    "text": {"type": "string", "maxLength": 9},
}
SCHEMAS = st.recursive(SCALARS, _nested, max_leaves=10).map(
    lambda schema: {**schema, "$defs": DEFINITIONS} if isinstance(schema, dict) else schema
)


@settings(max_examples=1000)
@given(SCHEMAS, st.integers(0, 2**32))
def test_every_value_of_the_documented_keywords_is_valid(schema: Any, seed: int) -> None:
    made = generated(schema, seed)
    assert problem(made.text, schema) is None, made.text
    assert made.conforming


# -- Anything ----------------------------------------------------------------------------------------------

KEYWORDS = sorted(
    {
        keyword
        for schema in [*EVERYDAY.values(), *BEYOND.values()]
        if isinstance(schema, dict)
        for keyword in schema
    }
    | {
        "$ref",
        "$anchor",
        "$dynamicRef",
        "$id",
        "allOf",
        "const",
        "default",
        "enum",
        "examples",
        "exclusiveMaximum",
    }
    | {
        "exclusiveMinimum",
        "format",
        "maxItems",
        "maxLength",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
    }
    | {
        "multipleOf",
        "nullable",
        "pattern",
        "patternProperties",
        "prefixItems",
        "uniqueItems",
        "additionalItems",
    }
    | {"then", "unevaluatedProperties", "maxContains", "minContains"}
)
NONSENSE = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-5, 5),
        st.sampled_from([10**9, 10**30, -(10**400), 1e308, 5e-324, 0.1, -1.5]),
        st.sampled_from(
            ["string", "object", "array", "integer", "number", "null", "boolean", "date", "a", ""]
        ),
        st.sampled_from(
            ["#", "#/$defs/a", "#a", "http://x.example/y#/z", "#/%zz/~3/0", "(a+)+$", "^b", "uuid"]
        ),
        st.text(max_size=3),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=5),
        st.dictionaries(st.sampled_from([*KEYWORDS, "a", "b"]), inner, max_size=3),
    ),
    max_leaves=25,
)


@settings(max_examples=1500)
@given(NONSENSE, st.integers(0, 2**32))
def test_anything_is_a_schema(schema: Any, seed: int) -> None:
    with cpu_time() as spent:
        made = generated(schema, seed)
        assert spent() < 0.5
    assert len(made.text) < 500_000
    json.loads(made.text)
    # What claims to conform does so, where the schema is one.
    if made.conforming:
        try:
            Draft202012Validator.check_schema(schema)
        except Exception:
            return
        if "(a+)+$" not in str(schema):
            assert problem(made.text, schema) is None, made.text


def _nest(depth: int, keyword: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {keyword: [schema, schema]} if keyword.endswith("Of") else {keyword: schema}
    return schema


def _chain(length: int) -> dict[str, Any]:
    definitions = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(length)}
    return {"$defs": definitions, "$ref": "#/$defs/d0"}


MONSTERS: dict[str, Any] = {
    "itself": {"$ref": "#"},
    "itself twice": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
    "itself in all branches": {"anyOf": [{"$ref": "#"}, {"anyOf": [{"$ref": "#"}]}]},
    "required of itself": {"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}, "required": ["a", "b"]},
    "items of itself": {"type": "array", "items": {"$ref": "#"}, "minItems": 2},
    "not itself": {"not": {"$ref": "#"}},
    "huge array": {"type": "array", "minItems": 10**9},
    "huge arrays": {"minItems": 200, "items": {"minItems": 200, "items": {"minItems": 200, "items": {}}}},
    "huge string": {"type": "string", "minLength": 10**9},
    "huge strings": {"type": "array", "minItems": 400, "items": {"type": "string", "minLength": 8000}},
    "huge pattern": {"type": "string", "pattern": "a{1000000}"},
    "huge patterns": {
        "properties": {f"p{n}": {"pattern": "(a?){50}" * 30 + str(n)} for n in range(300)},
        "required": [f"p{n}" for n in range(300)],
    },
    "huge programs": {
        "allOf": [{"properties": {f"p{n}": {"pattern": f"(?=x)(a|b){{1000}}{n}"}}} for n in range(300)],
        "required": [f"p{n}" for n in range(300)],
    },
    "huge programs for names": {
        "patternProperties": {f"(?:a|b){{1000}}{n}": {} for n in range(300)},
        "required": ["a", "b"],
    },
    "huge number": {"type": "integer", "minimum": 10**4000, "multipleOf": 10**300},
    "tiny number": {"type": "number", "multipleOf": 5e-324, "minimum": 1e308},
    "many members": {
        "properties": {f"m{n}": {} for n in range(20_000)},
        "required": [f"m{n}" for n in range(20_000)],
    },
    "many required of itself": {
        "properties": {f"m{n}": {"$ref": "#"} for n in range(2000)},
        "required": [f"m{n}" for n in range(2000)],
    },
    "large constants": {"type": "array", "minItems": 400, "items": {"const": "x" * 5000}},
    "large enumeration": {"enum": [{"a": [n] * 10} for n in range(5000)], "type": "string"},
    "unique of few": {"type": "array", "minItems": 300, "uniqueItems": True, "items": {"enum": [1, 2]}},
    "catastrophe": {
        "type": "string",
        "pattern": "^(a+)+$",
        "not": {"pattern": "^((a|b)+)*c"},
        "minLength": 50,
    },
    "catastrophe in names": {"patternProperties": {"(a*)*b": {"type": "null"}}, "required": ["a" * 4000]},
    "deep anyOf": _nest(90, "anyOf"),
    "deep oneOf": _nest(90, "oneOf"),
    "deep not": _nest(90, "not"),
    "deep items": _nest(90, "items"),
    "deep enough to overflow": _nest(5000, "items"),
    "long chain": _chain(30),
    "longer chain": _chain(3000),
    "wide anyOf": {"anyOf": [{"type": "string", "minLength": 9, "maxLength": 8}] * 5000},
    "product of branches": {"allOf": [{"anyOf": [False, {"not": {}}]} for _ in range(40)]},
}

_HEAP = list(range(30_000))
_LONG = {"type": "array", "minItems": 500}
MONSTERS |= {
    "a constant of many values, often": {**_LONG, "items": {"const": list(range(100_000))}},
    "constants alike within": {"enum": [[[[_HEAP]], n] for n in range(64)], "not": {"type": "array"}},
    "parts, often": {**_LONG, "items": {"allOf": [{"type": "object"}] * 100_000}},
    "an enum of many texts, often": {**_LONG, "items": {"enum": [f"x{n}" for n in range(300_000)]}},
    "many ids": {"$ref": "i9", "$defs": {f"d{n}": {"$id": f"i{n}"} for n in range(100_000)}},
    "many dependents": {
        **_LONG,
        "items": {"required": ["a"], "dependentRequired": {"a": ["b"] * 500_000}},
    },
    "many types, often": {**_LONG, "items": {"type": ["null"] * 500_000}},
    "many required, often": {**_LONG, "items": {"required": [str(n) for n in range(300_000)]}},
    "many patterns, often": {**_LONG, "items": {"patternProperties": {f"^{n}": {} for n in range(200_000)}}},
    "many multiples": {"allOf": [{"multipleOf": (n * 7919 + 1) * 1e-300} for n in range(3000)]},
}


@pytest.mark.parametrize("schema", MONSTERS.values(), ids=MONSTERS)
def test_monsters_are_bounded(schema: Any) -> None:
    with cpu_time() as spent:
        made = Schema(schema).generate(Random(1), Settings())
        # Some ten milliseconds, but other work on the machine slows it down.
        assert spent() < 0.2
    assert len(made.text) < 200_000
    json.loads(made.text)
