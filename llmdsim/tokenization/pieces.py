"""The text of each single token, cut so that no character is torn apart."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

#: Tokens that are waited for until they make up characters, four bytes each at most; and how many of them may
#: begin one, when the others are taken for none.
_MOST_PENDING = 8
_BEGINNING = 3

#: Tokens before the next one that its text may depend on: a first one lacks the blank before it.
_CONTEXT = 4


def ends_of(offsets: Iterable[tuple[int, int]], length: int) -> array[int]:
    """Where each token's piece ends, in characters, after the 0 where the first begins.

    `offsets` are where a tokenizer found each token in a text of that `length`, in order. Tokens that share a
    character overlap: it is in the last one's piece. What is in no token belongs to the one after it.
    """
    ends = array("I")
    begun = length
    for start, end in reversed(list(offsets)):
        ends.append(min(end, begun))
        begun = min(start, begun)
    if ends:
        ends[0] = length
    ends.append(0)
    ends.reverse()
    return ends


class PieceDecoder:
    """Makes pieces of ids, one by one; `tokenizer` is one of the `tokenizers` library.

    Bytes that make up no character read as U+FFFD, in the piece of the token that shows it.
    """

    def __init__(self, tokenizer: Any) -> None:
        # As slow to load as the library itself, which whoever has a tokenizer has loaded.
        from tokenizers.decoders import DecodeStream  # noqa: PLC0415

        self._new_stream = DecodeStream
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=False)
        self._pending: list[int] = []
        self._before: list[int] = []

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The piece of each of these, which follow those before."""
        tokenizer, pending = self._tokenizer, self._pending
        step = self._stream.step
        texts = []
        for token_id in ids:
            pending.append(token_id)
            try:
                text = step(tokenizer, token_id)
            except Exception:
                # The library has no type of its own for a text that changes what is before it.
                text = self.rest()
                step = self._stream.step
            else:
                if text is not None:
                    self._done()
                elif len(pending) == _MOST_PENDING:
                    late = pending[-_BEGINNING:]
                    del pending[-_BEGINNING:]
                    text = self.rest() + "".join(self.pieces(late))
                    step = self._stream.step
            texts.append(text or "")
        return texts

    def rest(self) -> str:
        """What the last pieces lack, since it is no complete character; nothing is waited for after that."""
        if not self._pending:
            return ""
        decode = self._tokenizer.decode
        before = decode(self._before, skip_special_tokens=False)
        text: str = decode(self._before + self._pending, skip_special_tokens=False)
        if text.startswith(before):
            text = text[len(before) :]
        else:
            text = decode(self._pending, skip_special_tokens=False)
        if text.endswith("\ufffd"):
            # A stream that begins with such would wait for its end, and then tell it once more.
            self._pending.clear()
        else:
            self._done()
        self._stream = self._new_stream(ids=self._before, skip_special_tokens=False)
        return text

    def _done(self) -> None:
        self._before = (self._before + self._pending)[-_CONTEXT:]
        self._pending.clear()


def decoded_parts(tokenizer: Any, ids: Sequence[int], size: int) -> Iterator[list[str]]:
    """The pieces of ids, so many at a time."""
    decoder = PieceDecoder(tokenizer)
    for start in range(0, len(ids), size):
        texts = decoder.pieces(ids[start : start + size])
        if start + size >= len(ids):
            texts[-1] += decoder.rest()
        yield texts
