"""Replies to pooling requests: an object with a list in it, and its usage."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from llmdsim.engine.admission import Overloaded
from llmdsim.tokenization.prompt import Prompt
from llmdsim.web.context import Context, Served
from llmdsim.web.errors import ApiError
from llmdsim.web.overload import refusal
from llmdsim.web.reply_head import reply_head
from llmdsim.web.usage import NO_DETAILS, usage
from llmdsim.wire.request import Request

json = msgspec.json.encode

#: Numbers one reply may hold: some 20 MB as JSON.
MOST_NUMBERS = 1 << 21


class PoolingReply:
    """The reply to one request, whose prompts are found right: its id, its usage, and the way out.

    Raises ApiError: 400 for an id that is too long; 503 for prompts that would exceed a limit of the queue.
    """

    def __init__(
        self,
        context: Context,
        request: Request,
        served: Served,
        prefix: str,
        request_id: str,
        prompts: Sequence[Prompt],
    ) -> None:
        self._context = context
        self._request = request
        self._lengths = list(map(len, prompts))
        self.prompt_tokens = sum(self._lengths)
        try:
            context.driver.engine.check_prompts(self._lengths)
        except Overloaded as reason:
            raise refusal(reason) from None
        self.head = reply_head(context, request, served, prefix, request_id)

    def usage(self) -> bytes:
        """The usage object of all routes but two."""
        return usage(self.prompt_tokens, 0, NO_DETAILS)

    def short_usage(self) -> bytes:
        """The usage object without what pooling never has."""
        return b'{"prompt_tokens":%d,"total_tokens":%d}' % (self.prompt_tokens, self.prompt_tokens)

    def respond_list(self, data: Sequence[bytes]) -> None:
        """Send the usual object, whose list is `data`, each as JSON and at least one."""
        opening = b'{"id":%b,"object":"list","created":%d,"model":%b,"data":['
        pieces = [*data]
        pieces[0] = opening % (json(self.head.id), self.head.created, self.head.model) + pieces[0]
        pieces[-1] += b'],"usage":%b}' % self.usage()
        # One copy of what may be megabytes.
        self.respond(b",".join(pieces))

    def respond(self, body: bytes, content_type: bytes = b"application/json", extra: bytes = b"") -> None:
        """Send the whole response."""
        self.conclude()
        self._request.respond(200, body, content_type, extra)

    def conclude(self) -> None:
        """Count its prompts in the metrics, as the response is about to be sent."""
        context = self._context
        context.stats.count_pooled(self._lengths, context.turns.seconds() - self._request.began)
        self._request.common_headers += context.reply_headers


def refuse_too_many(numbers: int) -> None:
    """Refuse a reply that would hold numbers beyond all measure."""
    if numbers > MOST_NUMBERS:
        message = f"The reply would hold {numbers} numbers, more than {MOST_NUMBERS}: send fewer inputs."
        raise ApiError(400, message, param="input")
