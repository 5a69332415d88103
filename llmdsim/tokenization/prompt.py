"""A prompt: text or token ids, tokenized once, and only as far as somebody asks."""

from collections.abc import Sequence

from llmdsim.tokenization.tokenizer import Tokenizer
from llmdsim.tokenization.unicode import well_formed

SLICE = 65536
"""Characters counted at a time where a text may be too long to be worth counting whole."""

CUT = 8
"""The most tokens a cut between two slices may add."""


class Prompt:
    """A prompt made from `text` or from `ids` (just one of them).

    `len(prompt)` is its tokens. `text` is None when the client sent ids; otherwise it holds no lone surrogate
    (each became U+FFFD). `ids` and `texts` (the tokens' own texts) are parallel lists made at first use: most
    requests need only the length. Callers must not change them.

    With `most`, a text that surely has more tokens than that is not counted to its end: its length is then
    some number above `most`.
    """

    __slots__ = ("_ids", "_length", "_most", "_texts", "_tokenizer", "text")

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
            assert self.text is not None
            self._length = self._count(self.text)
        return self._length

    def _count(self, text: str) -> int:
        if self._most is not None and len(text) > SLICE:
            least = 0
            for start in range(0, len(text), SLICE):
                least += self._tokenizer.count(text[start : start + SLICE]) - CUT
                if least > self._most:
                    return least
        return self._tokenizer.count(text)

    @property
    def ids(self) -> list[int]:
        if self._ids is None:
            assert self.text is not None
            self._ids = self._tokenizer.encode(self.text)
        return self._ids

    @property
    def texts(self) -> list[str]:
        if self._texts is None:
            if self.text is None:
                assert self._ids is not None
                self._texts = self._tokenizer.decode(self._ids)
            else:
                self._ids, self._texts = self._tokenizer.split(self.text)
        return self._texts

    def __repr__(self) -> str:
        return f"<Prompt text={self.text!r:.60}>" if self.text is not None else f"<Prompt of {len(self)} ids>"
