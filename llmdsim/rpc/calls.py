"""From a gRPC call to the method that answers it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from llmdsim.kvevents.feed import Feed
from llmdsim.web.context import Context
from llmdsim.web.errors import ApiError, shown, shutting_down
from llmdsim.web.reply_head import request_id_header
from llmdsim.web.turns import LONG_BODY, Steps
from llmdsim.wire.grpc import (
    ACCEPTED,
    CONTENT_TYPE,
    Code,
    Messages,
    RpcError,
    only_message,
    timeout,
    whole_message,
)
from llmdsim.wire.request import Request

if TYPE_CHECKING:
    from google.protobuf.message import Message


class Method(NamedTuple):
    """One method of a service.

    `answer` is given the wire's request, to be answered by way of `rpc.call`, now or later, and the message
    that asks. What it raises, or a Deferred it returns fails with, is the answer: ApiError and RpcError as
    they say, anything else INTERNAL; the Deferred is cancelled if the client leaves. Where messages come one
    by one (`streamed`) it is given the request alone and returns what takes each of them, and None behind the
    last. Calls that are `endless` go on for as long as the client likes, and are ended when the server is.
    Those `about_health` ask whether the process is alive, rather than what it can do. A message has `most`
    bytes at most, besides the bound of all requests: few methods are asked for much.
    """

    asks: type[Message]
    answer: Callable[..., Any]
    streamed: bool = False
    endless: bool = False
    about_health: bool = False
    most: int = LONG_BODY


class Calls:
    """Those of one rank: what its site's connections over HTTP/2 ask for (`wire.site.Calls`).

    Its methods load protobuf, which takes a while; they are looked for with the first call, or by `load`.
    """

    def __init__(self, context: Context, feed: Feed) -> None:
        self._context = context
        self._feed = feed
        self._methods: dict[bytes, Method] | None = None
        #: Those under way that would never end.
        self._endless: WeakSet[Request] = WeakSet()
        self._tells_ids = context.config.enable_request_id_headers
        self._refusal: Callable[[], ApiError] | None = None
        #: Answers one call.
        self.handle: Callable[[Request], None] = self._handle

    @property
    def methods(self) -> dict[bytes, Method]:
        """All there are, by path."""
        if self._methods is None:
            from llmdsim.rpc.services import methods  # noqa: PLC0415 - protobuf takes a while to load

            self._methods = methods(self._context, self._feed)
        return self._methods

    def load(self) -> None:
        """Load now what the first call, and the first connection it may come by, would wait for."""
        import llmdsim.wire.http2.connection  # noqa: F401, PLC0415 - takes a while to load

        self._methods = self.methods

    def end_endless(self) -> None:
        """End the calls that would keep the server from ending, once they have been told what there is."""
        self._feed.flush()
        for request in list(self._endless):
            _cut_off(request, shutting_down())

    def hold(self, refusal: Callable[[], ApiError]) -> None:
        """Until `release`, answer only calls about health, and the others with what `refusal` gives."""
        self._refusal = refusal

    def release(self) -> None:
        """Answer all calls again."""
        self._refusal = None

    # --- for the site

    def takes(self, request: Request) -> bool:
        """Whether a request is a call."""
        content_type = request.headers.get(b"content-type", b"")
        # Others that begin so, gRPC-Web's for one, are other protocols.
        return content_type.startswith(CONTENT_TYPE) and content_type[len(CONTENT_TYPE) :][:1] in b"+;"

    def takes_pieces(self, request: Request) -> bool:
        """Whether its messages come one by one."""
        method = self.methods.get(request.path)
        return method is not None and method.streamed

    def _handle(self, request: Request) -> None:
        request.common_headers += ACCEPTED
        if self._tells_ids:
            request.common_headers += request_id_header(request)
        try:
            method = self._find(request)
            headers = request.headers
            if b"grpc-timeout" in headers:
                seconds = timeout(headers)
                request.timer = self._context.turns.clock.callLater(seconds, _expire, request)
            if method.endless:
                self._endless.add(request)
            most = min(method.most, self._context.config.max_request_body_size_mb << 20)
            if method.streamed:
                request.on_body = _Pieces(request, method, Messages(headers, most)).take
                return
            message = whole_message(headers, request.body, min(most, LONG_BODY))
            if message is None:
                result = self._context.turns.take(self._read(request, method, most))
            else:
                result = method.answer(request, _parsed(method.asks, message))
        except Exception as error:
            _fail(request, error)
            return
        _await(request, result)

    def _read(self, request: Request, method: Method, most: int) -> Steps:
        """Answer a call whose message is compressed, or long, or none."""
        data = yield from only_message(request.headers, request.body, most)
        if len(data) > LONG_BODY:
            from llmdsim.rpc.long_message import read_long  # noqa: PLC0415 - protobuf takes a while to load

            message = yield from read_long(method.asks, data, self._context.limits)
        else:
            message = _parsed(method.asks, bytes(data))
        if request.finished:
            return
        request.on_lost = None
        _await(request, method.answer(request, message))

    def refuse(self, request: Request, status: int, message: str) -> None:
        """Answer a call with an error that HTTP has this status for."""
        _fail(request, ApiError(status, message))

    def _find(self, request: Request) -> Method:
        method = self.methods.get(request.path)
        if self._refusal is not None and not (method is not None and method.about_health):
            raise self._refusal()
        if method is None:
            # Clients take no more than some kilobytes of trailers.
            path = shown(request.path.decode(errors="replace"))
            raise RpcError(Code.UNIMPLEMENTED, f"there is no method {path}")
        if request.method != b"POST":
            raise RpcError(Code.INTERNAL, "calls are made by POST")
        return method


def _expire(request: Request) -> None:
    """End a call whose time is over."""
    request.timer = None
    _cut_off(request, RpcError(Code.DEADLINE_EXCEEDED, "the deadline of the call has passed"))


def _cut_off(request: Request, error: ApiError | RpcError) -> None:
    """End a call, and what it has led to."""
    if request.finished:
        return
    on_lost, request.on_lost = request.on_lost, None
    if on_lost is not None:
        on_lost()
    _fail(request, error)


class _Pieces:
    """Reads the messages of a call that come one by one, as fast as its client reads what they lead to."""

    def __init__(self, request: Request, method: Method, messages: Messages) -> None:
        self._request = request
        self._method = method
        self._messages = messages
        #: The last piece has come, and has not been told yet.
        self._ends = False
        self._take: Callable[[Message | None], None] = method.answer(request)
        request.on_drain = self._read

    def take(self, data: bytes | None) -> None:
        """A piece of the body, or None behind the last."""
        self._ends = data is None
        self._read(data or b"")

    def _read(self, data: bytes = b"") -> None:
        request = self._request
        try:
            found = self._messages.feed(data)
            while not request.finished and not request.channel.write_paused:
                message = next(found, None)
                if message is not None:
                    self._take(_parsed(self._method.asks, message))
                    continue
                if self._ends:
                    self._ends = False
                    self._messages.end()
                    self._take(None)
                return
        except Exception as error:
            _fail(request, error)


def _parsed(asks: type[Message], data: bytes) -> Message:
    try:
        return asks.FromString(data)
    except Exception:
        # protobuf's DecodeError, whose import would be looked for with each call.
        raise RpcError(Code.INTERNAL, f"the message is no {asks.DESCRIPTOR.full_name}") from None


def _await(request: Request, result: Deferred[None] | None) -> None:
    """Have a call fail as what it leads to does, and that end with the call."""
    if isinstance(result, Deferred):
        request.on_lost = request.on_lost or result.cancel
        result.addErrback(_failed_later, request)


def _failed_later(failure: Failure, request: Request) -> None:
    # What was cancelled is over in another way: its client left, or is told that its time has passed.
    if not request.finished and not failure.check(CancelledError):  # type: ignore[no-untyped-call]
        assert isinstance(failure.value, Exception)
        _fail(request, failure.value)


def _fail(request: Request, error: Exception) -> None:
    from llmdsim.rpc.call import fail  # noqa: PLC0415 - protobuf takes a while to load

    fail(request, error)
