"""Replies of several parts: reasoning, text and tool calls, as stretches of one text of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from llmdsim.reply.reply import Delta, Part, TextReply
from llmdsim.tokenization import Layout


class Stretch(NamedTuple):
    """A part and the characters of the reply's text that are shown as it; what lies between is markup."""

    part: Part
    start: int
    stop: int


class PartedReply(TextReply):
    """Any text, of which stretches are shown as parts; they are in order and do not overlap.

    A part of which nothing was said before the reply ended is none of `parts`. The steps `reasoning` are so.
    """

    __slots__ = ("_reasoning", "_stretches", "parts")

    def __init__(
        self,
        said: Layout,
        stretches: Sequence[Stretch],
        reasoning: range,
        finish_reason: str,
        stop_reason: str | int | None = None,
        shown: int | None = None,
        held_back: int = 0,
    ) -> None:
        super().__init__(said, finish_reason, stop_reason, shown, held_back)
        end = self._revealed(self.total)
        self._reasoning = reasoning
        self._stretches = [stretch for stretch in stretches if stretch.start < min(stretch.stop, end)]
        self.parts = tuple(stretch.part for stretch in self._stretches)

    def deltas(self, start: int, stop: int) -> list[list[Delta]]:
        stop = min(stop, self.total)
        marks = [self._revealed(steps) for steps in range(start, stop + 1)]
        return [self._between(marks[step], marks[step + 1]) for step in range(len(marks) - 1)]

    def part_texts(self) -> list[str]:
        end = self._revealed(self.total)
        return [self._text[start : min(stop, end)] for _, start, stop in self._stretches]

    def reasoning_tokens(self, steps: int) -> int:
        return len(self._reasoning[: max(0, steps - self._reasoning.start)])

    def _between(self, start: int, stop: int) -> list[Delta]:
        return [
            Delta(number, self._text[max(start, first) : min(stop, last)])
            for number, (_, first, last) in enumerate(self._stretches)
            if max(start, first) < min(stop, last)
        ]
