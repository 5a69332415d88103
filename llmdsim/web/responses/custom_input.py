"""The free text of a custom tool's call, read out of the function arguments that carry it."""

from __future__ import annotations

import re

import msgspec

_OPENING = re.compile(r'\s*\{\s*"input"\s*:\s*"')
#: Characters of a JSON string as far as they are complete; a pair of surrogates is one character.
_COMPLETE = re.compile(
    r'(?:[^"\\]|\\["\\/bfnrt]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4})*"
)


class CustomInput:
    """Reads `{"input": "..."}` as it grows."""

    __slots__ = ("_begun", "_unread")

    def __init__(self) -> None:
        self._begun = False
        self._unread = ""

    def feed(self, arguments: str) -> str:
        """The input that more of the arguments adds."""
        text = self._unread + arguments
        if not self._begun:
            opening = _OPENING.match(text)
            if opening is None:
                self._unread = text
                return ""
            self._begun = True
            text = text[opening.end() :]
        complete = _COMPLETE.match(text)
        assert complete is not None
        self._unread = text[complete.end() :]
        return str(msgspec.json.decode(b'"%b"' % complete[0].encode()))


def custom_input(arguments: str) -> str:
    """The input in arguments that may be cut short."""
    return CustomInput().feed(arguments)
