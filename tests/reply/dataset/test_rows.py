"""Which rows may answer: the table of rules, worked through."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdsim.reply.dataset.rows import Row, Rows

A, B, C, NONE = (bytes([number]) * 32 for number in (1, 2, 3, 9))
#: Row ids tell the prompt and the length.
ROWS = Rows(
    [(A, 3, 103), (A, 5, 105), (A, 5, 106), (A, 9, 109), (B, 2, 202), (C, 7, 307), (C, 7, 308), (C, 20, 320)]
)
EVERYTHING = {103, 105, 106, 109, 202, 307, 308, 320}


def chosen(digest: bytes, most: int, ignore_eos: bool) -> set[int]:
    random = Random(1)
    return {ROWS.choose(digest, most, ignore_eos, random).id for _ in range(400)}


@pytest.mark.parametrize(
    ("digest", "most", "ignore_eos", "ids"),
    [
        # Found: one that is not longer; else one that is, to be cut.
        (A, 1, False, {103, 105, 106, 109}),
        (A, 3, False, {103}),
        (A, 5, False, {103, 105, 106}),
        (A, 8, False, {103, 105, 106}),
        (A, 9, False, {103, 105, 106, 109}),
        (A, 1000, False, {103, 105, 106, 109}),
        (B, 1, False, {202}),
        # Found, and to the very end: just as long; else longer; else shorter.
        (A, 5, True, {105, 106}),
        (A, 4, True, {105, 106, 109}),
        (A, 6, True, {109}),
        (A, 9, True, {109}),
        (A, 10, True, {103, 105, 106, 109}),
        # Not found: any that is not longer; else any.
        (NONE, 1, False, EVERYTHING),
        (NONE, 2, False, {202}),
        (NONE, 6, False, {103, 105, 106, 202}),
        (NONE, 1000, False, EVERYTHING),
        # Not found, and to the very end: just as long; else any, longer or not.
        (NONE, 7, True, {307, 308}),
        (NONE, 6, True, EVERYTHING),
        (NONE, 1000, True, EVERYTHING),
    ],
)
def test_the_rules(digest: bytes, most: int, ignore_eos: bool, ids: set[int]) -> None:
    assert chosen(digest, most, ignore_eos) == ids


def test_all_that_may_answer_are_equally_likely() -> None:
    random = Random(2)
    counts = Counter(ROWS.choose(A, 100, False, random).id for _ in range(4000))
    assert all(850 < count < 1150 for count in counts.values()), counts


def test_a_row_is_told_with_its_length() -> None:
    assert ROWS.choose(B, 5, False, Random(1)) == Row(202, 2)
    assert ROWS.choose(NONE, 2, False, Random(1)) == Row(202, 2)


LENGTHS = st.lists(st.tuples(st.sampled_from([A, B, C]), st.integers(1, 30)), min_size=1, max_size=30)


@given(LENGTHS, st.sampled_from([A, B, C, NONE]), st.integers(1, 40), st.booleans(), st.randoms())
def test_the_rules_hold_for_any_rows(
    rows: list[tuple[bytes, int]], digest: bytes, most: int, ignore_eos: bool, random: Random
) -> None:
    numbered = [(prompt, length, number) for number, (prompt, length) in enumerate(sorted(rows))]
    row = Rows(numbered).choose(digest, most, ignore_eos, random)
    prompt, length, _ = numbered[row.id]
    assert row.length == length
    own = [length for other, length, _ in numbered if other == digest]
    among = own or [length for _, length, _ in numbered]
    assert length in among
    assert not own or prompt == digest
    if ignore_eos:
        assert length == most or most not in among
        if own and most not in own and max(own) > most:
            assert length > most
    else:
        assert length <= most or min(among) > most
