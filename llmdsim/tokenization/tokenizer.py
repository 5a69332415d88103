"""What every tokenizer offers the rest of the house."""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from llmdsim.tokenization.steps import Step

TOLD = 65536
"""Characters of a text that are counted in any case, so that most refusals tell a prompt's true length."""


class Split(NamedTuple):
    """Tokens of a text: `ends[i]`, i up to `len(ids)`, is the length of the first i pieces."""

    ids: array[int]
    ends: array[int]


class Around(NamedTuple):
    """Ids that a model has before and after a text, as for the beginning of a sequence."""

    before: tuple[int, ...]
    after: tuple[int, ...]


class Tokenizer(Protocol):
    """Text to token ids and back. Ids are 0 .. `vocab_size` - 1; a *piece* is one token's own text.

    For any text `count(text) == len(encode(text))`, `split` gives the same ids, and its pieces join to the
    text, where there is any. A character that takes several tokens is in the piece of the last. No method
    raises for any `str`, lone surrogates included; these are read as U+FFFD.
    """

    vocab_size: int
    #: Characters of the longest piece that is taken seriously: a prompt with more than this for each token of
    #: the context is refused without being split.
    longest_piece: int
    #: Characters of a text, or ids, that no method takes more than about a millisecond for.
    part: int
    #: What special tokens are added to a text, where they are; None if there are none.
    around: Around | None
    #: The ids of special tokens, which are no text to a reader.
    special: frozenset[int]
    #: The texts of tokens that the model's own vocabulary lacks, special ones or not.
    added: Mapping[int, str]
    #: What the model's `tokenizer_config.json` says.
    settings: Mapping[str, Any]

    def count(self, text: str) -> int:
        """Tokens in the text; as cheap as the tokenizer can make it."""
        ...

    def encode(self, text: str) -> list[int]:
        """The text's token ids."""
        ...

    def packed(self, text: str) -> bytes:
        """`encode`, as the bytes of an array: some 0.2 µs for a text seen lately."""
        ...

    def split(self, text: str) -> tuple[list[int], list[str]]:
        """Parallel lists: token ids and pieces; `"".join(pieces) == text`."""
        ...

    def count_in_steps(self, text: str, most: int | None = None) -> Generator[Step, None, int]:
        """`count`, but of a text that surely has more than `most` tokens some number above that."""
        ...

    def encode_in_steps(self, text: str) -> Generator[Step, None, array[int]]:
        """`encode`, four bytes an id."""
        ...

    def split_in_steps(self, text: str) -> Generator[Step, None, Split]:
        """`split`, eight bytes a token."""
        ...

    def decode_parts(self, ids: Sequence[int]) -> Iterator[list[str]]:
        """`decode`, in parts that take about half a millisecond each."""
        ...

    def decode(self, ids: Sequence[int]) -> list[str]:
        """One text per id, in order; valid Unicode (never a lone surrogate). Unknown ids are no error."""
        ...

    def entries(self, ids: Sequence[int]) -> list[str] | None:
        """What the vocabulary has for each id; None where that is nothing but its piece."""
        ...
