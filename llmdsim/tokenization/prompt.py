"""A prompt: text or token ids, tokenized once, and only as far as somebody asks."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from llmdsim.tokenization.tokenizer import Tokenizer
from llmdsim.tokenization.unicode import well_formed

TOLD = 65536
"""Characters of a text that are counted in any case, so that most refusals tell a prompt's true length."""


class Layout(NamedTuple):
    """A text and its tokens: `ends[i]`, i up to `len(ids)`, is the length of the first i tokens' text."""

    text: str
    ends: array[int]
    ids: array[int]

    @classmethod
    def of(cls, texts: Sequence[str], ids: Sequence[int]) -> Layout:
        """Made from parallel lists, each token's text and id."""
        return cls("".join(texts), array("I", accumulate(map(len, texts), initial=0)), array("I", ids))

    @property
    def texts(self) -> list[str]:
        """Each token's text."""
        return [self.text[start:end] for start, end in pairwise(self.ends)]

    def cut(self, tokens: int) -> Layout:
        """The first so many tokens."""
        ends = self.ends[: tokens + 1]
        return Layout(self.text[: ends[-1]], ends, self.ids[:tokens])


class Prompt:
    """A prompt made from `text` or from `ids` (just one of them).

    `len(prompt)` is its tokens. `text` is None when the client sent ids; otherwise it holds no lone surrogate
    (each became U+FFFD). `ids`, `tokens`, `texts` (the tokens' own texts, parallel to them) and `layout` are
    made at first use: most requests need only the length. Callers must not change them.

    All of that takes long for a long prompt. Whoever must not hold up others exhausts `count`, `tokenize` or
    `lay_out` before, step by step; each step takes less than a millisecond.

    With `most`, a text that surely has more tokens than that is not counted to its end: its length is then
    some number above `most`.
    """

    __slots__ = ("_ids", "_layout", "_length", "_most", "_packed", "_texts", "_tokenizer", "_tokens", "text")

    text: str | None

    def __init__(
        self,
        tokenizer: Tokenizer,
        text: str | None = None,
        ids: Sequence[int] | None = None,
        most: int | None = None,
    ) -> None:
        if (text is None) == (ids is None):
            raise TypeError("a prompt is made from either text or ids")
        self._tokenizer = tokenizer
        self._most = most
        self._texts: list[str] | None = None
        self._layout: Layout | None = None
        self._tokens: array[int] | None = None
        self._packed: bytes | None = None
        if ids is None:
            assert text is not None
            self.text = text if text.isascii() else well_formed(text)
            self._ids: list[int] | None = None
            self._length = -1
        else:
            self.text = None
            self._ids = list(ids)
            self._length = len(self._ids)

    def __len__(self) -> int:
        if self._length < 0:
            text = self.text
            assert text is not None
            if len(text) <= self._tokenizer.part:
                self._length = self._tokenizer.count(text)
            else:
                for _ in self.count():
                    pass
        return self._length

    @property
    def long(self) -> bool:
        """Whether counting or laying out takes more than one step."""
        return (self._length if self.text is None else len(self.text)) > self._tokenizer.part

    def count(self) -> Iterator[None]:
        """Find the length, step by step."""
        if self._length >= 0:
            return
        text = self.text
        assert text is not None
        tokens = characters = 0
        for part in self._tokenizer.parts(text):
            tokens += self._tokenizer.count(part)
            characters += len(part)
            if self._most is not None and tokens > self._most and characters > TOLD:
                break
            yield
        self._length = tokens

    def tokenize(self) -> Iterator[None]:
        """Find the ids, step by step, and not what their texts are."""
        if self._tokens is not None:
            return
        if self._layout is not None:
            self._tokens = self._layout.ids
        elif self.text is None:
            self._tokens = array("I", self._ids or ())
        else:
            tokens = array("I")
            for part in self._tokenizer.parts(self.text, split=True):
                tokens.extend(self._tokenizer.encode(part))
                yield
            self._tokens = tokens

    @property
    def tokens(self) -> array[int]:
        """The ids, four bytes each."""
        if self._tokens is None:
            for _ in self.tokenize():
                pass
        assert self._tokens is not None
        return self._tokens

    @property
    def packed(self) -> bytes:
        """The same as bytes: one object, however often it is asked for."""
        if self._packed is None:
            self._packed = self.tokens.tobytes()
        return self._packed

    def lay_out(self) -> Iterator[None]:
        """Make the layout, step by step."""
        if self._layout is not None:
            return
        text = self.text
        ends = array("I", [0])
        if text is None:
            assert self._ids is not None
            shown = []
            for texts in self._tokenizer.decode_parts(self._ids):
                _extend(ends, texts)
                shown.append("".join(texts))
                yield
            self._layout = Layout("".join(shown), ends, array("I", self._ids))
            return
        ids = array("I")
        for part in self._tokenizer.parts(text, split=True):
            part_ids, pieces = self._tokenizer.split(part)
            ids.extend(part_ids)
            _extend(ends, pieces)
            yield
        self._layout = Layout(text, ends, ids)

    @property
    def layout(self) -> Layout:
        if self._layout is None:
            for _ in self.lay_out():
                pass
        assert self._layout is not None
        return self._layout

    @property
    def ids(self) -> list[int]:
        if self._ids is None:
            assert self.text is not None
            if self._layout is not None:
                self._ids = self._layout.ids.tolist()
            else:
                self._ids = self._tokenizer.encode(self.text)
        return self._ids

    @property
    def texts(self) -> list[str]:
        if self._texts is None:
            self._texts = self.layout.texts
        return self._texts

    def __repr__(self) -> str:
        return f"<Prompt text={self.text!r:.60}>" if self.text is not None else f"<Prompt of {len(self)} ids>"


def _extend(ends: array[int], texts: list[str]) -> None:
    start = ends.pop()
    ends.extend(accumulate(map(len, texts), initial=start))
