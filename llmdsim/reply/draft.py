"""A reply being put together: tokens, and which stretches of their text are shown as what."""

from __future__ import annotations

from collections.abc import Sequence

from llmdsim.reply.parts import Stretch
from llmdsim.reply.reply import Part
from llmdsim.tokenization import Layout, Tokenizer

#: The id of a token without text.
_PAD = 0


class Draft:
    """Pieces are added at the end, each tokenized by itself, so that no token has text of two."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.stretches: list[Stretch] = []
        self.reasoning = range(0)
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._texts: list[str] = []
        self._characters = 0

    @property
    def total(self) -> int:
        """Tokens so far."""
        return len(self._ids)

    def markup(self, text: str) -> None:
        """Add a text that is not shown."""
        self.tokens(self._tokenizer.split(text), None)

    def thoughts(self, tokens: tuple[Sequence[int], Sequence[str]], part: Part | None) -> None:
        """Add reasoning, between its marks; it is shown as `part`, if at all."""
        self.markup("<think>")
        start = self.total
        self.tokens(tokens, part)
        self.reasoning = range(start, self.total)
        self.markup("</think>")

    def text(self, text: str, part: Part) -> None:
        """Add a text that is shown as `part`."""
        self.tokens(self._tokenizer.split(text), part)

    def tokens(self, tokens: tuple[Sequence[int], Sequence[str]], part: Part | None) -> None:
        """Add tokens, ids and texts."""
        ids, texts = tokens
        self._ids += ids
        self._texts += texts
        start = self._characters
        self._characters += sum(map(len, texts))
        if part is not None:
            self.stretches.append(Stretch(part, start, self._characters))

    def pad(self, total: int) -> None:
        """Make it so many tokens long."""
        missing = total - self.total
        self._ids += [_PAD] * missing
        self._texts += [""] * missing

    def layout(self) -> Layout:
        """All of it."""
        return Layout.of(self._texts, self._ids)
