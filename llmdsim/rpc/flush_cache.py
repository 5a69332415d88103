"""`FlushCache`: cached prefixes are forgotten, now or when nothing holds any."""

from __future__ import annotations

from math import isfinite
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from llmdsim.rpc.call import reply
from llmdsim.rpc.pb import common_pb2 as pb
from llmdsim.web.context import Context
from llmdsim.wire.grpc import Code, RpcError
from llmdsim.wire.request import Request

#: Seconds between attempts.
RETRY_EVERY: Final = 0.1


class FlushCache:
    """The method of one rank, which does what `/reset_prefix_cache` does here."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def flush(self, request: Request, asked: pb.FlushCacheRequest) -> Deferred[None] | None:
        """Forget what finished requests left, trying for `timeout_s` seconds, or once where that is 0."""
        seconds = asked.timeout_s
        if not isfinite(seconds) or seconds < 0:
            raise RpcError(Code.INVALID_ARGUMENT, "timeout_s must be a number of seconds, 0 or more")
        if not self._flushed(request) and not seconds:
            reply(request, pb.FlushCacheResponse(message="Running requests hold blocks of the cache"))
        return None if request.finished else Deferred.fromCoroutine(self._go_on(request, seconds))

    async def _go_on(self, request: Request, seconds: float) -> None:
        clock = self._context.turns.clock
        until = clock.seconds() + seconds
        while (left := until - clock.seconds()) > 0:
            await deferLater(clock, min(RETRY_EVERY, left))
            if self._flushed(request):
                return
        raise RpcError(Code.DEADLINE_EXCEEDED, f"Requests held blocks of the cache for {seconds:g} seconds")

    def _flushed(self, request: Request) -> bool:
        """Try; whether that worked, and the call is answered."""
        self._context.suspension.require_life()
        done = self._context.driver.reset_prefix_cache()
        if done:
            reply(request, pb.FlushCacheResponse(success=True, message="Cached prefixes are forgotten"))
        return done
