"""Hands the batches of one rank on to all who have subscribed, each made into a message once."""

from __future__ import annotations

from collections import deque

from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure

from llmdsim.kvevents.feed import Feed
from llmdsim.kvevents.window import Batch
from llmdsim.rpc.kv_events.conversion import Conversion
from llmdsim.rpc.kv_events.subscription import Subscription
from llmdsim.rpc.pb import common_pb2 as pb
from llmdsim.web.context import Context
from llmdsim.web.errors import ApiError, shutting_down
from llmdsim.web.turns import Steps
from llmdsim.wire.grpc import Code, RpcError
from llmdsim.wire.request import Request

#: How often it is looked whether there is something to tell of the load, in seconds (SMG).
LOOK_EVERY = 0.1

#: Calls at the same time; each batch takes some ten microseconds for each.
MOST_SUBSCRIPTIONS = 64


class Relay:
    """Listens to `feed` as long as anybody listens to it."""

    def __init__(self, context: Context, feed: Feed) -> None:
        self._context = context
        self._feed = feed
        self._subscriptions: dict[Subscription, None] = {}
        self._conversion = Conversion()
        #: What is still to be made into messages.
        self._coming: deque[Batch] = deque()
        self._converting = False
        self._look = LoopingCall(self._look_round)
        self._look.clock = context.turns.clock

    def subscribe(self, request: Request, asked: pb.SubscribeKvEventsRequest) -> None:
        """Answer a call.

        From 0, what happens from now on is told; from another number on, what is kept for replay first.
        """
        context, feed = self._context, self._feed
        if context.draining:
            raise shutting_down()
        if not feed.is_open:
            raise RpcError(
                Code.UNIMPLEMENTED,
                "there are no KV events without --enable-kvcache, or where --kv-events-config has them off",
            )
        if len(self._subscriptions) >= MOST_SUBSCRIPTIONS:
            raise RpcError(Code.RESOURCE_EXHAUSTED, f"{MOST_SUBSCRIPTIONS} clients have subscribed already")
        start = asked.start_sequence_number
        missed: list[Batch] = []
        upcoming = None
        if start:
            upcoming = self._coming[0][0] if self._coming else feed.upcoming
            kept = feed.kept(start, upcoming)
            if kept is None:
                raise RpcError(
                    Code.OUT_OF_RANGE,
                    f"start_sequence_number {start} is not kept for replay; {upcoming} comes next: "
                    "forget the blocks of this rank and subscribe from 0",
                )
            missed = kept
        if not self._subscriptions:
            # What the one before knew of may be gone.
            self._conversion = Conversion()
            feed.listen(self._take)
            self._look.start(LOOK_EVERY, now=False)
        subscription = Subscription(
            request,
            feed,
            context,
            self._leave,
            missed=missed,
            upcoming=upcoming,
            early=asked.load_records_before_first_batch,
        )
        self._subscriptions[subscription] = None
        subscription.begin()

    def _take(self, batch: Batch) -> None:
        self._coming.append(batch)
        if not self._converting:
            self._converting = True
            done = self._context.turns.take(self._steps())
            if done is not None:
                done.addErrback(self._given_up)

    def _steps(self) -> Steps:
        """Make messages of what has come, and hand them on."""
        try:
            while self._coming:
                message = yield from self._conversion.message(self._coming[0])
                batch = self._coming.popleft()
                for subscription in list(self._subscriptions):
                    subscription.take(batch, message)
        except Exception as error:
            # A fault of ours; the engine, which tells of the batch, has no part in it.
            self._give_up(error)
        finally:
            self._converting = False

    def _given_up(self, failure: Failure) -> None:
        assert isinstance(failure.value, ApiError)
        self._give_up(failure.value)

    def _give_up(self, error: Exception) -> None:
        # They have missed what they cannot be told.
        self._coming.clear()
        for subscription in list(self._subscriptions):
            subscription.end(error)

    def _leave(self, subscription: Subscription) -> None:
        self._subscriptions.pop(subscription, None)
        if not self._subscriptions and self._look.running:
            self._look.stop()
            self._feed.leave()

    def _look_round(self) -> None:
        for subscription in list(self._subscriptions):
            subscription.look()
