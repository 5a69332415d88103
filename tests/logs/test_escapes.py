"""Nothing a client sends begins a line of its own, or hides the one it is in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdsim.logs.escapes import one_line, one_word


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x1b[31mred\x7f", "\\x1b[31mred\\x7f"),
        ("caf\u00e9 \u65e5\u672c", "caf\u00e9 \u65e5\u672c"),
        ("caf\u00e9\x85\u2028", "caf\u00e9\\x85\\u2028"),
        ("\u202eevil", "\\u202eevil"),
        ("\udc80", "\\udc80"),
        ('say "hi"', 'say "hi"'),
    ],
)
def test_lines(text: str, shown: str) -> None:
    assert one_line(text) == shown


@given(st.text())
def test_whatever_it_is_it_is_one_line(text: str) -> None:
    shown = one_line(text)
    assert len(shown.splitlines()) <= 1
    shown.encode()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("chatcmpl-1", "chatcmpl-1"),
        ("a b", "a\\x20b"),
        ('a"b', "a\\x22b"),
        ("a\\b", "a\\x5cb"),
        ("\u00e9\n", "\\xe9\\n"),
    ],
)
def test_words(text: str, shown: str) -> None:
    assert one_word(text) == shown


@given(st.text(min_size=1))
def test_whatever_it_is_it_is_one_word(text: str) -> None:
    shown = one_word(text)
    assert shown.split() == [shown]
    assert shown.isascii()
    assert '"' not in shown
