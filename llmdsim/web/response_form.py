"""How responses are made up, as far as faults need to know."""

from __future__ import annotations

from typing import Protocol

from llmdsim.web.errors import ApiError
from llmdsim.web.refusal import fail
from llmdsim.wire import sse
from llmdsim.wire.request import Request

#: What the last event of a stream begins with, in any of the APIs.
_LAST_EVENTS = (
    b"data: [DONE]",
    b"event: message_stop\n",
    b"event: response.completed\n",
    b"event: response.incomplete\n",
)


class ResponseForm(Protocol):
    """Of one kind of response. A stream consists of events, which are written whole."""

    def is_stream(self, request: Request, head: bytes, data: bytes) -> bool:
        """Whether this is how a stream begins; `head` ends with a blank line."""

    def is_error(self, request: Request) -> bool:
        """Whether a whole response, which is about to be sent, is an error."""

    def events(self, data: bytes) -> list[bytes]:
        """What a part of a stream consists of."""

    def carries_token(self, event: bytes) -> bool:
        """Whether an event has something of what the model says."""

    def is_last(self, event: bytes) -> bool:
        """Whether it tells that the reply is complete."""

    def garbled(self, data: bytes) -> bytes:
        """An event, or all that follows the head of a whole response, so that nobody can read it.

        It is as long as before.
        """

    def fail(self, request: Request, error: ApiError) -> None:
        """Answer with `error` in place of a whole response."""


class HttpForm:
    """Server-sent events, or one JSON object."""

    def is_stream(self, request: Request, head: bytes, data: bytes) -> bool:
        return b"\r\ncontent-type: %b" % sse.CONTENT_TYPE in head

    def is_error(self, request: Request) -> bool:
        return request.status != 200

    def events(self, data: bytes) -> list[bytes]:
        return [event + b"\n\n" for event in data.split(b"\n\n")[:-1]]

    def carries_token(self, event: bytes) -> bool:
        # What is looked for cannot be in a text, whose quotes are escaped.
        if event.startswith(b"event: "):
            return event.partition(b"\n")[0].endswith((b".delta", b"_block_delta"))
        return b'"choices":[{' in event and b'"delta":{"role":' not in event

    def is_last(self, event: bytes) -> bool:
        return event.startswith(_LAST_EVENTS)

    def garbled(self, data: bytes) -> bytes:
        # The last brace has become a comma.
        return b",".join(data.rsplit(b"}", 1))

    def fail(self, request: Request, error: ApiError) -> None:
        fail(request, error)


HTTP_FORM = HttpForm()
