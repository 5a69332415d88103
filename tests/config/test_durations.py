"""Durations: Go's grammar in, Go's text out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdsim.config.durations import NANOSECONDS, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("0s", 0.0),
        ("+0", 0.0),
        ("100ms", 0.1),
        ("1.5s", 1.5),
        (".5s", 0.5),
        ("1.s", 1.0),
        ("250us", 0.00025),
        ("250\u00b5s", 0.00025),
        ("250\u03bcs", 0.00025),
        ("7ns", 7e-9),
        ("1.9ns", 1e-9),
        ("1h2m3s4ms", 3723.004),
        ("1h30m", 5400.0),
        ("3s1h", 3603.0),
        ("-2us", -2e-6),
        ("+5ms", 0.005),
        ("0.1s", 0.1),
        ("100", 0.1),
        ("1.5", 0.0015),
        ("-3", -0.003),
    ],
)
def test_parses(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(("text", "seconds"), [("25", 25.0), ("2.5", 2.5), ("0", 0.0), ("25ms", 0.025)])
def test_a_bare_number_counts_in_the_unit_asked_for(text: str, seconds: float) -> None:
    assert parse_duration(text, bare="s") == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s",
        ".",
        ".s",
        "1 s",
        " 1s",
        "1s ",
        "1d",
        "1sec",
        "1MS",
        "--1s",
        "1s-1s",
        "1e3ms",
        "nan",
        "inf",
        "1,5s",
        "1s\n",
        "١s",
        "1" * 21 + "s",
    ],
)
def test_refuses(text: str) -> None:
    with pytest.raises(ValueError, match=r"^"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (0.25, "250ms"),
        (1.5, "1.5s"),
        (60.0, "1m0s"),
        (75.0, "1m15s"),
        (3600.0, "1h0m0s"),
        (7200.5, "2h0m0.5s"),
        (0.0029, "2.9ms"),
        (0.00025, "250\u00b5s"),
        (1e-9, "1ns"),
        (1e-6, "1\u00b5s"),
        (59.999, "59.999s"),
        (0.1, "100ms"),
        (0.3, "300ms"),
        (-0.02, "-20ms"),
        (1e-10, "0s"),
        (1.000000001, "1.000000001s"),
    ],
)
def test_prints_as_go_does(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.sampled_from(sorted(NANOSECONDS))), min_size=1, max_size=4)
)
def test_what_is_printed_reads_back(parts: list[tuple[int, str]]) -> None:
    seconds = parse_duration("".join(f"{number}{unit}" for number, unit in parts))
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.integers(0, 2**50))
def test_whole_nanoseconds_survive(nanoseconds: int) -> None:
    seconds = parse_duration(f"{nanoseconds}ns")
    assert round(seconds * 1e9) == nanoseconds
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.text(max_size=20))
def test_any_text_parses_or_is_a_value_error(text: str) -> None:
    try:
        parse_duration(text)
    except ValueError:
        pass
