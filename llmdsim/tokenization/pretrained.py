"""A model's own tokenizer, as its `tokenizer.json` has it, run by the `tokenizers` library."""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import pairwise
from threading import Lock
from types import MappingProxyType
from typing import Any

from llmdsim.tokenization.pieces import decoded_parts, ends_of
from llmdsim.tokenization.recent import Recent
from llmdsim.tokenization.steps import Step, in_thread
from llmdsim.tokenization.tokenizer import TOLD, Around, Split
from llmdsim.tokenization.unicode import well_formed

#: Characters that are tokenized in one to two milliseconds.
_PART = 2048
#: Ids that are decoded in half a millisecond.
_IDS_PART = 256

#: Characters a token of a language has at most, on average.
_ORDINARY = 8


class PretrainedTokenizer:
    """`tokenizer` is a `tokenizers.Tokenizer`, `model_vocabulary` how many ids its model has, if told.

    One instance serves the whole process. It may be used from several threads, and is by the functions that
    its steps give: the library lets go of Python's lock in them.
    """

    part = _PART

    def __init__(
        self, tokenizer: Any, model_vocabulary: int = 0, settings: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        self.settings = settings
        # What files say of these is meant for training.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = False
        self._tokenizer = tokenizer
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        self.vocab_size = max(max(vocabulary.values(), default=-1) + 1, model_vocabulary)
        self.longest_piece = max(map(len, vocabulary), default=1)
        added = tokenizer.get_added_tokens_decoder()
        self.added: Mapping[int, str] = {token_id: token.content for token_id, token in added.items()}
        self.special = frozenset(token_id for token_id, token in added.items() if token.special)
        self.around = _around(tokenizer)
        #: Who counts a prompt may want its ids, and others have the same again.
        self._recent: Recent[array[int]] = Recent()
        # Long texts one after another: each takes a core, and a hundred bytes a token.
        self._one_at_a_time = Lock()

    def count(self, text: str) -> int:
        """Tokens in the text: some 0.3 µs a character, 0.2 µs in all for one seen lately."""
        return len(self._ids(text))

    def encode(self, text: str) -> list[int]:
        return self._ids(text).tolist()

    def packed(self, text: str) -> bytes:
        return self._ids(text).tobytes()

    def split(self, text: str) -> tuple[list[int], list[str]]:
        text = well_formed(text)
        ids, ends = self._split(text)
        return ids.tolist(), [text[start:end] for start, end in pairwise(ends)]

    def count_in_steps(self, text: str, most: int | None = None) -> Generator[Step, None, int]:
        if most is not None and len(text) > max(2 * _ORDINARY * most, TOLD):
            # Nearly all such texts have too many tokens in their first part.
            tokens = len((yield from self.encode_in_steps(text[: max(_ORDINARY * most, TOLD)])))
            if tokens > most + _ORDINARY:
                return tokens
        return len((yield from self.encode_in_steps(text)))

    def encode_in_steps(self, text: str) -> Generator[Step, None, array[int]]:
        if len(text) <= _PART:
            return self._ids(text)
        text = well_formed(text)
        known = self._recent.get(text)
        if known is not None:
            return known

        def encode() -> array[int]:
            with self._one_at_a_time:
                return self._encoded(text)

        ids = yield from in_thread(encode)
        self._recent.put(text, ids)
        return ids

    def split_in_steps(self, text: str) -> Generator[Step, None, Split]:
        text = well_formed(text)

        def split() -> Split:
            with self._one_at_a_time:
                return self._split(text)

        return (yield from in_thread(split))

    def decode_parts(self, ids: Sequence[int]) -> Iterator[list[str]]:
        return decoded_parts(self._tokenizer, ids, _IDS_PART)

    def decode(self, ids: Sequence[int]) -> list[str]:
        return [text for part in self.decode_parts(ids) for text in part]

    def entries(self, ids: Sequence[int]) -> list[str]:
        entry = self._tokenizer.id_to_token
        return [entry(token_id) or "" for token_id in ids]

    def _ids(self, text: str) -> array[int]:
        ids = self._recent.get(text)
        if ids is None:
            ids = self._encoded(well_formed(text))
            self._recent.put(text, ids)
        return ids

    def _encoded(self, text: str) -> array[int]:
        try:
            # A single text: the library holds Python's lock while it encodes one that is in no batch.
            (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)
        except BaseException as problem:
            middle = _middle(text, problem)
            return self._encoded(text[:middle]) + self._encoded(text[middle:])
        return array("I", encoding.ids)

    def _split(self, text: str) -> Split:
        try:
            (encoding,) = self._tokenizer.encode_batch([text], add_special_tokens=False)
        except BaseException as problem:
            middle = _middle(text, problem)
            first, second = self._split(text[:middle]), self._split(text[middle:])
            ends = first.ends + array("I", [middle + end for end in second.ends[1:]])
            if len(ends) > 1:
                ends[-1] = len(text)
            return Split(first.ids + second.ids, ends)
        return Split(array("I", encoding.ids), ends_of(encoding.offsets, len(text)))


def gave_up(problem: BaseException) -> bool:
    """Whether the library raised this; what it has no error for is no Exception."""
    return isinstance(problem, Exception) or type(problem).__name__ == "PanicException"


def _middle(text: str, problem: BaseException) -> int:
    """Where to cut a text that is too much for the library, as a long run of one letter may be for a regular
    expression. Raises `problem` if that is of no use."""
    if not gave_up(problem) or len(text) < 2:
        raise problem
    return len(text) // 2


def _around(tokenizer: Any) -> Around | None:
    """What the tokenizer puts around any text."""
    plain = tokenizer.encode("a", add_special_tokens=False).ids
    whole = tokenizer.encode("a", add_special_tokens=True).ids
    for start in range(len(whole) - len(plain) + 1):
        if whole[start : start + len(plain)] == plain:
            around = Around(tuple(whole[:start]), tuple(whole[start + len(plain) :]))
            return around if len(whole) > len(plain) else None
    return None
