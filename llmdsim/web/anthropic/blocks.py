"""The events of a message's content blocks, as they are opened, added to and closed."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from llmdsim.reply.reply import TEXT_ONLY, Delta, Part
from llmdsim.web.ids import call_id, hex_digits

json = msgspec.json.encode

_START = b'event: content_block_start\ndata: {"type":"content_block_start","content_block":%b,"index":%d}\n\n'
_STOP = b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n'
#: Up to what is added, a JSON string.
_DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"type":"%b","%b":'
_SIGNATURE = _DELTA % (b"signature_delta", b"signature")
_DELTAS = {
    "text": _DELTA % (b"text_delta", b"text"),
    "reasoning": _DELTA % (b"thinking_delta", b"thinking"),
    "call": _DELTA % (b"input_json_delta", b"partial_json"),
}

_TEXT = TEXT_ONLY[0]
#: Around a piece of the text of a message that is nothing but text.
_BEFORE = _DELTAS["text"] + b'"'
_AFTER = b'"},"index":0}\n\n'


class Blocks:
    """The content blocks of one message.

    Text that comes while a call is open waits until it is closed, and is then a block of its own (vLLM).
    """

    def __init__(self) -> None:
        self._open: Part | None = None
        #: The number of the part that was last added to, and of the open block.
        self._part = -1
        self._index = 0
        self._waiting: list[str] = []

    def text(self, pieces: Sequence[bytes]) -> bytes:
        """Events for pieces of text, each the inside of a JSON string, of a message that is only text."""
        events = b"".join([_BEFORE + piece + _AFTER for piece in pieces if piece])
        if self._open is None and events:
            return self._start(_TEXT) + events
        return events

    def add(self, part: Part, delta: Delta) -> bytes:
        """Events for what a step adds to a part."""
        opened = self._open
        if part.kind == "text" and opened is not None and opened.kind == "call":
            self._waiting.append(delta.text)
            return b""
        if part.kind == "call":
            goes_on = delta.part == self._part
        else:
            goes_on = opened is not None and opened.kind == part.kind
        self._part = delta.part
        events = b"" if goes_on else self.close() + self._start(part)
        return events + self._delta(_DELTAS[part.kind], delta.text)

    def close(self) -> bytes:
        """Events that close the open block, if there is one, and show what waited for that."""
        opened, self._open = self._open, None
        if opened is None:
            return b""
        signed = self._delta(_SIGNATURE, hex_digits(32)) if opened.kind == "reasoning" else b""
        events = signed + _STOP % self._index
        self._index += 1
        waiting, self._waiting = "".join(self._waiting), []
        if waiting:
            events += self._start(_TEXT) + self._delta(_DELTAS["text"], waiting) + self.close()
        return events

    def _start(self, part: Part) -> bytes:
        self._open = part
        if part.kind == "text":
            block = b'{"type":"text","text":""}'
        elif part.kind == "reasoning":
            # vLLM has no signature here, without which the block is none to Anthropic's SDK.
            block = b'{"type":"thinking","thinking":"","signature":""}'
        else:
            block = b'{"type":"tool_use","id":"%b","name":%b,"input":{}}' % (call_id(), json(part.name))
        return _START % (block, self._index)

    def _delta(self, before: bytes, text: str) -> bytes:
        return b'%b%b},"index":%d}\n\n' % (before, json(text), self._index)
