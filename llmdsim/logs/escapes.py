"""Text that may hold what a client sent, made fit for one line of a log."""

from __future__ import annotations

import re

#: Control characters, what breaks lines, what turns the direction of writing, and halves of characters.
_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
#: And what ends a word, or a text in quotes.
_UNFIT_FOR_WORDS = re.compile(r'[^\x21-\x7e]|["\\]')


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    if character in '"\\ ':
        return f"\\x{ord(character):02x}"
    return character.encode("unicode_escape").decode()


def one_line(text: str) -> str:
    """`text` with escapes for what could pass for another line, or hide this one."""
    return text if text.isprintable() else _UNFIT.sub(_escape, text)


def one_word(text: str) -> str:
    """`text` as ASCII without blanks and quotes."""
    if text.isascii() and text.isprintable() and not (" " in text or '"' in text or "\\" in text):
        return text
    return _UNFIT_FOR_WORDS.sub(_escape, text)
