"""Writes a text that a regular expression matches as a whole."""

from __future__ import annotations

from random import Random

from llmdsim.reply.effort import DeadEndError, Effort
from llmdsim.reply.regex.matching import holds
from llmdsim.reply.regex.nodes import (
    Alternate,
    Assertion,
    Backreference,
    Concat,
    Group,
    Literal,
    Node,
    OneOf,
    Repeat,
)

MAX_TEXT = 8192
"""Characters of a text at most."""

_MORE_CHARACTERS = 7
_MORE_GROUPS = 2
"""By how much a repeat without need goes beyond its least number."""


class Attempt:
    """One attempt at a text.

    With `any_printable`, open sets such as `.` and `\\w` give all they hold in ASCII and not only small
    letters and digits.
    """

    def __init__(self, random: Random, effort: Effort, any_printable: bool) -> None:
        self._effort = effort
        self._random = random
        self._any_printable = any_printable
        self._pieces: list[str] = []
        self._length = 0
        self._groups: dict[int, str] = {}
        self._conditions: list[tuple[str, int]] = []

    def text(self, root: Node, low: int, high: int) -> str:
        """A text of `low` .. `high` characters (as nearly as can be said before).

        Raises DeadEndError, or TooHardError when the effort is spent.
        """
        self._write(root, low, min(high, MAX_TEXT))
        text = "".join(self._pieces)
        if not all(holds(kind, text, place) for kind, place in self._conditions):
            raise DeadEndError
        return text

    def _write(self, node: Node, low: int, high: int) -> None:
        self._effort.spend(2)
        if node.shortest > high or node.longest < low:
            raise DeadEndError
        if isinstance(node, Literal):
            self._say(node.text)
        elif isinstance(node, OneOf):
            char = node.charset.draw(self._random, self._any_printable)
            if char is None:
                raise DeadEndError
            self._say(char)
        elif isinstance(node, Concat):
            self._concat(node, low, high)
        elif isinstance(node, Repeat):
            self._repeat(node, low, high)
        elif isinstance(node, Alternate):
            fitting = [
                branch for branch in node.branches if branch.shortest <= high and branch.longest >= low
            ]
            self._write(self._random.choice(fitting), low, high)
        elif isinstance(node, Group):
            start = len(self._pieces)
            self._write(node.item, low, high)
            self._groups[node.number] = "".join(self._pieces[start:])
        elif isinstance(node, Backreference):
            if node.number not in self._groups:
                raise DeadEndError
            self._say(self._groups[node.number])
        elif isinstance(node, Assertion):
            self._conditions.append((node.kind, self._length))
        # What looks around is left to the check of the finished text.

    def _say(self, text: str) -> None:
        self._pieces.append(text)
        self._length += len(text)

    def _concat(self, node: Concat, low: int, high: int) -> None:
        start = self._length
        for item, rest_shortest, rest_longest in zip(
            node.items, node.rest_shortest, node.rest_longest, strict=True
        ):
            said = self._length - start
            self._write(item, max(low - said - rest_longest, 0), high - said - rest_shortest)

    def _repeat(self, node: Repeat, low: int, high: int) -> None:
        item = node.item
        least, most = node.least, node.most
        if item.longest:
            least = max(least, -(-low // item.longest))
            more = _MORE_CHARACTERS if isinstance(item, OneOf) else _MORE_GROUPS
        else:
            more = 0
        if item.shortest:
            most = high // item.shortest if most is None else min(most, high // item.shortest)
        wanted = least + more
        count = self._random.randint(least, wanted if most is None else max(min(most, wanted), least))
        start = self._length
        for left in range(count - 1, -1, -1):
            said = self._length - start
            self._write(item, max(low - said - left * item.longest, 0), high - said - left * item.shortest)
