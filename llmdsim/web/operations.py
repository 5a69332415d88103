"""Operations of a server that a caller wants done on all of its ranks (`?all_ranks=1`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from llmdsim.web.access.paths import is_administration
from llmdsim.web.errors import ApiError
from llmdsim.web.query import read_query
from llmdsim.web.router import Handler, Route, path_error
from llmdsim.web.turns import LONG_BODY
from llmdsim.wire.request import Request

log = Logger()

#: Operations that are no administration: those that vLLM has among its routes for everybody.
_OTHERS = frozenset(("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/inference/v1/abort_requests"))

#: How many that were asked for at one rank may be under way on all: they go on although their clients leave.
MOST_UNDER_WAY = 256


class Order(msgspec.Struct, frozen=True):
    """An operation as one rank tells another of it; whoever ordered it was let in there."""

    method: bytes
    uri: bytes
    content_type: bytes | None
    body: bytes


class Answer(msgspec.Struct, frozen=True):
    """What a rank answered; without a `content_type` there is no body."""

    status: int
    body: bytes = b""
    content_type: bytes | None = None
    extra: bytes = b""

    @property
    def ok(self) -> bool:
        """Whether it was done."""
        return self.status < 300


#: What stands for the answer of a rank that is no more.
GONE = Answer(503, path_error(503, b"/", "The rank has ended"), b"application/json")


class RanksQuery(msgspec.Struct):
    """What every operation takes."""

    all_ranks: bool = False


class OrderedRequest(Request, eq=False):
    """An operation that came from another rank; `answered` has its answer as soon as there is one."""

    answer: Answer | None = None
    answered: Deferred[Answer] = msgspec.field(default_factory=Deferred)

    @classmethod
    def of(cls, order: Order) -> OrderedRequest:
        """The request that an order stands for."""
        headers = {} if order.content_type is None else {b"content-type": order.content_type}
        return cls(None, order.method, order.uri, headers, body=order.body)  # type: ignore[arg-type]

    def respond(
        self, status: int, body: bytes, content_type: bytes = b"application/json", extra: bytes = b""
    ) -> None:
        self._settle(Answer(status, body, content_type, extra))

    def respond_empty(self, status: int, extra: bytes = b"") -> None:
        self._settle(Answer(status, extra=extra))

    def fail(self, failure: Failure) -> None:
        log.failure("{method} {path} failed", failure, method=self.method, path=self.path)
        self.respond(500, path_error(500, self.path, "Internal server error"))

    def _settle(self, answer: Answer) -> None:
        if self.answer is None:
            self.started = self.finished = True
            self.answer = answer
            self.answered.callback(answer)


def _alone(order: Order) -> Deferred[dict[int, Answer]]:
    return succeed({})


class Operations:
    """Of the rank `number`. `route` answers requests that passed the gate, at another rank if not here.

    `elsewhere` does what is ordered on every other rank, and fires with their answers; on none, until it is
    set.
    """

    def __init__(self, number: int, route: Callable[[Request], None]) -> None:
        self._number = number
        self._route = route
        self._under_way = 0
        self.elsewhere: Callable[[Order], Deferred[dict[int, Answer]]] = _alone

    def perform(self, order: Order) -> Deferred[Answer]:
        """Do it on this rank; never fails."""
        return self._begin(order).answered

    def _begin(self, order: Order) -> OrderedRequest:
        request = OrderedRequest.of(order)
        self._route(request)
        return request

    def reaching(self, route: Route) -> Handler:
        """The handler of a route; an operation's does it on all ranks for whoever asks for that."""
        handler = route.handler
        if not _is_operation(route):
            return handler

        def reach(request: Request, **variables: Any) -> Any:
            if request.query and read_query(RanksQuery, request).all_ranks:
                # What has begun is done everywhere, whether or not somebody waits for the answer.
                request.on_lost = _let_be
                return Deferred.fromCoroutine(self._do_one_of_many(request))
            return handler(request, **variables)

        return reach

    async def _do_one_of_many(self, request: Request) -> None:
        if self._under_way == MOST_UNDER_WAY:
            raise ApiError(
                503, f"{MOST_UNDER_WAY} operations on all ranks are under way; wait for one of them."
            )
        self._under_way += 1
        try:
            await self._do_everywhere(request)
        finally:
            self._under_way -= 1

    async def _do_everywhere(self, request: Request) -> None:
        if len(request.body) > LONG_BODY:
            raise ApiError(413, f"What is to reach all ranks has at most {LONG_BODY} bytes of body.")
        query = b"?" + request.query if request.query else b""
        content_type = request.headers.get(b"content-type")
        order = Order(request.method, quote(request.path).encode() + query, content_type, request.body)
        here = self._begin(order)
        if here.answer is not None and not here.answer.ok:
            # The other ranks, which would say the same, are not asked.
            _respond(request, here.answer)
            return
        others = self.elsewhere(order)
        own = await here.answered
        answers = {self._number: own, **await others}
        refused = {number: answer for number, answer in answers.items() if not answer.ok}
        if refused:
            raise _half_done(refused, sorted(answers.keys() - refused.keys()))
        _respond(request, own)


def answers_of(asked: Mapping[int, Deferred[Answer]]) -> Deferred[dict[int, Answer]]:
    """Fires with all answers by rank, when the last is there."""

    async def collected() -> dict[int, Answer]:
        return {number: await answered for number, answered in asked.items()}

    return Deferred.fromCoroutine(collected())


def _is_operation(route: Route) -> bool:
    return bool(route.methods - {"GET", "HEAD", "OPTIONS"}) and (
        is_administration(route.rule) or route.rule in _OTHERS
    )


def _let_be() -> None:
    """The client left."""


def _respond(request: Request, answer: Answer) -> None:
    if answer.content_type is None:
        request.respond_empty(answer.status, answer.extra)
    else:
        request.respond(answer.status, answer.body, answer.content_type, answer.extra)


def _half_done(refused: Mapping[int, Answer], done: list[int]) -> ApiError:
    told = "; ".join(
        f"rank {number} answered {answer.status}: {_message(answer)}"
        for number, answer in sorted(refused.items())
    )
    where = f"done on rank {', '.join(map(str, done))}" if done else "done on no rank"
    return ApiError(502, f"Not done on all ranks: {told} ({where}).")


def _message(answer: Answer) -> str:
    """What an error says, or the beginning of its body."""
    try:
        return str(msgspec.json.decode(answer.body)["error"]["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return answer.body[:200].decode(errors="replace")
