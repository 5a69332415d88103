"""Texts that match a regular expression, and which texts one matches."""

import re
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmdsim.reply.effort import Effort
from llmdsim.reply.regex import MAX_PATTERN, MAX_TEXT, InvalidRegexError, Regex, regex
from tests.reply.measuring import cpu_time

EVERYDAY = [
    r"^[A-Z]{3}-\d{4}$",
    r"^https?://",
    r"\d+",
    r"[0-9]{3}-[0-9]{2}-[0-9]{4}",
    r"^\+?[1-9]\d{1,14}$",
    r"^#?([a-fA-F0-9]{6}|[a-fA-F0-9]{3})$",
    r"^(\([0-9]{3}\))?[0-9]{3}-[0-9]{4}$",
    r"^[^\s@]+@[^\s@]+\.[^\s@]+$",
    r"^(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?:25[0-5]|2[0-4]\d|1?\d?\d)){3}$",
    r"^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}|0{8})$",
    # Of pydantic's Decimal, and of zod's email.
    r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$",
    r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$",
    r"^(?=.*[A-Z])(?=.*[a-z])(?=.*\d)[A-Za-z\d]{8,}$",
    r"^(?!\s*$).+",
    r"^\S+$",
    r"^[\w.-]+$",
    r"^[^,]+,[^,]+$",
    r"^(?P<year>\d{4})-(?P<month>0[1-9]|1[0-2])$",
    r"(['\"])[a-z]*\1",
    r"\bfoo\b",
    r"(?i)^yes|no$",
    r"(?i:select) .+",
    r"^(a|b|)$",
    r"(?:^|\s)x(?:\s|$)",
    r"\x41é\t\.\/",
    r"[^\W\d_]+",
    r"[]a]+[^]]",
    r"a{,3}b{2,}c{2}",
    r"x{a}{",
    r"^$",
    r"",
    r"(?s).+",
    r"(?m)^a$",
    r"a\Z",
    r"(?#nothing)b",
    r"foo(?!bar)baz",
    r"(?<=ab)?ab",
    r"[à-ü]+",
]


@pytest.mark.parametrize("pattern", EVERYDAY)
def test_what_is_written_matches_as_a_whole(pattern: str) -> None:
    expression = Regex(pattern)
    for seed in range(50):
        written = expression.write(Random(seed))
        assert written.conforming
        assert re.fullmatch(pattern, written.text), written.text
        assert expression.matches(written.text, whole=True)


@pytest.mark.parametrize("pattern", EVERYDAY)
def test_what_is_written_for_a_search_is_found(pattern: str) -> None:
    for seed in range(50):
        written = Regex(pattern).write(Random(seed), whole=False)
        assert written.conforming
        assert re.search(pattern, written.text), written.text


@pytest.mark.parametrize(
    ("pattern", "shape"),
    [
        (r"^\p{Lu}\p{N}$", "[A-Z][0-9]"),
        (r"(?<first>[ab])\k<first>", "aa|bb"),
        (r"\u0041\x{42}\u{43}\cA", "ABC\x01"),
        (r"\ud83d\ude00", "😀"),
        (r"[[:digit:][:^alnum:]]{4}", r"[^A-Za-z]{4}"),
        (r"\P{L}\z", "[^A-Za-z]"),
        (r"\p{Lo}", "."),
    ],
)
def test_what_ecmascript_and_rust_write_is_understood_too(pattern: str, shape: str) -> None:
    for seed in range(20):
        written = Regex(pattern).write(Random(seed))
        assert written.conforming
        assert re.fullmatch(shape, written.text), written.text


@pytest.mark.parametrize(
    "pattern",
    r"""( ) [ [a a** * (?: (?P<a (?z) [z-a] a{3,2} \ \y \1 (\1) \x4 \k<b> (?P<a>x)(?P<a>y) (?P=b) a{2}{3}
    ^* \u{} \u{110000}""".split(),  # noqa: SIM905 - as a list it would be hard to read
)
def test_an_invalid_one_says_what_is_wrong(pattern: str) -> None:
    with pytest.raises(InvalidRegexError, match=r"at position \d"):
        Regex(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        r"a*+b",
        r"(?>a)b",
        r"(a)?(?(1)b|c)",
        r"\p{Greek}",
        "(?x) a b",
        r"a^b",
        r"a$b",
        r"a\bb",
        "[^\\s\\S]",
        "x(?<=ab)x",
        "a{9000}",
        "(" * 60 + ")" * 60,
        "a" * (MAX_PATTERN + 1),
        "\\ud800",
    ],
)
def test_beyond_what_is_understood_there_is_a_plain_word(pattern: str) -> None:
    written = Regex(pattern).write(Random(1), 3, 8)
    assert not written.conforming
    assert re.fullmatch("[a-z]{3,8}", written.text)


@pytest.mark.parametrize(
    ("pattern", "low", "high"),
    [
        ("^[a-z]+$", 30, 40),
        ("^[a-z]*$", 0, 1),
        ("(abc)+", 10, 12),
        ("^(ab|cdef)x?$", 4, 4),
        ("^A", 20, 25),
        ("Z$", 20, 25),
        ("^(?:[a-z]+-)*[0-9]{2,}$", 100, 100),
        ("x", 5, 5),
        ("^https://", 0, 10),
        (r"^\d{3}$", 3, 3),
    ],
)
def test_lengths_are_met(pattern: str, low: int, high: int) -> None:
    for seed in range(50):
        written = Regex(pattern).write(Random(seed), low, high, whole=False)
        assert written.conforming
        assert low <= len(written.text) <= high
        assert re.search(pattern, written.text)


def test_lengths_that_cannot_be_met_are_told() -> None:
    assert not Regex(r"^\d{3}$").write(Random(1), 5, 9, whole=False).conforming
    assert not Regex(r"^\d{3}$").write(Random(1), 0, 2, whole=False).conforming
    assert len(Regex("a+").write(Random(1), MAX_TEXT * 2, MAX_TEXT * 3).text) <= MAX_TEXT


def test_the_same_source_gives_the_same_text() -> None:
    expression = Regex(r"\w{8}[a-f]+|x.*")
    assert expression.write(Random(7)) == expression.write(Random(7))
    assert len({expression.write(Random(seed)).text for seed in range(20)}) > 10


def test_digits_are_ascii() -> None:
    assert Regex(r"\d{100}").write(Random(3)).text.isascii()


CATASTROPHES = [
    r"^(a+)+$",
    r"^(a|a)*$",
    r".*.*.*.*x",
    r"^(.*)*x$",
    r"^(([a-z])+.)+[A-Z]([a-z])+$",
    "(a?){30}a{30}",
    "(((((a*)*)*)*)*)*b",
    "(){1000000000}",
    "((a?){1000}){1000}b",
    "(?=(a+)+$)(a|aa)+b",
    r"(.)*\1(.)*\2",
    "(a{0,999999999}){999999999}",
    "[a]" * (MAX_PATTERN // 3),
    "(?:a|" * 30 + ")" * 30,
    "{" * MAX_PATTERN,
]


@pytest.mark.parametrize("pattern", CATASTROPHES)
def test_no_pattern_takes_long(pattern: str) -> None:
    with cpu_time() as spent:
        expression = Regex(pattern)
        expression.write(Random(1))
        expression.matches("a" * 5000 + "!")
        assert spent() < 0.3


def test_each_state_is_looked_at_once() -> None:
    assert Regex(r"^(a+)+$").matches("a" * 30 + "!") is False
    assert Regex(r"^(a|a)*(a|a)*$").matches("a" * 100 + "!") is False


def test_the_effort_given_is_a_bound() -> None:
    effort = Effort(50)
    assert Regex(r"^(a|b|c)*$").matches("abc" * 100, effort=effort) is None
    assert effort.left < 0
    assert not Regex("[a-z]{500}").write(Random(1), effort=Effort(50)).conforming


# -- Any expression ----------------------------------------------------------------------------------------


def _joined(parts: list[str]) -> str:
    return "".join(parts)


CHARACTERS = st.one_of(
    st.sampled_from("abcXYZ019 -_é"),
    st.sampled_from([r"\.", r"\*", r"\\", r"\t", r"\d", r"\w", r"\s", r"\D", "."]),
    st.sampled_from(["[a-f]", "[^a-f]", r"[\w-]", "[^,;]", r"[\d.]", "[A-Za-z_]"]),
)
QUANTIFIERS = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?", "+?"])


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    groups = st.builds(
        lambda opening, body, quantifier: f"{opening}{body})" + quantifier,
        st.sampled_from(["(", "(?:", "(?i:"]),
        inner,
        # Repeats without end within others could keep Python's own matcher busy forever.
        st.sampled_from(["", "?", "{2}", "{1,3}", "{0,2}?"]),
    )
    return st.one_of(
        st.lists(st.one_of(inner, groups), min_size=1, max_size=3).map(_joined),
        st.lists(inner, min_size=2, max_size=3).map(lambda branches: f"(?:{'|'.join(branches)})"),
    )


BODIES = st.recursive(st.builds(str.__add__, CHARACTERS, QUANTIFIERS), _grown, max_leaves=8)
PATTERNS = st.one_of(
    BODIES,
    BODIES.map(lambda body: f"^(?:{body})$"),
    BODIES.map(lambda body: rf"({body})-\1"),
    BODIES.map(lambda body: f"(?!zz)(?:{body})"),
)


@settings(max_examples=600)
@given(PATTERNS, st.integers(0, 2**32))
def test_any_text_written_is_matched_by_python(pattern: str, seed: int) -> None:
    compiled = re.compile(pattern)
    expression = Regex(pattern)
    written = expression.write(Random(seed))
    assert written.conforming
    assert compiled.fullmatch(written.text)
    searched = expression.write(Random(seed), whole=False)
    assert searched.conforming
    assert compiled.search(searched.text)


@settings(max_examples=600)
@given(PATTERNS, st.text("abcfXYZ019 -_.,é*\\\tz", max_size=8))
def test_what_matches_is_what_python_matches(pattern: str, text: str) -> None:
    compiled = re.compile(pattern)
    expression = Regex(pattern)
    # Beyond ASCII, Python's classes are larger.
    if not re.search(r"é|\\s|\\w|\\D|\^", pattern) or text.isascii():
        assert expression.matches(text, whole=True) == bool(compiled.fullmatch(text))
        assert expression.matches(text) == bool(compiled.search(text))


@pytest.mark.filterwarnings("ignore::FutureWarning")
@settings(max_examples=500)
@given(st.text(r"ab\dwpPuxkZ1{}[]()?*+|^$.,<>=!:-#P &i", max_size=24), st.integers(0, 2**32))
def test_any_string_is_an_expression_or_invalid(pattern: str, seed: int) -> None:
    try:
        expression = Regex(pattern)
    except InvalidRegexError:
        return
    written = expression.write(Random(seed))
    try:
        compiled = re.compile(pattern)
    except re.error:
        return
    if written.conforming and not re.search(r"[*+}].*\)[*+{]", pattern):
        assert compiled.fullmatch(written.text), written.text


@settings(max_examples=300)
@given(st.text(max_size=30))
def test_no_string_raises_anything_else(pattern: str) -> None:
    try:
        Regex(pattern).write(Random(1))
    except InvalidRegexError:
        pass


def test_long_expressions_are_not_kept() -> None:
    long = "x" * (MAX_PATTERN + 1)
    assert regex(long) is not regex(long)
    assert regex("x+") is regex("x+")
