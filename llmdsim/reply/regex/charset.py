"""Sets of characters, as classes of a regular expression name them."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from functools import cached_property
from random import Random

Range = tuple[int, int]
"""First and last code point."""

DIGITS: tuple[Range, ...] = ((48, 57),)
WORD: tuple[Range, ...] = ((48, 57), (65, 90), (95, 95), (97, 122))
SPACE: tuple[Range, ...] = ((9, 13), (32, 32))
LAST = 0x10FFFF

POSIX: dict[str, tuple[Range, ...]] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "digit": DIGITS,
    "lower": ((97, 122),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": SPACE,
    "upper": ((65, 90),),
    "word": WORD,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}


_CATEGORIES = (
    {"L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N", "Nd", "Nl", "No"}
    | {"P", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S", "Sm", "Sc", "Sk", "So"}
    | {"Z", "Zs", "Zl", "Zp", "C", "Cc", "Cf"}
)
_PRINTABLE = "".join(map(chr, range(32, 127)))
_ORDINARY = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_OPEN = 63
"""Printable members of a set that is open to much more: those of `\\w`."""
_FOREIGN = "éßñЖяλΩ漢字あア한עب٣²½ǅʰ\u0301\u0903—–«»“”„€©°¬…\u00a0\u3000\u2028\u2029\u00ad\t\n"
"""Characters of most categories beyond ASCII, for sets that hold nothing printable in ASCII."""


def complement(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """All code points outside of `ranges`."""
    outside = []
    start = 0
    for first, last in sorted(ranges):
        if first > start:
            outside.append((start, first - 1))
        start = max(start, last + 1)
    if start <= LAST:
        outside.append((start, LAST))
    return tuple(outside)


def is_category(name: str) -> bool:
    return name in _CATEGORIES


class CharSet:
    """Ranges together with general categories, or all characters but those.

    `categories` are names and whether the category, or all outside of it, is meant. `fold` takes in the other
    case of the letters of ASCII.
    """

    def __init__(
        self,
        ranges: Iterable[Range] = (),
        categories: Iterable[tuple[str, bool]] = (),
        negated: bool = False,
        fold: bool = False,
    ) -> None:
        self._ranges = tuple(_folded(ranges) if fold else ranges)
        self._categories = tuple(categories)
        self._negated = negated

    def __contains__(self, char: str) -> bool:
        return self._names(char) != self._negated

    def _names(self, char: str) -> bool:
        code = ord(char)
        for first, last in self._ranges:
            if first <= code <= last:
                return True
        if self._categories:
            own = unicodedata.category(char)
            return any(own.startswith(name) == meant for name, meant in self._categories)
        return False

    @cached_property
    def printable(self) -> str:
        """Its members among the printable characters of ASCII, in their order."""
        if self._categories:
            return "".join([char for char in _PRINTABLE if char in self])
        ranges = complement(self._ranges) if self._negated else sorted(self._ranges)
        members = []
        start = 32
        for first, last in ranges:
            if last >= start:
                members.append(_PRINTABLE[max(first, start) - 32 : last - 31])
                start = max(start, last + 1)
        return "".join(members)

    @cached_property
    def ordinary(self) -> str:
        """Small letters and digits, if there are any and it is open to much more; else `printable`."""
        if len(self.printable) < _OPEN:
            return self.printable
        return "".join([char for char in self.printable if char in _ORDINARY]) or self.printable

    def draw(self, random: Random, any_printable: bool = False) -> str | None:
        """One member, ASCII where possible; None where there is none to be found."""
        members = self.printable if any_printable else self.ordinary
        if members:
            return members[int(random.random() * len(members))]
        if self._negated or not self._ranges:
            return next((char for char in _FOREIGN if char in self), None)
        first, last = self._ranges[int(random.random() * len(self._ranges))]
        char = chr(first + int(random.random() * (last - first + 1)))
        # Half of a surrogate pair is no text.
        return None if "\ud800" <= char <= "\udfff" else char


def _folded(ranges: Iterable[Range]) -> Iterator[Range]:
    for first, last in ranges:
        yield first, last
        for low, high, shift in ((65, 90, 32), (97, 122, -32)):
            if first <= high and last >= low:
                yield max(first, low) + shift, min(last, high) + shift


ANY = CharSet(((10, 10),), negated=True)
ANY_AND_NEWLINE = CharSet((), negated=True)
