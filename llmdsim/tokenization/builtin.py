"""The built-in tokenizer: no download, splits any text, counts ASCII text as llm-d-inference-sim does.

A piece is a core and the blanks after it (tab, line feed, form feed, carriage return, space). Cores are:

* a word: ASCII letters, digits and inner `_`; a leading `_` is a piece of its own (`_abc` is `_`, `abc`);
* one ASCII punctuation character, backtick, `|` and control characters included.

Words, punctuation and blanks count as that simulator counts them. What it discards are pieces here, so that
nothing of a text is lost:

* blanks at the start of a text are one piece;
* letters and digits of other scripts are word characters, with the marks on them (`héllo` is one piece);
* in Hangul and in scripts written without blanks between words (Han, kana, Bopomofo, Yi, Thai, Lao, Khmer,
  Burmese, Tibetan) each character, with the marks on it, is a piece;
* any other character is a piece, with what attaches to it: an emoji with skin tone, variation selector and
  whatever zero-width joiners tie to it; a flag (two regional indicators); a keycap.

A token's id is the 32-bit FNV-1a hash of the piece in UTF-8, so ids need no vocabulary and never change. Of a
piece over 65,536 bytes, the first so many and a checksum of all stand for it.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import Any
from zlib import crc32

from llmdsim.tokenization.fnv import fnv1a32
from llmdsim.tokenization.marks import ATTACHED
from llmdsim.tokenization.recent import Recent
from llmdsim.tokenization.steps import Step
from llmdsim.tokenization.tokenizer import TOLD, Around, Split
from llmdsim.tokenization.unicode import well_formed

_BLANKS = r"[\t\n\f\r ]"

# The last branch matches only at the start of a text: every other piece takes the blanks after it.
_ASCII_PIECES = re.compile(
    rf"[0-9A-Za-z]\w*+{_BLANKS}*+|[^\t\n\f\r ]{_BLANKS}*+|{_BLANKS}++",
    re.ASCII,
)

# As words these would make pieces of whole paragraphs. The first line is south-east Asia and Tibet.
_UNSPACED = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u19e0-\u19ff\ua9e0-\ua9ff\uaa60-\uaa7f"
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3040-\u312f\u3190-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua000-\ua4cf\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9f\U0001aff0-\U0001b16f\U00020000-\U0003ffff"
)
_PICTOGRAPHS = "\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
_FLAG = "[\U0001f1e6-\U0001f1ff]{2}"
_PIECES = re.compile(
    rf"[^\W_{_UNSPACED}][^\W{_UNSPACED}]*+(?:[{ATTACHED}]++[^\W{_UNSPACED}]*+)*+{_BLANKS}*+"
    rf"|(?:{_FLAG}|[^\t\n\f\r ])[{ATTACHED}]*+(?:(?<=\u200d)[{_PICTOGRAPHS}][{ATTACHED}]*+)*+{_BLANKS}*+"
    rf"|{_BLANKS}++",
)

# Where a piece begins whatever comes before, as far as one character and the one before it tell. A flag's
# second half and what a joiner ties on begin none; neither does what might be in the middle of a word.
_ASCII_CUT = re.compile(rf"(?<={_BLANKS})[^\t\n\f\r ]|[^\w\t\n\f\r ]", re.ASCII)
_CUT = re.compile(
    rf"(?<={_BLANKS})[^\t\n\f\r ]|(?![{ATTACHED}])"
    rf"(?:[{_UNSPACED}]|(?<![\u200d\U0001f1e6-\U0001f1ff])[^\w\t\n\f\r ])"
)

# Half a millisecond's work: characters, ASCII ones that are only counted, and ids.
_PART = 4096
_ASCII_PART = 131072
_IDS_PART = 1024

#: Bytes of a piece that are hashed, in some four milliseconds.
_HASHED = 1 << 16


def _kind(byte: int) -> bytes:
    character = chr(byte)
    if character in "\t\n\f\r ":
        return b"b"
    if character == "_":
        return b"u"
    return b"w" if character.isalnum() else b"p"


_KINDS = b"".join(map(_kind, range(128))) + bytes(128)
_INNER_UNDERSCORES = re.compile(b"wu+")


def _count_ascii(text: str) -> int:
    """`len(_ASCII_PIECES.findall(text))`, some five times faster: classes are counted, no piece is made."""
    kinds = text.encode().translate(_KINDS)
    if b"u" in kinds:
        kinds = _INNER_UNDERSCORES.sub(b"w", kinds).replace(b"u", b"p")
    # A piece for each `p`, for each word that starts behind something else, for a start that is no `p`.
    starts = 1 if kinds and kinds[0] != 0x70 else 0
    return kinds.count(b"p") + kinds.count(b"pw") + kinds.count(b"bw") + starts


class _Memory(dict[str, int]):
    """Ids by piece, computed at the first sight of a piece, and the way back; of bounded size.

    Two generations: when the young one is full it becomes the old one, whose pieces return to the young one
    when met again and are forgotten otherwise. Together they hold some 36,000 ordinary pieces (8 MB).
    """

    _FULL = 2_000_000  # characters a generation, an entry's own cost taken as 100
    #: Characters of a piece beyond which it is not kept. A few such would push out all others, and a prompt
    #: that repeats the id of one would read as text beyond all measure.
    _LONGEST = 1024

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}
        self._old: dict[str, int] = {}
        self._old_texts: dict[int, str] = {}
        self._room = self._FULL

    def __missing__(self, piece: str) -> int:
        token_id = self._old.get(piece)
        if token_id is None:
            token_id = _number(piece.encode("utf-8", "surrogatepass"))
        if len(piece) > self._LONGEST:
            return token_id
        cost = len(piece) + 100
        self._room -= cost
        if self._room < 0:
            self._old, self._old_texts = dict(self), self.texts
            self.clear()
            self.texts = {}
            self._room = self._FULL - cost
        self[piece] = token_id
        self.texts[token_id] = well_formed(piece)
        return token_id

    def text(self, token_id: int) -> str | None:
        text = self.texts.get(token_id)
        return self._old_texts.get(token_id) if text is None else text


class BuiltinTokenizer:
    """See the module. One instance serves the whole process; it may be used from several threads."""

    vocab_size = 2**32
    #: Words have no longest, but no text is made of such.
    longest_piece = 256
    part = _PART
    around: Around | None = None
    special: frozenset[int] = frozenset()
    added: Mapping[int, str] = MappingProxyType({})
    settings: Mapping[str, Any] = MappingProxyType({})

    def __init__(self) -> None:
        self._memory = _Memory()
        self._recent: Recent[bytes] = Recent()

    def count(self, text: str) -> int:
        """Tokens in the text: 1 µs for a short prompt, 5 ms for 1 MB of ASCII, 50 ms for 1 MB of others."""
        return _count_ascii(text) if text.isascii() else len(_PIECES.findall(text))

    def encode(self, text: str) -> list[int]:
        return list(map(self._memory.__getitem__, _pieces(text)))

    def packed(self, text: str) -> bytes:
        ids = self._recent.get(text)
        if ids is None:
            ids = array("I", self.encode(text)).tobytes()
            self._recent.put(text, ids)
        return ids

    def split(self, text: str) -> tuple[list[int], list[str]]:
        pieces = _pieces(text)
        return list(map(self._memory.__getitem__, pieces)), pieces

    def count_in_steps(self, text: str, most: int | None = None) -> Generator[Step, None, int]:
        tokens = characters = 0
        for part in self.parts(text):
            tokens += self.count(part)
            characters += len(part)
            if most is not None and tokens > most and characters > TOLD:
                break
            yield None
        return tokens

    def encode_in_steps(self, text: str) -> Generator[Step, None, array[int]]:
        ids = array("I")
        for part in self.parts(text, split=True):
            ids.extend(self.encode(part))
            yield None
        return ids

    def split_in_steps(self, text: str) -> Generator[Step, None, Split]:
        ids, ends = array("I"), array("I", [0])
        for part in self.parts(text, split=True):
            part_ids, pieces = self.split(part)
            ids.extend(part_ids)
            ends.extend(accumulate(map(len, pieces), initial=ends.pop()))
            yield None
        return Split(ids, ends)

    def parts(self, text: str, split: bool = False) -> Iterator[str]:
        """The text in parts that are tokenized each by itself: counts add up, ids and pieces join.

        A part, which may be empty, is found and counted (with `split`, split) in about half a millisecond,
        unless a single piece takes longer.
        """
        if text.isascii():
            cut, size = _ASCII_CUT, _PART if split else _ASCII_PART
        else:
            cut, size = _CUT, _PART
        start, sought = 0, size
        while sought < len(text):
            found = cut.search(text, sought, sought + size)
            if found is None:
                yield ""  # in the middle of a giant piece: no part as yet, but a step
                sought += size
                continue
            yield text[start : found.start()]
            start = found.start()
            sought = start + size
        yield text[start:]

    def decode_parts(self, ids: Sequence[int]) -> Iterator[list[str]]:
        for start in range(0, len(ids), _IDS_PART):
            # An id's text depends on the next id too.
            yield self.decode(ids[start : start + _IDS_PART + 1])[:_IDS_PART]

    def decode(self, ids: Sequence[int]) -> list[str]:
        """The pieces these ids were made from, as far as they are remembered.

        Hashes cannot be undone: an id this process has not met (or has forgotten: see `_Memory`) reads as its
        decimal digits, with a comma behind it when the next id is unknown too. So a prompt of arbitrary ids
        reads `17,4,99`, which is what llm-d-inference-sim makes of any prompt of ids.
        """
        text_of = self._memory.text
        texts: list[str] = []
        unknown_before = False
        for token_id in ids:
            text = text_of(token_id)
            if text is None:
                if unknown_before:
                    texts[-1] += ","
                text = str(token_id)
                unknown_before = True
            else:
                unknown_before = False
            texts.append(text)
        return texts

    def entries(self, ids: Sequence[int]) -> None:
        return None


def _number(piece: bytes) -> int:
    if len(piece) > _HASHED:
        # To hash tens of megabytes so would take seconds.
        piece = piece[:_HASHED] + crc32(piece).to_bytes(4, "little")
    return fnv1a32(piece)


def _pieces(text: str) -> list[str]:
    pattern = _ASCII_PIECES if text.isascii() else _PIECES
    return pattern.findall(text)
