"""CBOR, against a library for it."""

from __future__ import annotations

from array import array
from typing import Any

import cbor2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llmdsim.engine.kvcache.cbor import cbor

#: The last number of each width, and the next.
EDGES = [edge for bits in (8, 16, 32) for edge in (2**bits - 1, 2**bits)] + [0, 23, 24]

integers = st.one_of(st.sampled_from(EDGES), st.integers(-(2**64), 2**64 - 1))
tokens = st.one_of(st.sampled_from(EDGES), st.integers(0, 2**32 - 1)).map(lambda number: number % 2**32)
leaves = st.one_of(
    st.none(),
    integers,
    st.text(),
    st.binary(max_size=300),
    st.lists(tokens, max_size=300).map(lambda ids: array("I", ids)),
    st.dictionaries(st.text(), st.text(), min_size=1, max_size=1),
)
items = st.recursive(leaves, lambda inner: st.lists(inner, max_size=30).map(tuple), max_leaves=60)


def plain(item: Any) -> Any:
    """Without arrays, which the library does not know."""
    if isinstance(item, array):
        return list(item)
    return tuple(map(plain, item)) if isinstance(item, tuple) else item


@given(items)
@example("x" * 65536)
@example(b"x" * 65536)
@example(array("I", EDGES[:-4]))
def test_items_are_written_as_the_library_does_in_canonical_form(item: Any) -> None:
    assert cbor(item) == cbor2.dumps(plain(item), canonical=True)


@pytest.mark.parametrize("number", [*EDGES, 2**63, 2**64 - 1])
def test_numbers_at_the_edges_of_widths(number: int) -> None:
    assert cbor(number) == cbor2.dumps(number, canonical=True)
    assert cbor(-1 - number) == cbor2.dumps(-1 - number, canonical=True)
