"""A prompt: text or token ids, tokenized once, and only as far as somebody asks."""

from collections.abc import Sequence

from llmdsim.tokenization.tokenizer import Tokenizer
from llmdsim.tokenization.unicode import well_formed


class Prompt:
    """A prompt made from `text` or from `ids` (just one of them).

    `len(prompt)` is its tokens. `text` is None when the client sent ids; otherwise it holds no lone surrogate
    (each became U+FFFD). `ids` and `texts` (the tokens' own texts) are parallel lists made at first use: most
    requests need only the length. Callers must not change them.
    """

    __slots__ = ("_ids", "_length", "_texts", "_tokenizer", "text")

    text: str | None

    def __init__(
        self, tokenizer: Tokenizer, text: str | None = None, ids: Sequence[int] | None = None
    ) -> None:
        if (text is None) == (ids is None):
            raise TypeError("a prompt is made from either text or ids")
        self._tokenizer = tokenizer
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
            self._length = self._tokenizer.count(self.text)
        return self._length

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
