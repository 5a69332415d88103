"""Matches a text against a regular expression in bounded time.

Python's own `re` may take forever with a pattern that a client wrote. Here every state, a place in the
program together with a place in the text, is looked at once, and the effort is bounded too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from llmdsim.reply.effort import Effort, TooHardError
from llmdsim.reply.regex.charset import WORD, CharSet
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

MAX_PROGRAM = 4000
"""Steps of a program; what is repeated takes its own so many times, unless it is a single character."""

_WORD: Final = CharSet(WORD)
_END: Final = 0
"""The step every program ends with."""

Groups = tuple[str | int | None, ...]
"""The text of each group, or where it began while it is open; empty where nothing refers to groups."""
State = tuple[int, int, Groups]


class _Run:
    """`least` .. `most` characters of a set."""

    __slots__ = ("charset", "least", "most")

    def __init__(self, charset: CharSet, least: int, most: int | None) -> None:
        self.charset = charset
        self.least = least
        self.most = most


class _Mark:
    """The start or the end of a group."""

    __slots__ = ("closes", "number")

    def __init__(self, number: int, closes: bool) -> None:
        self.number = number
        self.closes = closes


class _Inner:
    """A look ahead or behind."""

    __slots__ = ("look", "program")

    def __init__(self, look: Look, program: Program) -> None:
        self.look = look
        self.program = program

    def found(self, text: str, at: int, effort: Effort, groups: Groups) -> bool:
        if self.look.behind:
            return self.program.runs(text, range(at + 1), at, effort, groups)
        return self.program.runs(text, (at,), None, effort, groups)


_Step = Literal | OneOf | Assertion | Backreference | _Run | _Mark | _Inner | None


class Program:
    """Steps, each with those that may follow it, laid out from the last to the first.

    Raises TooHardError if there are too many, or the effort is spent.
    """

    def __init__(self, root: Node, groups: int, effort: Effort) -> None:
        self._effort = effort
        self._no_groups: Groups = (None,) * groups
        self._steps: list[tuple[_Step, tuple[int, ...]]] = [(None, ())]
        self._start = self._compile(root, _END)

    @classmethod
    def of(cls, tree: Tree, effort: Effort) -> Program:
        return cls(tree.root, 0 if tree.groups is None else tree.groups + 1, effort)

    def _add(self, step: _Step, *following: int) -> int:
        self._effort.spend(2)
        if len(self._steps) >= MAX_PROGRAM:
            raise TooHardError
        self._steps.append((step, following))
        return len(self._steps) - 1

    def _compile(self, node: Node, following: int) -> int:
        """Where to begin to match `node` and then what begins at `following`."""
        match node:
            case Concat():
                for item in reversed(node.items):
                    following = self._compile(item, following)
                return following
            case Alternate():
                return self._add(None, *[self._compile(branch, following) for branch in node.branches])
            case Repeat():
                return self._compile_repeat(node, following)
            case Group() if self._no_groups:
                closing = self._add(_Mark(node.number, True), following)
                return self._add(_Mark(node.number, False), self._compile(node.item, closing))
            case Group():
                return self._compile(node.item, following)
            case Look():
                return self._add(
                    _Inner(node, Program(node.item, len(self._no_groups), self._effort)), following
                )
            case Literal() | OneOf() | Assertion() | Backreference():
                return self._add(node, following)
        raise TypeError(node)

    def _compile_repeat(self, node: Repeat, following: int) -> int:
        item, least, most = node.item, node.least, node.most
        if isinstance(item, OneOf):
            return self._add(_Run(item.charset, least, most), following)
        if not item.longest:
            # Once more of nothing is nothing.
            least, most = min(least, 1), 1
        start = following
        if most is None:
            start = self._add(None)
            self._steps[start] = (None, (self._compile(item, start), following))
        else:
            for _ in range(most - least):
                start = self._add(None, self._compile(item, start), following)
        for _ in range(least):
            start = self._compile(item, start)
        return start

    def runs(
        self, text: str, starts: Iterable[int], end: int | None, effort: Effort, groups: Groups | None = None
    ) -> bool:
        """Whether there is a match from one of `starts` up to `end`, None for any end.

        Raises TooHardError when the effort is spent.
        """
        groups = self._no_groups if groups is None else groups
        stack: list[State] = [(self._start, start, groups) for start in starts]
        effort.spend(len(stack))
        seen: set[State] = set()
        while stack:
            state = stack.pop()
            if state in seen:
                continue
            seen.add(state)
            place, at, groups = state
            if place == _END:
                if end is None or at == end:
                    return True
                continue
            step, following = self._steps[place]
            effort.spend(1 + len(following))
            match step:
                case None:
                    pass
                case Literal():
                    if not text.startswith(step.text, at):
                        continue
                    at += len(step.text)
                case OneOf():
                    if at >= len(text) or text[at] not in step.charset:
                        continue
                    at += 1
                case _Run():
                    stop = _run_end(step, text, at, effort)
                    stack += [(following[0], after, groups) for after in range(at + step.least, stop + 1)]
                    continue
                case _Mark():
                    groups = _marked(groups, step, text, at)
                case Assertion():
                    if not holds(step.kind, text, at):
                        continue
                case Backreference():
                    said = groups[step.number]
                    if not isinstance(said, str) or not text.startswith(said, at):
                        continue
                    at += len(said)
                case _Inner():
                    if step.found(text, at, effort, groups) == step.look.negative:
                        continue
            for place in reversed(following):
                stack.append((place, at, groups))
        return False


def _run_end(run: _Run, text: str, at: int, effort: Effort) -> int:
    """Behind the last character from `at` on that the run may take in."""
    most = len(text) if run.most is None else min(at + run.most, len(text))
    stop = at
    while stop < most and text[stop] in run.charset:
        stop += 1
    effort.spend(2 * (stop - at))
    return stop


def _marked(groups: Groups, mark: _Mark, text: str, at: int) -> Groups:
    begun = groups[mark.number]
    value = text[begun:at] if mark.closes and isinstance(begun, int) else at
    return (*groups[: mark.number], value, *groups[mark.number + 1 :])


def holds(kind: str, text: str, at: int) -> bool:
    """Whether the condition `kind` (see `Assertion`) holds at a place in the text."""
    match kind:
        case "start":
            return at == 0
        case "end":
            return at == len(text)
        case "line start":
            return at == 0 or text[at - 1] == "\n"
        case "line end":
            return at == len(text) or text[at] == "\n"
    before = at > 0 and text[at - 1] in _WORD
    behind = at < len(text) and text[at] in _WORD
    return (before != behind) == (kind == "boundary")
