"""Which row of a dataset answers a prompt: its rows by prompt and by length, without what they say."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from random import Random
from typing import NamedTuple

DIGEST = 32
"""Bytes of a prompt's digest."""


class Row(NamedTuple):
    """A row by its id in the table, and its tokens."""

    id: int
    length: int


class Rows:
    """Made from (digest, length, row id), in that order; 52 bytes a row. There is at least one."""

    def __init__(self, rows: Iterable[tuple[bytes, int, int]]) -> None:
        digests = bytearray()
        self._lengths = array("I")
        self._ids = array("q")
        for digest, length, row_id in rows:
            digests += digest
            self._lengths.append(length)
            self._ids.append(row_id)
        self._digests = bytes(digests)
        self._by_length = array("I", sorted(range(len(self._ids)), key=self._lengths.__getitem__))
        self._sorted_lengths = array("I", (self._lengths[place] for place in self._by_length))

    def __len__(self) -> int:
        return len(self._ids)

    def choose(self, digest: bytes, most: int, ignore_eos: bool, random: Random) -> Row:
        """A row for a prompt whose answer may have `most` tokens, by the rules of llm-d-inference-sim.

        Among rows of the prompt, or all rows if it has none: one that is not longer, else any. With
        `ignore_eos` one that is just as long; else one of the prompt's that is longer; else any.
        """
        found = range(*self._places(digest))
        if found:
            return self._row(_draw(_wanted(self._lengths, found, most, ignore_eos, True), random))
        everything = range(len(self._ids))
        wanted = _wanted(self._sorted_lengths, everything, most, ignore_eos, False)
        return self._row(self._by_length[_draw(wanted, random)])

    def _places(self, digest: bytes) -> tuple[int, int]:
        places = range(len(self._ids))
        return bisect_left(places, digest, key=self._digest), bisect_right(places, digest, key=self._digest)

    def _digest(self, place: int) -> bytes:
        return self._digests[DIGEST * place : DIGEST * (place + 1)]

    def _row(self, place: int) -> Row:
        return Row(self._ids[place], self._lengths[place])


def _wanted(lengths: Sequence[int], among: range, most: int, ignore_eos: bool, prefers_longer: bool) -> range:
    """The best of places `among` those in which lengths are sorted."""
    fitting = bisect_right(lengths, most, among.start, among.stop)
    if not ignore_eos:
        return range(among.start, fitting) or among
    equal = range(bisect_left(lengths, most, among.start, among.stop), fitting)
    longer = range(fitting, among.stop) if prefers_longer else range(0)
    return equal or longer or among


def _draw(places: range, random: Random) -> int:
    return places[int(random.random() * len(places))]
