"""The check of a value says what the jsonschema library says."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from llmdsim.reply.effort import Effort, TooHardError
from llmdsim.reply.schema.checking import Checker
from llmdsim.reply.schema.document import Document
from llmdsim.reply.schema.formats import FORMATS
from tests.reply.schema.oracle import FORMATS as CHECKED
from tests.reply.schema.test_any_schema import SCHEMAS

VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-4, 12),
        st.sampled_from(
            [0.5, 1.0, 2.0, 0.07, -1.5, 1e300, "a", "ab", "abcd", "xz", "12", "a.bc", "2024-02-29"]
        ),
        st.text(max_size=3),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(["a", "b", "city", "kind", "n"]), inner, max_size=3),
    ),
    max_leaves=6,
)
COMBINED = st.one_of(
    SCHEMAS,
    st.builds(lambda one, two: {"not": one, "anyOf": [two, {"type": "string"}]}, SCHEMAS, SCHEMAS),
    st.builds(lambda one, two, three: {"if": one, "then": two, "else": three}, SCHEMAS, SCHEMAS, SCHEMAS),
    st.builds(lambda one: {"contains": one, "minContains": 2, "maxContains": 3}, SCHEMAS),
    st.builds(
        lambda one, two: {
            "patternProperties": {"^[ac]": one},
            "additionalProperties": two,
            "dependentRequired": {"a": ["b"]},
            "propertyNames": {"maxLength": 4},
        },
        SCHEMAS,
        SCHEMAS,
    ),
)


def accepts(value: Any, schema: Any) -> bool:
    return Checker(Document(schema), Effort(10**6)).accepts(value, schema)


@settings(max_examples=600)
@given(VALUES, COMBINED)
def test_it_agrees(value: Any, schema: Any) -> None:
    if isinstance(schema, dict):
        schema = {**schema, "$defs": {"whole": {"type": "integer", "minimum": 2}, "text": {"maxLength": 9}}}
    expected = Draft202012Validator(schema, format_checker=CHECKED).is_valid(value)
    assert accepts(value, schema) == expected


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        (True, {"const": 1}, False),
        (1, {"enum": [True, "1"]}, False),
        (1.0, {"const": 1}, True),
        ([1, True], {"uniqueItems": True}, True),
        ([1, 1.0], {"uniqueItems": True}, False),
        ([{"a": 1, "b": 2}, {"b": 2, "a": 1}], {"uniqueItems": True}, False),
        ({"b": [2, None], "a": 1}, {"const": {"a": 1.0, "b": [2, None]}}, True),
        (2.0, {"type": "integer"}, True),
        (True, {"type": "number"}, False),
        (0.07, {"multipleOf": 0.01}, False),
        (1e308, {"multipleOf": 5e-324}, True),
    ],
)
def test_when_values_are_the_same(value: Any, schema: Any, expected: bool) -> None:
    assert accepts(value, schema) is expected
    assert Draft202012Validator(schema).is_valid(value) is expected


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date", "2024-02-29", "2023-02-29 2024-2-9 20240229"),
        ("date-time", "2024-02-29T23:59:60Z 2024-01-01t00:00:00.5+05:30", "2024-02-29 2024-13-01T00:00:00Z"),
        ("time", "10:00:00Z 10:00:00.123-08:00", "10:00 24:00:00Z 10:00:00"),
        ("duration", "P3D PT1H P1Y2M3DT4H5M6S P4W", "P PT 3D P1H"),
        ("email", "a@b", "a b@"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567e89b12d3a456426614174000 x"),
        ("ipv4", "10.0.0.1", "10.0.0.256 10.0.0 ::1"),
        ("ipv6", "::1 2001:db8::8:800:200c:417a ::ffff:1.2.3.4", "1::2::3 :1::2 12345:: fe80::1%eth0"),
        ("hostname", "a.example x", "-a.b a..b"),
        ("uri", "https://a.example/b?c#d urn:x:y", "a.example //b"),
        ("uri-reference", "/a?b", "a|b <x>"),
        ("json-pointer", "/a/~1b", "a /~2"),
        ("byte", "YQ== YWI=", "YQ= %%"),
    ],
)
def test_formats(name: str, good: str, bad: str) -> None:
    assert all(map(FORMATS[name].holds, good.split()))
    assert not any(map(FORMATS[name].holds, bad.split()))


def test_what_cannot_be_told_in_time_is_too_hard() -> None:
    schema: Any = {"allOf": [{"allOf": [{"minimum": 1}] * 50}] * 50}
    with pytest.raises(TooHardError):
        Checker(Document(schema), Effort(100)).accepts(5, schema)
