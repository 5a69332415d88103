"""The stored form of replies."""

from __future__ import annotations

import json

import pytest

from llmdsim.reply.dataset.stored import read_stored, write_stored


def test_what_is_written_is_read() -> None:
    said = read_stored(write_stored([7, 2**32 - 1], ["é ", "😀"]))
    assert (said.text, said.ids.tolist(), said.texts) == ("é 😀", [7, 2**32 - 1], ["é ", "😀"])


@pytest.mark.parametrize("names", [("tokens", "strings"), ("TOKENS", "sTrings")])
def test_names_count_whatever_their_case(names: tuple[str, str]) -> None:
    ids, texts = names
    stored = json.dumps({ids: [1], "other": {}, texts: ["a"]})
    assert read_stored(stored).text == "a"
    assert read_stored(stored.encode()).text == "a"


def test_no_more_is_laid_out_than_is_wanted() -> None:
    assert read_stored(write_stored([1, 2, 3], ["a", "b", "c"]), 2).text == "ab"


@pytest.mark.parametrize(
    ("stored", "what"),
    [
        (None, "no text"),
        (7, "no text"),
        ("", "truncated"),
        ("[]", "object"),
        ('{"Tokens":[1]}', "not both"),
        ('{"Tokens":[1],"numbers":[1]}', "not both"),
        ('{"Tokens":[],"Strings":[]}', "no tokens"),
        ('{"Tokens":[1,2],"Strings":["a"]}', "2 tokens and 1 strings"),
        ('{"Tokens":["a"],"Strings":["a"]}', "int"),
        ('{"Tokens":[-1],"Strings":["a"]}', ">= 0"),
        ('{"Tokens":[4294967296],"Strings":["a"]}', "4294967295"),
        ('{"Tokens":[1],"Strings":[null]}', "str"),
        ('{"Tokens":null,"Strings":["a"]}', "null"),
        (b'{"Tokens":[1],"Strings":["\xff"]}', "UTF-8"),
        ('{"Tokens":[1],"Strings":["a"]', "truncated"),
        ('{"Tokens":[1],"Strings":["\\ud800"]}', "truncated|surrogate"),
    ],
)
def test_anything_else_is_refused(stored: object, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        read_stored(stored)


def test_nesting_beyond_measure_is_refused() -> None:
    with pytest.raises((ValueError, RecursionError)):
        read_stored('{"a":' + "[" * 100_000)
