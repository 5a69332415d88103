"""The input of custom tools, read out of arguments that come bit by bit."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdsim.web.responses.custom_input import CustomInput, custom_input


@given(
    text=st.text(st.characters(exclude_categories=("Cs",))),
    cuts=st.lists(st.integers(0, 200)),
    escaped=st.booleans(),
    compact=st.booleans(),
)
def test_any_text_comes_out_however_it_is_cut(
    text: str, cuts: list[int], escaped: bool, compact: bool
) -> None:
    separators = (",", ":") if compact else (", ", ": ")
    arguments = json.dumps({"input": text}, ensure_ascii=escaped, separators=separators)
    bounds = [0, *sorted(cut % (len(arguments) + 1) for cut in cuts), len(arguments)]
    reader = CustomInput()
    pieces = [reader.feed(arguments[a:b]) for a, b in pairwise(bounds)]
    assert "".join(pieces) == text == custom_input(arguments)
    for piece in pieces:
        piece.encode()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("", ""),
        ('{"inp', ""),
        ('{"input":"', ""),
        ('{"input":"ab\\', "ab"),
        ('{"input":"ab\\u00e', "ab"),
        ('{"input":"ab\\ud83d', "ab"),
        ('{"input":"ab\\ud83d\\ude00', "ab😀"),
        ('{"input":"ab","more":"c"}', "ab"),
    ],
)
def test_what_is_cut_short_shows_its_complete_characters(arguments: str, text: str) -> None:
    assert custom_input(arguments) == text
