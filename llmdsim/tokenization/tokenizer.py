"""What every tokenizer offers the rest of the house."""

from collections.abc import Iterator, Sequence
from typing import Protocol


class Tokenizer(Protocol):
    """Text to token ids and back. Ids are 0 .. `vocab_size` - 1; a *piece* is one token's own text.

    For any text `count(text) == len(encode(text))`, `split` gives the same ids, and its pieces join to the
    text. No method raises for any `str`, lone surrogates included.
    """

    vocab_size: int
    #: Characters of the longest piece that is taken seriously: a prompt with more than this for each token of
    #: the context is refused without being split.
    longest_piece: int
    #: Characters of a text, or ids, that no method takes more than about a millisecond for.
    part: int

    def count(self, text: str) -> int:
        """Tokens in the text; as cheap as the tokenizer can make it."""
        ...

    def encode(self, text: str) -> list[int]:
        """The text's token ids."""
        ...

    def split(self, text: str) -> tuple[list[int], list[str]]:
        """Parallel lists: token ids and pieces; `"".join(pieces) == text`."""
        ...

    def parts(self, text: str, split: bool = False) -> Iterator[str]:
        """The text in parts that are tokenized each by itself: counts add up, ids and pieces join.

        A part, which may be empty, is found and counted (with `split`, split) in about half a millisecond,
        unless a single piece takes longer.
        """
        ...

    def decode_parts(self, ids: Sequence[int]) -> Iterator[list[str]]:
        """`decode`, in parts that take about half a millisecond each."""
        ...

    def decode(self, ids: Sequence[int]) -> list[str]:
        """One text per id, in order; valid Unicode (never a lone surrogate). Unknown ids are no error."""
        ...
