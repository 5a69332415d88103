"""A finished reply: every token of an answer, its text and what of it each step reveals, as plain data.

Steps are numbered 0 .. `total` - 1, one a token. The forms differ only in how they store their tokens.
"""

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple

import msgspec

from llmdsim.reply.bank import Sentence
from llmdsim.tokenization import Layout, Prompt
from llmdsim.tokenization.prompt import WIDTH

_encode = msgspec.json.Encoder().encode


class Part(NamedTuple):
    """A stretch of a reply: text, reasoning before it, or the arguments of a call to function `name`."""

    kind: Literal["text", "reasoning", "call"]
    name: str = ""


class Delta(NamedTuple):
    """Text, never empty, that a step adds to part number `part`."""

    part: int
    text: str


#: The parts of nearly every reply.
TEXT_ONLY = (Part("text"),)


class Reply(ABC):
    """`total` tokens (0 only for an empty echo), `finish_reason` "stop" or "length", and `stop_reason`: the
    stop string or stop token id that ended the reply, else None.

    Ranges of steps are half open, as in slices, and cut to what there is. Texts hold no lone surrogates.
    """

    __slots__ = ("finish_reason", "stop_reason", "total")

    total: int
    finish_reason: str
    stop_reason: str | int | None
    #: What it is made of, in order.
    parts: tuple[Part, ...] = TEXT_ONLY

    @abstractmethod
    def texts(self, start: int, stop: int) -> list[str]:
        """The text each step reveals; empty while text is held back because it may become a stop string."""

    @abstractmethod
    def pieces(self, start: int, stop: int) -> list[bytes]:
        """`texts` as the inside of a JSON string: UTF-8, without the quotes."""

    @abstractmethod
    def token_texts(self, start: int, stop: int) -> list[str]:
        """Each token's own text; differs from `texts` only where stops are involved."""

    @abstractmethod
    def ids(self, start: int, stop: int) -> list[int]:
        """The token ids, that of a hidden stop token included."""

    def packed(self, start: int, stop: int) -> bytes:
        """The same as the bytes of an array of them, four each."""
        return array("I", self.ids(start, stop)).tobytes()

    def text(self) -> str:
        """All text revealed, markup between parts included."""
        return "".join(self.texts(0, self.total))

    def json_text(self) -> bytes:
        """`text()` as the inside of a JSON string."""
        return b"".join(self.pieces(0, self.total))

    def deltas(self, start: int, stop: int) -> list[list[Delta]]:
        """What each step adds to parts; one that ends a part and begins the next adds to both."""
        return [[Delta(0, text)] if text else [] for text in self.texts(start, stop)]

    def part_texts(self) -> list[str]:
        """The whole text of each of `parts`."""
        return [self.text()]

    def reasoning_tokens(self, steps: int) -> int:
        """How many of the first so many tokens are reasoning, shown or not, its marks left out."""
        return 0


class ShortSentenceReply(Reply):
    """Bank sentences, the last one cut: `over` of its tokens are too many.

    Single steps are read from lists, which are made when the first one is.
    """

    __slots__ = ("_ids", "_over", "_pieces", "_sentences", "_texts")

    def __init__(self, sentences: list[Sentence], total: int, over: int, finish_reason: str) -> None:
        self.total = total
        self.finish_reason = finish_reason
        self.stop_reason = None
        self._sentences = sentences
        self._over = over
        self._pieces: list[bytes] | None = None
        self._ids: list[int] | None = None
        self._texts: list[str] | None = None

    def pieces(self, start: int, stop: int) -> list[bytes]:
        pieces = self._pieces
        if pieces is None:
            pieces = self._pieces = []
            for sentence in self._sentences:
                pieces += sentence.json
            del pieces[self.total :]
        return pieces[start:stop]

    def json_text(self) -> bytes:
        text = b"".join([sentence.json_text for sentence in self._sentences])
        return text[: -self._sentences[-1].json_sizes[self._over]] if self._over else text

    def texts(self, start: int, stop: int) -> list[str]:
        if self._texts is None:
            self._texts = [text for sentence in self._sentences for text in sentence.texts][: self.total]
        return self._texts[start:stop]

    token_texts = texts

    def ids(self, start: int, stop: int) -> list[int]:
        if self._ids is None:
            self._ids = [token_id for sentence in self._sentences for token_id in sentence.ids][: self.total]
        return self._ids[start:stop]

    def packed(self, start: int, stop: int) -> bytes:
        return b"".join([sentence.packed for sentence in self._sentences])[
            start * WIDTH : min(stop, self.total) * WIDTH
        ]


class LongSentenceReply(Reply):
    """Bank sentences, the last one cut. Only their order is kept: a byte a token, not eight and more."""

    __slots__ = ("_sentences", "_starts")

    def __init__(self, sentences: Sequence[Sentence], total: int, finish_reason: str) -> None:
        self.total = total
        self.finish_reason = finish_reason
        self.stop_reason = None
        self._sentences = tuple(sentences)
        # Sentence i has tokens _starts[i] .. _starts[i + 1] - 1.
        self._starts = array("I", accumulate((sentence.total for sentence in sentences), initial=0))

    def _places(self, start: int, stop: int) -> list[tuple[Sentence, int, int]]:
        """The sentences that hold these steps, each with the range of its tokens."""
        stop = min(stop, self.total)
        starts = self._starts
        index = bisect_right(starts, start) - 1
        places = []
        while start < stop:
            first = starts[index]
            end = min(stop, starts[index + 1])
            places.append((self._sentences[index], start - first, end - first))
            start = end
            index += 1
        return places

    def pieces(self, start: int, stop: int) -> list[bytes]:
        # The one-token form of the loop below, which is how streams read.
        if stop - start == 1 and stop <= self.total:
            index = bisect_right(self._starts, start) - 1
            return [self._sentences[index].json[start - self._starts[index]]]
        places = self._places(start, stop)
        return [piece for sentence, first, end in places for piece in sentence.json[first:end]]

    def texts(self, start: int, stop: int) -> list[str]:
        places = self._places(start, stop)
        return [text for sentence, first, end in places for text in sentence.texts[first:end]]

    token_texts = texts

    def ids(self, start: int, stop: int) -> list[int]:
        places = self._places(start, stop)
        return [token_id for sentence, first, end in places for token_id in sentence.ids[first:end]]


class TextReply(Reply):
    """Any text, laid out: some 14 bytes a token. A step's text is encoded when read.

    Up to the last step the text revealed stays `held_back` characters behind the tokens; the last one reveals
    the rest up to `shown`, which leaves out a stop string or the text of a stop token.
    """

    __slots__ = ("_ends", "_held_back", "_ids", "_shown", "_text")

    def __init__(
        self,
        said: Layout,
        finish_reason: str,
        stop_reason: str | int | None = None,
        shown: int | None = None,
        held_back: int = 0,
    ) -> None:
        self._text, self._ends, self._ids = said
        self.total = len(said.ids)
        self.finish_reason = finish_reason
        self.stop_reason = stop_reason
        self._shown = len(said.text) if shown is None else shown
        self._held_back = held_back

    def _revealed(self, steps: int) -> int:
        """Characters shown after so many steps."""
        if steps >= self.total:
            return self._shown
        return max(0, self._ends[steps] - self._held_back)

    def texts(self, start: int, stop: int) -> list[str]:
        marks = [self._revealed(steps) for steps in range(start, min(stop, self.total) + 1)]
        return _slices(self._text, marks)

    def pieces(self, start: int, stop: int) -> list[bytes]:
        # The one-token form of `texts`, which is how streams read.
        if stop - start == 1 and stop < self.total:
            end = self._ends[stop] - self._held_back
            if end <= 0:
                return [b""]
            first = self._ends[start] - self._held_back
            return [_encode(self._text[max(first, 0) : end])[1:-1]]
        return [_encode(text)[1:-1] for text in self.texts(start, stop)]

    def token_texts(self, start: int, stop: int) -> list[str]:
        return _slices(self._text, self._ends[start : min(stop, self.total) + 1])

    def ids(self, start: int, stop: int) -> list[int]:
        return self._ids[start:stop].tolist()

    def packed(self, start: int, stop: int) -> bytes:
        return self._ids[start:stop].tobytes()

    def text(self) -> str:
        return self._text[: self._shown]

    def json_text(self) -> bytes:
        return _encode(self.text())[1:-1]


class EchoedIdsReply(Reply):
    """The first `total` tokens of a prompt of ids. Their texts are looked for when read, as few are."""

    __slots__ = ("_prompt",)

    def __init__(self, prompt: Prompt, total: int, finish_reason: str) -> None:
        self.total = total
        self.finish_reason = finish_reason
        self.stop_reason = None
        self._prompt = prompt

    def texts(self, start: int, stop: int) -> list[str]:
        return self._prompt.texts[start : min(stop, self.total)]

    token_texts = texts

    def pieces(self, start: int, stop: int) -> list[bytes]:
        return [_encode(text)[1:-1] for text in self.texts(start, stop)]

    def ids(self, start: int, stop: int) -> list[int]:
        return self._prompt.ids[start : min(stop, self.total)]


def _slices(text: str, marks: Sequence[int]) -> list[str]:
    return [text[start:end] for start, end in pairwise(marks)]
