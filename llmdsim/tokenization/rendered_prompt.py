"""A prompt whose token ids somebody else found."""

from __future__ import annotations

from array import array
from collections.abc import Generator, Sequence
from typing import Any

from llmdsim.tokenization.prompt import Layout, Prompt
from llmdsim.tokenization.tokenizer import Tokenizer


class RenderedPrompt(Prompt, eq=False):
    """A text, and the ids that it has for another tokenizer: see `of`.

    Which of them has which part of the text cannot be told; the pieces of our own tokenizer are handed out in
    their order. What is left over of the text goes to the last id; what is left over of the ids has no text.
    """

    @classmethod
    def of(cls, tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> RenderedPrompt:
        """The prompt of a text that somebody else found these ids for."""
        return cls(tokenizer, text, _ids=list(ids), _tokens=array("I", ids), _length=len(ids))

    def lay_out(self) -> Generator[Any, None, None]:
        if self._layout is None:
            yield from super().lay_out()
            text, ends, _ = self.layout
            ids = self.tokens
            spare = len(ids) + 1 - len(ends)
            if spare < 0 and ids:
                ends = ends[: len(ids)] + ends[-1:]
            else:
                ends = ends[: len(ids) + 1] + ends[-1:] * spare
            self._layout = Layout(text[: ends[-1]], ends, ids)
