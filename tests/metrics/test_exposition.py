"""Numbers, escapes and lines of the text format, checked against prometheus_client."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.utils import floatToGoString

from llmdsim.metrics import exposition


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0.0"),
        (10, "10.0"),
        (0.001, "0.001"),
        (999_999, "999999.0"),
        (1_000_000, "1e+06"),
        (1_234_567.5, "1.2345675e+06"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert exposition.number(value) == text


@given(st.floats() | st.integers(min_value=0, max_value=2**64))
def test_numbers_are_written_as_the_library_writes_them(value: float) -> None:
    assert exposition.number(value) == floatToGoString(value)


@pytest.mark.parametrize(
    ("value", "inside"),
    [
        ("plain", "plain"),
        ('say "hi"', r"say \"hi\""),
        ("C:\\n", r"C:\\n"),
        ("two\nlines", r"two\nlines"),
        ("模型 🦊", "模型 🦊"),
    ],
)
def test_label_values_are_escaped(value: str, inside: str) -> None:
    assert exposition.series("x", {"b": value, "a": "1"}) == f'x{{a="1",b="{inside}"}}'


def test_a_series_without_labels_has_no_braces() -> None:
    assert exposition.line("x", {}, 1) == b"x 1.0\n"


def test_help_stays_on_one_line_and_keeps_its_quotes() -> None:
    assert exposition.head("x", "gauge", 'a\\b\n"c"') == b'# HELP x a\\\\b\\n"c"\n# TYPE x gauge\n'


def test_percent_signs_survive_the_template() -> None:
    assert exposition.template("x", {"a": "100% %d.0 %b"}, "%d.0") % 3 == b'x{a="100% %d.0 %b"} 3.0\n'
