"""Reads a regular expression as Python, ECMAScript and Rust write it.

Where they differ, what means something in one of them is taken; the set operators of Rust are not known.
Reading is linear in the length of the pattern.
"""

from __future__ import annotations

import re
from typing import NoReturn

from llmdsim.reply.regex import charset
from llmdsim.reply.regex.charset import CharSet, Range, complement
from llmdsim.reply.regex.nodes import (
    Alternate,
    Assertion,
    Backreference,
    Concat,
    Group,
    Literal,
    Look,
    Node,
    OneOf,
    Repeat,
    Tree,
)

MAX_PATTERN = 2048
"""Characters of a pattern; a longer one is taken, but nothing is made of it."""
MAX_NESTING = 40
"""Groups within groups."""

_CONTROLS = {"a": 7, "b": 8, "e": 27, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_CLASSES = {"d": charset.DIGITS, "s": charset.SPACE, "w": charset.WORD, "h": charset.POSIX["blank"]}
_ASSERTIONS = {"A": "start", "Z": "end", "z": "end", "b": "boundary", "B": "no boundary"}
_POSIX = re.compile(rf":(\^?)({'|'.join(charset.POSIX)}):\]")
_HEX = frozenset("0123456789abcdefABCDEF")
_FLAGS = frozenset("aiLmsuxU")


class InvalidRegexError(ValueError):
    """The pattern is no regular expression; the message says why, and at which character (counted from 0)."""


class UnsupportedRegexError(Exception):
    """The pattern may well be right, but goes beyond what is understood here."""


def parse(pattern: str) -> Tree:
    """Raises InvalidRegexError or UnsupportedRegexError."""
    if len(pattern) > MAX_PATTERN:
        raise UnsupportedRegexError
    return _Parser(pattern).tree()


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._flags: frozenset[str] = frozenset()
        self._depth = 0
        self._groups: dict[int, Node | None] = {}
        self._names: dict[str, int] = {}
        self._kinds: set[str] = set()
        self._looks = False
        self._refers = False

    def tree(self) -> Tree:
        root = self._alternatives()
        if self._at < len(self._pattern):
            self._fail("unbalanced parenthesis")
        return Tree(root, len(self._groups) if self._refers else None, self._kinds, self._looks)

    # -- Characters of the pattern -----------------------------------------------------------------------

    def _fail(self, reason: str) -> NoReturn:
        raise InvalidRegexError(f"{reason} at position {self._at}")

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _next(self, what: str) -> str:
        char = self._peek()
        if not char:
            self._fail(f"the pattern ends within {what}")
        self._at += 1
        return char

    def _take(self, text: str) -> bool:
        found = self._pattern.startswith(text, self._at)
        if found:
            self._at += len(text)
        return found

    def _until(self, end: str, what: str) -> str:
        stop = self._pattern.find(end, self._at)
        if stop < 0:
            self._fail(f"the pattern ends within {what}")
        text = self._pattern[self._at : stop]
        self._at = stop + len(end)
        return text

    # -- Structure ---------------------------------------------------------------------------------------

    def _alternatives(self) -> Node:
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        return branches[0] if len(branches) == 1 else Alternate(branches)

    def _sequence(self) -> Node:
        items: list[Node] = []
        letters: list[str] = []
        while (char := self._peek()) and char not in "|)":
            item = self._atom()
            if item is None:
                continue
            item = self._quantified(item)
            if isinstance(item, Literal):
                letters.append(item.text)
                continue
            if letters:
                items.append(Literal("".join(letters)))
                letters.clear()
            items.append(item)
        if letters:
            items.append(Literal("".join(letters)))
        return items[0] if len(items) == 1 else Concat(items)

    def _atom(self) -> Node | None:
        """None for what stands for nothing: comments and flags."""
        char = self._next("a group")
        if char == "(":
            return self._group()
        if char == "[":
            return OneOf(self._class())
        if char == ".":
            return OneOf(charset.ANY_AND_NEWLINE if "s" in self._flags else charset.ANY)
        if char in "^$":
            side = "start" if char == "^" else "end"
            return self._assertion(f"line {side}" if "m" in self._flags else side)
        if char == "\\":
            return self._escape()
        if char in "*+?":
            self._at -= 1
            self._fail("nothing to repeat")
        return self._letter(char)

    def _letter(self, char: str) -> Node:
        if "i" in self._flags and char.isascii() and char.isalpha():
            return OneOf(CharSet(((ord(char), ord(char)),), fold=True))
        return Literal(char)

    def _assertion(self, kind: str) -> Node:
        self._kinds.add(kind)
        return Assertion(kind)

    def _quantified(self, item: Node) -> Node:
        bounds = self._quantifier()
        if bounds is None:
            return item
        if isinstance(item, Assertion):
            self._fail("nothing to repeat")
        least, most = bounds
        if most is not None and most < least:
            self._fail("the least number of repeats is greater than the most")
        if self._take("+"):
            raise UnsupportedRegexError  # possessive
        self._take("?")
        if self._quantifier() is not None:
            self._fail("multiple repeat")
        return Repeat(item, least, most)

    def _quantifier(self) -> tuple[int, int | None] | None:
        if self._take("*"):
            return 0, None
        if self._take("+"):
            return 1, None
        if self._take("?"):
            return 0, 1
        if self._peek() != "{":
            return None
        # A brace that opens no numbers is itself.
        stop = self._pattern.find("}", self._at)
        low, comma, high = self._pattern[self._at + 1 : max(stop, 0)].partition(",")
        if stop < 0 or not (low or comma) or not f"0{low}{high}".isdecimal() or not (low + high).isascii():
            return None
        if len(low) > 9 or len(high) > 9:
            raise UnsupportedRegexError
        self._at = stop + 1
        least = int(low or 0)
        return least, (int(high) if high else None) if comma else least

    def _group(self) -> Node | None:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise UnsupportedRegexError
        flags = self._flags
        node = self._group_inside() if self._take("?") else self._capture(None)
        if node is not None:
            self._flags = flags
        self._depth -= 1
        return node

    def _group_inside(self) -> Node | None:
        if self._take(":"):
            return self._closed()
        if self._take("="):
            return self._look(behind=False, negative=False)
        if self._take("!"):
            return self._look(behind=False, negative=True)
        if self._take("<="):
            return self._look(behind=True, negative=False)
        if self._take("<!"):
            return self._look(behind=True, negative=True)
        if self._take("P<") or self._take("<"):
            return self._capture(self._until(">", "a group's name"))
        if self._take("P="):
            return self._named_reference(self._until(")", "a group's name"))
        if self._take("#"):
            self._until(")", "a comment")
            return None
        if self._peek() in (">", "("):
            raise UnsupportedRegexError  # atomic groups and conditions
        return self._flag_group()

    def _flag_group(self) -> Node | None:
        added, removed = set[str](), set[str]()
        into = added
        while (char := self._next("a group")) not in ":)":
            if char == "-" and into is added:
                into = removed
            elif char in _FLAGS:
                into.add(char)
            else:
                self._at -= 1
                self._fail("unknown kind of group")
        if "x" in added:
            raise UnsupportedRegexError  # blanks and comments that do not count
        self._flags = (self._flags | added) - removed
        return self._closed() if char == ":" else None

    def _closed(self) -> Node:
        node = self._alternatives()
        if not self._take(")"):
            self._fail("missing ), unterminated group")
        return node

    def _capture(self, name: str | None) -> Node:
        number = len(self._groups) + 1
        self._groups[number] = None
        if name is not None:
            if not name.isidentifier() or name in self._names:
                self._fail(f"bad or repeated group name {name!r}")
            self._names[name] = number
        node = Group(self._closed(), number)
        self._groups[number] = node
        return node

    def _look(self, behind: bool, negative: bool) -> Node:
        self._looks = True
        return Look(self._closed(), behind, negative)

    def _named_reference(self, name: str) -> Node:
        if name not in self._names:
            self._fail(f"unknown group name {name!r}")
        return self._reference(self._names[name])

    def _reference(self, number: int) -> Node:
        if number not in self._groups:
            self._fail(f"invalid group reference {number}")
        group = self._groups[number]
        if group is None:
            self._fail("cannot refer to an open group")
        self._refers = True
        return Backreference(number, group)

    # -- Escapes and classes -----------------------------------------------------------------------------

    def _escape(self) -> Node:
        char = self._next("an escape")
        if char in _ASSERTIONS:
            return self._assertion(_ASSERTIONS[char])
        if char == "k" and self._take("<"):
            return self._named_reference(self._until(">", "a group's name"))
        if char in "123456789":
            digits = char
            if self._peek().isascii() and self._peek().isdecimal():
                digits += self._next("an escape")
            return self._reference(int(digits))
        chars = self._escaped_class(char)
        if chars is not None:
            return OneOf(CharSet(*chars))
        return self._letter(chr(self._code_point(char)))

    def _escaped_class(self, char: str) -> tuple[tuple[Range, ...], tuple[tuple[str, bool], ...]] | None:
        """Ranges and categories of \\d, \\W, \\p{Lu} and the like; None for other escapes."""
        ranges = _CLASSES.get(char.lower())
        if ranges is not None:
            return (complement(ranges) if char.isupper() else ranges), ()
        if char not in "pP":
            return None
        name = self._until("}", "a category") if self._take("{") else self._next("a category")
        meant = char == "p"
        if name.startswith("^"):
            name, meant = name[1:], not meant
        name = name.rpartition("=")[2]
        if not charset.is_category(name):
            raise UnsupportedRegexError
        return (), ((name, meant),)

    def _code_point(self, char: str) -> int:
        """The code point that an escape with `char` behind its backslash stands for."""
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "0":
            digits = ""
            while len(digits) < 2 and self._peek() and self._peek() in "01234567":
                digits += self._next("an escape")
            return int(digits or "0", 8)
        if char == "c":
            return ord(self._next("an escape")) % 32
        if char in "xuU":
            code = self._hex({"x": 2, "u": 4, "U": 8}[char])
            if 0xD800 <= code < 0xDC00 and self._take("\\u"):
                code = 0x10000 + ((code - 0xD800) << 10) + (self._hex(4) - 0xDC00)
            if code > charset.LAST:
                self._fail("bad escape, there is no such character")
            if 0xD800 <= code < 0xE000:
                raise UnsupportedRegexError
            return code
        if char.isascii() and char.isalnum():
            self._at -= 1
            self._fail(f"bad escape \\{char}")
        return ord(char)

    def _hex(self, length: int) -> int:
        if self._take("{"):
            digits = self._until("}", "an escape")
        else:
            digits = self._pattern[self._at : self._at + length]
            self._at += len(digits)
            if len(digits) < length:
                self._fail("incomplete escape")
        if not 1 <= len(digits) <= 8 or not _HEX.issuperset(digits):
            self._fail("bad escape, hexadecimal digits expected")
        return int(digits, 16)

    def _class(self) -> CharSet:
        negated = self._take("^")
        ranges: list[Range] = []
        categories: list[tuple[str, bool]] = []
        first = True
        while first or self._peek() != "]":
            first = False
            low = self._class_item(ranges, categories)
            if self._peek() != "-" or self._pattern.startswith("-]", self._at):
                if low is not None:
                    ranges.append((low, low))
                continue
            self._at += 1
            high = self._class_item(ranges, categories)
            if low is None or high is None or high < low:
                self._fail("bad character range")
            ranges.append((low, high))
        self._at += 1
        return CharSet(ranges, categories, negated, fold="i" in self._flags)

    def _class_item(self, ranges: list[Range], categories: list[tuple[str, bool]]) -> int | None:
        """A single character's code point; None when a whole class was added instead."""
        char = self._next("a character class")
        if char == "[" and (named := _POSIX.match(self._pattern, self._at)):
            self._at = named.end()
            members = charset.POSIX[named[2]]
            ranges.extend(complement(members) if named[1] else members)
            return None
        if char != "\\":
            return ord(char)
        char = self._next("an escape")
        escaped = self._escaped_class(char)
        if escaped is None:
            if char in "123456789":
                raise UnsupportedRegexError  # octal in Python, itself in ECMAScript
            return self._code_point(char)
        ranges.extend(escaped[0])
        categories.extend(escaped[1])
        return None
