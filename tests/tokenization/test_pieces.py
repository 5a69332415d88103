"""Where pieces end, and what ids read as."""

from __future__ import annotations

import pytest

from llmdsim.tokenization.pieces import PieceDecoder, decoded_parts, ends_of
from tests.tokenization.trained import byte_fallback, byte_level

LIBRARY = byte_level()


@pytest.mark.parametrize(
    ("offsets", "length", "ends"),
    [
        ([], 0, [0]),
        ([(0, 3), (3, 5)], 5, [0, 3, 5]),
        # one character in three tokens
        ([(0, 1), (1, 2), (1, 2), (1, 2), (2, 3)], 3, [0, 1, 1, 1, 2, 3]),
        # blanks in no token: within, before and after
        ([(1, 4), (6, 8)], 10, [0, 4, 10]),
        # a token of no character of the text
        ([(0, 0), (0, 2)], 2, [0, 0, 2]),
        # two that share a character, and have more
        ([(0, 2), (1, 3)], 3, [0, 1, 3]),
    ],
)
def test_ends(offsets: list[tuple[int, int]], length: int, ends: list[int]) -> None:
    assert ends_of(offsets, length).tolist() == ends


def byte(value: int) -> int:
    """The id of a single byte."""
    token_id: int = LIBRARY.token_to_id(MARKS[value])
    return token_id


def _marks() -> dict[int, str]:
    """GPT-2's characters for bytes."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [value for value in range(256) if value not in shown]
    return {value: chr(value) for value in shown} | {value: chr(256 + n) for n, value in enumerate(hidden)}


MARKS = _marks()


def read(*values: int, more: str = "") -> list[str]:
    ids = [*map(byte, values), *LIBRARY.encode(more, add_special_tokens=False).ids]
    return [text for part in decoded_parts(LIBRARY, ids, 2) for text in part]


def test_bytes_of_a_character_are_shown_with_the_last() -> None:
    assert read(0xF0, 0xA0, 0x80, 0x80, more="a") == ["", "", "", "𠀀", "a"]


@pytest.mark.parametrize("junk", range(1, 20))
def test_a_character_behind_bytes_that_are_none_is_shown_all_the_same(junk: int) -> None:
    texts = read(*[0x80] * junk, 0xF0, 0xA0, 0x80, 0x80, more="a")
    assert len(texts) == junk + 5
    assert "".join(texts) == "\ufffd" * junk + "𠀀a"
    assert texts[-1] == "a"


def test_what_is_no_character_at_the_end_is_not_lost() -> None:
    assert read(0x80) == ["\ufffd"]
    assert "".join(read(0xF0, 0xA0)) == "\ufffd"
    decoder = PieceDecoder(LIBRARY)
    assert decoder.pieces([byte(0xF0)]) == [""]
    assert decoder.rest() == "\ufffd"
    assert decoder.rest() == ""
    assert decoder.pieces(LIBRARY.encode("é", add_special_tokens=False).ids)[-1] == "é"


def test_a_first_blank_is_left_out_once() -> None:
    library = byte_fallback()
    ids = library.encode("The ferry The").ids
    texts = [text for part in decoded_parts(library, ids * 2, 3) for text in part]
    assert "".join(texts) == "The ferry The The ferry The"


def test_no_ids_have_no_texts() -> None:
    assert list(decoded_parts(LIBRARY, [], 5)) == []


def test_many_bytes_that_are_none_are_read_in_time() -> None:
    texts = read(*[0x80] * 20_000)
    assert "".join(texts) == "\ufffd" * 20_000
