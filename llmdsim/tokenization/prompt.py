"""A prompt: text or token ids, tokenized once, and only as far as somebody asks."""

from __future__ import annotations

from array import array
from collections.abc import Generator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple, Self

import msgspec

from llmdsim.tokenization.steps import Step, at_once
from llmdsim.tokenization.tokenizer import Around, Tokenizer
from llmdsim.tokenization.unicode import well_formed

#: Bytes of an id.
WIDTH = array("I").itemsize


class MediaSpan(NamedTuple):
    """An item of media: `identifier`, and the `length` tokens from `offset` on that stand for it."""

    identifier: str
    offset: int
    length: int


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


class Prompt(msgspec.Struct, eq=False):
    """A prompt made from `text`, or with `of_ids` from ids.

    `len(prompt)` is its tokens. `text` is None when the client sent ids; otherwise it holds no lone surrogate
    (each became U+FFFD). `ids`, `tokens`, `texts` (the tokens' own texts, parallel to them) and `layout` are
    made at first use: most requests need only the length. Callers must not change them.

    All of that takes long for a long prompt. Whoever must not hold up others exhausts `count`, `tokenize` or
    `lay_out` before, step by step; each step takes less than a millisecond, or is a function for a thread.

    With `most`, a text that surely has more tokens than that is not counted to its end: its length is then
    some number above `most`. With `special` a text has the special tokens around it that the model wants;
    these are no part of its text.
    """

    _tokenizer: Tokenizer
    text: str | None
    most: int | None = None
    special: bool = False
    #: The media in it, in order, for whoever has to tell prompts apart.
    media: tuple[MediaSpan, ...] = ()
    _around: Around | None = None
    #: -1 until it is known.
    _length: int = -1
    _packed: bytes | None = None
    _ids: list[int] | None = None
    _tokens: array[int] | None = None
    _layout: Layout | None = None
    _texts: list[str] | None = None

    def __post_init__(self) -> None:
        text = self.text
        if text is not None and not text.isascii():
            self.text = well_formed(text)
        if self.special:
            self._around = self._tokenizer.around

    @classmethod
    def of_ids(cls, tokenizer: Tokenizer, ids: Sequence[int]) -> Self:
        """The prompt of ids that the client sent."""
        return cls(tokenizer, None, _ids=list(ids), _length=len(ids))

    def __len__(self) -> int:
        if self._length < 0:
            text = self.text
            assert text is not None
            if len(text) <= self._tokenizer.part:
                self._length = self._tokenizer.count(text)
                if self._around is not None:
                    self._length += len(self._around.before) + len(self._around.after)
            else:
                at_once(self.count())
        return self._length

    @property
    def bare(self) -> Prompt:
        """The same without the special tokens around a text."""
        return self if self._around is None else Prompt(self._tokenizer, self.text)

    @property
    def long(self) -> bool:
        """Whether counting or laying out takes more than one step."""
        return (self._length if self.text is None else len(self.text)) > self._tokenizer.part

    def count(self) -> Generator[Step, None, None]:
        """Find the length, step by step."""
        if self._length >= 0:
            return
        assert self.text is not None
        length = yield from self._tokenizer.count_in_steps(self.text, self.most)
        if self._around is not None:
            length += len(self._around.before) + len(self._around.after)
        self._length = length

    def tokenize(self) -> Generator[Step, None, None]:
        """Find the ids, step by step, and not what their texts are."""
        if self._tokens is not None:
            return
        if self._layout is not None:
            self._tokens = self._layout.ids
        elif self.text is None:
            self._tokens = array("I", self._ids or ())
        else:
            tokens = yield from self._tokenizer.encode_in_steps(self.text)
            if self._around is not None:
                tokens = array("I", self._around.before) + tokens + array("I", self._around.after)
            self._tokens = tokens

    @property
    def tokens(self) -> array[int]:
        """The ids, four bytes each."""
        if self._tokens is None:
            at_once(self.tokenize())
        assert self._tokens is not None
        return self._tokens

    @property
    def packed(self) -> bytes:
        """The same as bytes: one object, however often it is asked for."""
        if self._packed is None:
            self.number()
            assert self._packed is not None
        return self._packed

    def number(self) -> None:
        """Find the ids as bytes; where they are wanted anyway they are the cheapest way to the length."""
        if self._packed is None:
            if self._tokens is None and self.text is not None and self._around is None and not self.long:
                self._packed = self._tokenizer.packed(self.text)
            else:
                self._packed = self.tokens.tobytes()
            self._length = len(self._packed) // WIDTH

    def lay_out(self) -> Generator[Step, None, None]:
        """Make the layout, step by step."""
        if self._layout is not None:
            return
        text = self.text
        if text is None:
            assert self._ids is not None
            ends = array("I", [0])
            shown = []
            for texts in self._tokenizer.decode_parts(self._ids):
                ends.extend(accumulate(map(len, texts), initial=ends.pop()))
                shown.append("".join(texts))
                yield None
            self._layout = Layout("".join(shown), ends, array("I", self._ids))
            return
        ids, ends = yield from self._tokenizer.split_in_steps(text)
        # A text may be of nothing that there are tokens for.
        text = text[: ends[-1]]
        if self._around is not None:
            before, after = self._around
            ids = array("I", before) + ids + array("I", after)
            ends = array("I", [0]) * len(before) + ends + ends[-1:] * len(after)
        self._layout = Layout(text, ends, ids)

    @property
    def layout(self) -> Layout:
        """The text and its tokens."""
        if self._layout is None:
            at_once(self.lay_out())
        assert self._layout is not None
        return self._layout

    @property
    def ids(self) -> list[int]:
        """The ids as a list."""
        if self._ids is None:
            if self._layout is not None:
                self._ids = self._layout.ids.tolist()
            elif self._tokens is None and self._around is None and not self.long:
                assert self.text is not None
                # No more than this for nearly all.
                self._ids = self._tokenizer.encode(self.text)
            else:
                self._ids = self.tokens.tolist()
        return self._ids

    @property
    def texts(self) -> list[str]:
        """Each token's text."""
        if self._texts is None:
            self._texts = self.layout.texts
        return self._texts

    def __repr__(self) -> str:
        return f"<Prompt text={self.text!r:.60}>" if self.text is not None else f"<Prompt of {len(self)} ids>"
