"""One call of SubscribeKvEvents: what its client is told, in which order, and when that ends."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from twisted.python.failure import Failure

from llmdsim.kvevents.feed import Feed
from llmdsim.kvevents.window import Batch
from llmdsim.rpc.call import fail, send
from llmdsim.rpc.kv_events.conversion import Conversion
from llmdsim.rpc.loads import EngineLoad, engine_load
from llmdsim.rpc.pb import common_pb2 as pb
from llmdsim.web.context import Context
from llmdsim.web.errors import ApiError
from llmdsim.web.turns import Steps
from llmdsim.wire.grpc import CONTENT_TYPE, Code, RpcError
from llmdsim.wire.request import Request

#: Batches, and bytes of them, that may wait for a client that does not read.
MOST_BATCHES = 1024
MOST_BYTES = 8 << 20

#: Messages sent in one step: a third of a millisecond.
SLICE = 32

#: Seconds of silence before the load is told as it is, and once it has been so many times.
SILENCE = 1.0
LONG_SILENCE = 5.0
MOST_UNCHANGED = 2

#: Changes of it that are told at once: more than this, and of the throughput more than that part, too.
USAGE_CHANGE = 0.005
THROUGHPUT_CHANGE = 50.0
THROUGHPUT_PART = 0.05


class Subscription:
    """Ends with DATA_LOSS where a batch is missing and is not kept for replay, and where its client is slow.

    `missed` are batches that the client is told first; `upcoming` is the number that follows, None for any.
    The load is told with each batch, and where none comes; before the first one only if `early`. `left` is
    called when the call is over.
    """

    def __init__(
        self,
        request: Request,
        feed: Feed,
        context: Context,
        left: Callable[[Subscription], None],
        *,
        missed: Sequence[Batch],
        upcoming: int | None,
        early: bool,
    ) -> None:
        self._request = request
        self._feed = feed
        self._context = context
        self._turns = context.turns
        self._left = left
        self._rank = max(context.config.data_parallel_rank, 0)
        #: Batches that were sent before, which nobody else is told now.
        self._missed = deque(missed)
        self._conversion = Conversion()
        #: What is to be told behind them, and the bytes of that.
        self._waiting: deque[tuple[Batch, pb.KvEventBatch | None]] = deque()
        self._bytes = 0
        self._upcoming = upcoming
        self._last: Batch | None = None
        self._sending = False
        #: The number of the last batch that was told.
        self._number = max(0, feed.upcoming - 1)
        self._hears_of_load = early
        self._events = 0
        self._samples = 0
        self._load: EngineLoad | None = None
        self._spoke_at = 0.0
        self._unchanged = 0

    def begin(self) -> None:
        """Answer at once, so that the client knows that it will be told all that follows."""
        request = self._request
        request.on_lost = self._leave
        request.on_drain = self._go_on
        request.start(200, CONTENT_TYPE)
        self._go_on()
        self.look()

    def take(self, batch: Batch, message: pb.KvEventBatch) -> None:
        """Tell of a batch, of which this is the message."""
        number, upcoming = batch[0], self._upcoming
        if upcoming is not None and number != upcoming:
            if batch == self._last:
                return  # once more
            between = self._feed.kept(upcoming, number)
            if between is None:
                self.end(_lost(f"batch {number} came where {upcoming} was to come"))
                return
            for each in between:
                self._put(each, None)
        self._upcoming, self._last = number + 1, batch
        self._put(batch, message)
        if len(self._waiting) > MOST_BATCHES or self._bytes > MOST_BYTES:
            self._feed.counts.overflows += 1
            self.end(_lost("the client does not read"))
        else:
            self._go_on()

    def look(self) -> None:
        """Tell the load if it has changed, or nothing was told for some time."""
        try:
            self._look()
        except Exception as error:
            # A fault of ours, which must not end the looks at others.
            self.end(error)

    def _look(self) -> None:
        if not self._hears_of_load or self._missed or self._waiting or self._request.channel.write_paused:
            return
        now = self._turns.seconds()
        load = engine_load(self._context)
        if self._load is None or _differs(load, self._load):
            self._unchanged = 0
        else:
            if now - self._spoke_at < (SILENCE if self._unchanged < MOST_UNCHANGED else LONG_SILENCE):
                return
            self._unchanged += 1
        message = pb.KvEventBatch(sequence_number=self._number, timestamp=time.time(), dp_rank=self._rank)
        message.load.load_only = True
        self._send(message, load, now)

    def end(self, error: Exception) -> None:
        """End the call."""
        self._leave()
        fail(self._request, error)

    def _leave(self) -> None:
        self._missed.clear()
        self._waiting.clear()
        self._left(self)

    def _put(self, batch: Batch, message: pb.KvEventBatch | None) -> None:
        self._waiting.append((batch, message))
        self._bytes += len(batch[1])

    def _go_on(self) -> None:
        if not self._sending and (self._missed or self._waiting):
            self._sending = True
            done = self._turns.take(self._steps())
            if done is not None:
                done.addErrback(self._given_up)

    def _given_up(self, failure: Failure) -> None:
        assert isinstance(failure.value, ApiError)
        self.end(failure.value)

    def _steps(self) -> Steps:
        """Send what waits, as far as the client reads."""
        sent = 0
        try:
            while (self._missed or self._waiting) and not self._request.channel.write_paused:
                if self._missed:
                    batch, message = self._missed.popleft(), None
                else:
                    batch, message = self._waiting.popleft()
                    self._bytes -= len(batch[1])
                if message is None:
                    message = yield from self._conversion.message(batch)
                self._tell(message)
                sent += 1
                if sent % SLICE == 0:
                    yield
        except Exception as error:
            # A fault of ours, of which whoever had it go on knows nothing.
            self.end(error)
        finally:
            self._sending = False

    def _tell(self, message: pb.KvEventBatch) -> None:
        for event in message.events:
            self._events += 1
            event.event_id = self._events
        self._number = message.sequence_number
        self._hears_of_load = True
        self._unchanged = 0
        # Others may have been told of it, with other samples.
        message.ClearField("load")
        now = self._turns.seconds()
        self._send(message, engine_load(self._context), now)

    def _send(self, message: pb.KvEventBatch, load: EngineLoad, now: float) -> None:
        self._samples += 1
        told = message.load
        told.running_requests = load.running
        told.waiting_requests = load.waiting
        told.waiting_uncached_tokens = load.uncached_tokens
        told.token_usage = load.usage
        told.gen_throughput = load.throughput
        told.max_running_requests = load.slots
        told.sample = self._samples
        if self._samples == 1 or told.load_only:
            told.cache_hit_rate = load.hit_rate
            told.num_used_tokens = load.used
            told.max_total_num_tokens = load.capacity
        self._load, self._spoke_at = load, now
        send(self._request, message)


def _lost(why: str) -> RpcError:
    return RpcError(Code.DATA_LOSS, f"{why}: forget the blocks of this rank and subscribe from 0")


def _differs(load: EngineLoad, told: EngineLoad) -> bool:
    """Whether it has changed by so much that it is told at once."""
    throughput = abs(load.throughput - told.throughput)
    return (
        (load.running, load.waiting, load.uncached_tokens, load.slots)
        != (told.running, told.waiting, told.uncached_tokens, told.slots)
        or abs(load.usage - told.usage) > USAGE_CHANGE
        or throughput > max(THROUGHPUT_CHANGE, THROUGHPUT_PART * told.throughput)
    )
