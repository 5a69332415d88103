"""The kinds of items that an output consists of, each whole and as the events that stream it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import msgspec

from llmdsim.web.responses.custom_input import CustomInput, custom_input
from llmdsim.web.responses.tools import Callee

NULL = b"null"
json = msgspec.json.encode


class Event(NamedTuple):
    """An event but for its number: the members before that, those after it, and those after the type."""

    name: bytes
    before: bytes
    after: bytes = b""
    last: bytes = b""

    def render(self, number: int) -> bytes:
        """The frame."""
        return b'event: %b\ndata: {%b,"sequence_number":%d%b,"type":"%b"%b}\n\n' % (
            self.name,
            self.before,
            number,
            self.after,
            self.name,
            self.last,
        )


class Item(ABC):
    """One output item at `index`. Texts are JSON strings with their quotes, as are `logprobs` lists."""

    #: The event that tells more of the text.
    delta_event: bytes

    def __init__(self, item_id: bytes, index: int) -> None:
        self.id = item_id
        self.index = index
        self._place = b'"item_id":"%b","output_index":%d' % (item_id, index)

    @abstractmethod
    def whole(self, text: bytes, status: bytes, logprobs: bytes = NULL) -> bytes:
        """The finished item; `status` is JSON."""

    @abstractmethod
    def opening(self) -> list[Event]:
        """The events that begin it."""

    @abstractmethod
    def closing(self, text: bytes, logprobs: bytes) -> list[Event]:
        """The events that end it, but for the last, which tells the finished item."""

    def delta(self, logprobs: bytes = b"[]") -> tuple[bytes, bytes, bytes]:
        """The event of more text: what goes before that, between it and the number, and behind the number."""
        return (
            b'event: %b\ndata: {%b"delta":' % (self.delta_event, self._before_delta),
            b',%b,"sequence_number":' % self._after_delta(logprobs),
            b',"type":"%b"}\n\n' % self.delta_event,
        )

    _before_delta = b""

    def _after_delta(self, logprobs: bytes) -> bytes:
        return self._place

    def added(self, text: str) -> str:
        """What more of a reply's text adds to the item's."""
        return text

    def full(self, text: str) -> str:
        """The item's text where `text` is all of the reply's."""
        return text

    def _added(self, item: bytes) -> Event:
        return Event(b"response.output_item.added", b'"item":%b,"output_index":%d' % (item, self.index))

    def done(self, item: bytes) -> Event:
        """The event that tells the finished item."""
        return Event(b"response.output_item.done", b'"item":%b,"output_index":%d' % (item, self.index))

    def _part(self, name: bytes, part: bytes) -> Event:
        return Event(name, b'"content_index":0,%b,"part":%b' % (self._place, part))


class Message(Item):
    """Text."""

    delta_event = b"response.output_text.delta"
    _before_delta = b'"content_index":0,'

    def whole(self, text: bytes, status: bytes, logprobs: bytes = NULL) -> bytes:
        return self._item(b"" if text == b'""' else _text_part(text, logprobs), status)

    def _item(self, content: bytes, status: bytes) -> bytes:
        return b'{"id":"%b","content":[%b],"role":"assistant","status":%b,"type":"message","phase":null}' % (
            self.id,
            content,
            status,
        )

    def opening(self) -> list[Event]:
        part = self._part(b"response.content_part.added", _text_part(b'""', b"[]"))
        return [self._added(self._item(b"", b'"in_progress"')), part]

    def closing(self, text: bytes, logprobs: bytes) -> list[Event]:
        before = b'"content_index":0,"item_id":"%b","logprobs":[],"output_index":%d' % (self.id, self.index)
        return [
            Event(b"response.output_text.done", before, b',"text":%b' % text),
            self._part(b"response.content_part.done", _text_part(text, logprobs)),
        ]

    def _after_delta(self, logprobs: bytes) -> bytes:
        return b'"item_id":"%b","logprobs":%b,"output_index":%d' % (self.id, logprobs, self.index)


class Reasoning(Item):
    """Reasoning."""

    delta_event = b"response.reasoning_text.delta"
    _before_delta = b'"content_index":0,'

    def whole(self, text: bytes, status: bytes, logprobs: bytes = NULL) -> bytes:
        return self._item(b"[%b]" % _reasoning_part(text), status)

    def _item(self, content: bytes, status: bytes) -> bytes:
        return (
            b'{"id":"%b","summary":[],"type":"reasoning","content":%b,"encrypted_content":null,"status":%b}'
            % (self.id, content, status)
        )

    def opening(self) -> list[Event]:
        part = self._part(b"response.content_part.added", _reasoning_part(b'""'))
        return [self._added(self._item(NULL, b'"in_progress"')), part]

    def closing(self, text: bytes, logprobs: bytes) -> list[Event]:
        return [
            Event(
                b"response.reasoning_text.done", b'"content_index":0,%b' % self._place, b',"text":%b' % text
            ),
            self._part(b"response.content_part.done", _reasoning_part(text)),
        ]


class FunctionCall(Item):
    """The call of a function."""

    delta_event = b"response.function_call_arguments.delta"

    def __init__(self, item_id: bytes, index: int, call_id: bytes, callee: Callee) -> None:
        super().__init__(item_id, index)
        self._call_id = call_id
        self._name = json(callee.name)
        self._namespace = json(callee.namespace)

    def whole(self, text: bytes, status: bytes, logprobs: bytes = NULL) -> bytes:
        return (
            b'{"arguments":%b,"call_id":"%b","name":%b,"type":"function_call","id":"%b","async":null,'
            b'"caller":null,"namespace":%b,"status":%b}'
            % (text, self._call_id, self._name, self.id, self._namespace, status)
        )

    def opening(self) -> list[Event]:
        return [self._added(self.whole(b'""', b'"in_progress"'))]

    def closing(self, text: bytes, logprobs: bytes) -> list[Event]:
        before = b'"arguments":%b,%b' % (text, self._place)
        last = b',"name":%b' % self._name
        return [Event(b"response.function_call_arguments.done", before, last=last)]


class CustomCall(Item):
    """The call of a custom tool: its input comes wrapped in a function's arguments."""

    delta_event = b"response.custom_tool_call_input.delta"

    def __init__(self, item_id: bytes, index: int, call_id: bytes, callee: Callee) -> None:
        super().__init__(item_id, index)
        self._call_id = call_id
        self._name = json(callee.name)
        self._input = CustomInput()

    def whole(self, text: bytes, status: bytes, logprobs: bytes = NULL) -> bytes:
        return (
            b'{"call_id":"%b","input":%b,"name":%b,"type":"custom_tool_call","id":"%b","async":null,'
            b'"caller":null,"namespace":null}' % (self._call_id, text, self._name, self.id)
        )

    def opening(self) -> list[Event]:
        return [self._added(self.whole(b'""', b""))]

    def closing(self, text: bytes, logprobs: bytes) -> list[Event]:
        before = b'"input":%b,%b' % (text, self._place)
        return [Event(b"response.custom_tool_call_input.done", before)]

    def added(self, text: str) -> str:
        return self._input.feed(text)

    def full(self, text: str) -> str:
        return custom_input(text)


def _text_part(text: bytes, logprobs: bytes) -> bytes:
    return b'{"annotations":[],"text":%b,"type":"output_text","logprobs":%b}' % (text, logprobs)


def _reasoning_part(text: bytes) -> bytes:
    return b'{"text":%b,"type":"reasoning_text"}' % text
