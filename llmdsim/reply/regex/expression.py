"""A regular expression: texts that match it, and whether a given one does; all in bounded time."""

from __future__ import annotations

from functools import lru_cache
from random import Random
from typing import NamedTuple

from llmdsim.reply.effort import DeadEndError, Effort, TooHardError
from llmdsim.reply.regex.matching import Program
from llmdsim.reply.regex.nodes import Tree
from llmdsim.reply.regex.parsing import MAX_PATTERN, UnsupportedRegexError, parse
from llmdsim.reply.regex.writing import MAX_TEXT, Attempt

_ATTEMPTS = 24
MAX_EFFORT = 10_000
"""Some five milliseconds."""
_WORD_LENGTH = 6
_VARIED = 100


class Written(NamedTuple):
    """`conforming` is False where no text that matches was found: then `text` is a plain word."""

    text: str
    conforming: bool


class Regex:
    """A regular expression of Python, ECMAScript or Rust. Raises InvalidRegexError.

    Possessive and atomic repeats, conditions, verbose mode, scripts and other properties than general
    categories, and patterns of more than `MAX_PATTERN` characters are taken, but no text is made of them.
    What looks ahead or behind is met by trying, where a few attempts suffice. A call takes no more than
    `effort`, by default `MAX_EFFORT`.
    """

    def __init__(self, pattern: str) -> None:
        self._tree: Tree | None = None
        self._program: Program | None = None
        try:
            self._tree = parse(pattern)
        except UnsupportedRegexError:
            pass

    def write(
        self,
        random: Random,
        low: int = 0,
        high: int = MAX_TEXT,
        *,
        whole: bool = True,
        effort: Effort | None = None,
    ) -> Written:
        """A text of `low` .. `high` characters that matches as a whole or, unless `whole`, in a part."""
        high = min(high, MAX_TEXT)
        text = None
        if self._tree is not None:
            try:
                text = self._write(self._tree, random, low, high, whole, effort or Effort(MAX_EFFORT))
            except TooHardError:
                pass
        if text is not None:
            return Written(text, True)
        return Written(letters(random, min(max(low, _WORD_LENGTH), high)), False)

    def _write(
        self, tree: Tree, random: Random, low: int, high: int, whole: bool, effort: Effort
    ) -> str | None:
        # Text around a match breaks nothing at the ends that the expression leaves open.
        padded = not whole and not (tree.opens and tree.closes)
        least = min(low, tree.root.longest) if padded else low
        for attempt in range(_ATTEMPTS):
            attempted = Attempt(random, effort, any_printable=attempt > 2)
            try:
                text = attempted.text(tree.root, least, high)
            except DeadEndError:
                continue
            if padded:
                text = _padded(text, tree, random, low, high)
            if low <= len(text) <= high and (
                not tree.looks or self.matches(text, whole=whole, effort=effort)
            ):
                return text
        return None

    def matches(self, text: str, *, whole: bool = False, effort: Effort | None = None) -> bool | None:
        """Whether it matches `text`, or unless `whole` a part of it; None if that is too hard to say.

        `$` is the very end: a newline behind it is a character like others.
        """
        if self._tree is None:
            return None
        effort = effort or Effort(MAX_EFFORT)
        starts = (0,) if whole else range(len(text), -1, -1)
        try:
            if self._program is None:
                self._program = Program.of(self._tree, effort)
            return self._program.runs(text, starts, len(text) if whole else None, effort)
        except TooHardError:
            return None


def _padded(text: str, tree: Tree, random: Random, low: int, high: int) -> str:
    missing = low - len(text)
    if tree.opens and missing < _WORD_LENGTH <= high - len(text):
        # `^https://` alone would be a poor address.
        missing = _WORD_LENGTH
    if missing <= 0:
        return text
    return letters(random, missing) + text if tree.closes else text + letters(random, missing)


def regex(pattern: str) -> Regex:
    """`Regex(pattern)`, the last few kept."""
    # One that is too long is quickly told, and would be kept as well.
    return _kept(pattern) if len(pattern) <= MAX_PATTERN else Regex(pattern)


_kept = lru_cache(maxsize=32)(Regex)


def letters(random: Random, length: int) -> str:
    some = "".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=min(length, _VARIED)))
    return (some * (length // _VARIED + 1))[:length]
