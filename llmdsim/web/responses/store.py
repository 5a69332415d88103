"""The responses that may be asked for later: a bounded number of them, and of their bytes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import msgspec

from llmdsim.web.errors import ApiError, shown
from llmdsim.web.messages import Message
from llmdsim.web.responses.background import Background
from llmdsim.web.responses.conversion import messages_of

#: Bytes that all stored responses may take, with what they answer.
MOST_BYTES = 64 << 20

#: What a response takes besides its text, about.
_OVERHEAD = 1000

_encode = msgspec.json.Encoder().encode


class _Answered(msgspec.Struct):
    """The part of a response object that later conversations repeat."""

    output: list[dict[str, Any]]


class Stored:
    """A response with the conversation it answers.

    Kept as JSON, which is compact and of known size. `body` is the object, empty until there is one, as may
    be while the response is made in the `background`.
    """

    __slots__ = ("_items", "_messages", "background", "body", "id")

    def __init__(
        self,
        response_id: str,
        messages: list[Message],
        items: str | list[dict[str, Any]],
        body: bytes = b"",
        background: Background | None = None,
    ) -> None:
        self.id = response_id
        self.body = body
        self.background = background
        # Instructions are not carried over to later turns.
        self._messages = _encode([message for message in messages if message["role"] != "system"])
        self._items = _encode(items)

    @property
    def size(self) -> int:
        """Bytes, about."""
        size = _OVERHEAD + len(self._messages) + len(self._items) + len(self.body)
        return size if self.background is None else size + self.background.size

    @property
    def items(self) -> Any:
        """What was sent as input."""
        return msgspec.json.decode(self._items)

    def history(self) -> list[Message]:
        """The conversation up to and with the answer.

        (vLLM drops the calls from an answer, so that what tools answered would answer nothing.)
        """
        messages: list[Message] = msgspec.json.decode(self._messages)
        if self.body:
            output = msgspec.json.decode(self.body, type=_Answered).output
            messages += messages_of(item for item in output if item["type"] != "reasoning")
        return messages


class Store:
    """The latest `most` responses: those longest out of use go first. With `most` 0 there is none."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[str, tuple[Stored, int]] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def enabled(self) -> bool:
        """Whether anything is kept at all."""
        return self._most > 0

    def put(self, stored: Stored) -> None:
        """Keep a response, or take note that it has grown."""
        self.discard(stored.id)
        size = stored.size
        self._kept[stored.id] = stored, size
        self.bytes += size
        while len(self._kept) > self._most or self.bytes > MOST_BYTES:
            _, (_, freed) = self._kept.popitem(last=False)
            self.bytes -= freed

    def get(self, response_id: str) -> Stored:
        """Raises ApiError 404 for a response that is not kept, or no longer."""
        found = self._kept.get(response_id)
        if found is None:
            message = f"Response with id '{shown(response_id)}' not found."
            raise ApiError(404, message, type="invalid_request_error", param="response_id")
        self._kept.move_to_end(response_id)
        return found[0]

    def holds(self, stored: Stored) -> bool:
        """Whether this very response is kept still."""
        return self._kept.get(stored.id, (None,))[0] is stored

    def discard(self, response_id: str) -> None:
        """Forget a response."""
        found = self._kept.pop(response_id, None)
        if found is not None:
            self.bytes -= found[1]
