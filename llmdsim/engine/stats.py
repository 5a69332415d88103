"""What the engine counts: plain numbers and bucket lists, one `Stats` for each rank.

Nothing here knows a metric's name or how it is written down; `llmdsim.metrics` reads these at scrape.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import compress
from operator import sub
from typing import TypeAlias, get_args

from llmdsim.config.fault import KINDS
from llmdsim.config.table import FailureType
from llmdsim.engine.admission import Limit
from llmdsim.engine.kvcache.pool import Pool

#: Default bucket bounds, seconds or counts (vLLM 0.33, v1/metrics/buckets.py).
TTFT_BOUNDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
ITL_BOUNDS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0),
)
LATENCY_BOUNDS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
N_BOUNDS = (1.0, 2.0, 5.0, 10.0, 20.0)
PREEMPTION_BOUNDS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)
LATENESS_BOUNDS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
TRANSFER_TIME_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 5.0)
POST_TIME_BOUNDS = (0.001, *TRANSFER_TIME_BOUNDS)
BYTES_BOUNDS = tuple(float(1 << power) for power in range(11, 35, 2))
DESCRIPTOR_BOUNDS = (
    *(10.0, 20.0, 30.0, 50.0, 75.0, 100.0, 200.0, 400.0, 1000.0, 2000.0, 4000.0, 10000.0, 20000.0, 50000.0),
)
OFFLOAD_BOUNDS = (1e6, 5e6, 1e7, 2e7, 4e7, 6e7, 8e7, 1e8, 1.5e8, 2e8)
BLOCK_TIME_BOUNDS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0),
    *(300.0, 600.0, 1200.0, 1800.0),
)
PASS_BOUNDS = (1.0, *(float(8 << power) for power in range(12)))
FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")
SLEEP_STATES = ("awake", "weights_offloaded", "discard_all")
#: Kinds of faults, types of failures, and what X-Return-Error asks for.
FAULTS = (*KINDS, *get_args(FailureType), "return_error")

#: What a token takes in the KV cache: an 8B Llama's 32 layers of 8 heads of 128 dimensions, keys and values,
#: in bfloat16.
KV_BYTES_PER_TOKEN = 131_072

#: Values a histogram keeps before they are sorted: few enough that a scrape is quick.
MANY = 1024

#: Fewer values than this are put into their buckets one by one: sorting pays when most buckets have some.
FEW = 16


def token_bounds(max_model_len: int) -> tuple[float, ...]:
    """The 1-2-5 series times powers of ten, up to `max_model_len` inclusive."""
    bounds: list[float] = []
    scale = 1
    while scale <= max_model_len:
        bounds += [float(step * scale) for step in (1, 2, 5) if step * scale <= max_model_len]
        scale *= 10
    return tuple(bounds)


class Histogram:
    """Observations sorted into buckets; `counts` is not cumulative and ends with the +Inf bucket.

    `observe(value)` counts a value; it only keeps it, and sorting waits until somebody looks or `settle` is
    called, since many values together cost a fraction of what they cost one by one. `zeros` is how often 0.0
    was observed besides. `fetch`, called before that, observes what is known elsewhere.
    """

    __slots__ = ("_counts", "_fetch", "_sum", "bounds", "observe", "observe_all", "unsettled", "zeros")

    def __init__(self, bounds: Sequence[float], fetch: Callable[[], None] | None = None) -> None:
        self.bounds = tuple(bounds)
        self.unsettled: list[float] = []
        self.zeros = 0
        self.observe = self.unsettled.append
        self.observe_all = self.unsettled.extend
        self._fetch = fetch
        self._counts = [0] * (len(self.bounds) + 1)
        self._sum = 0.0

    def observe_times(self, value: float, times: int) -> None:
        """Count `value` `times` times."""
        self._counts[bisect_left(self.bounds, value)] += times
        self._sum += value * times

    def settle(self) -> None:
        """Sort the values kept so far into their buckets."""
        if self._fetch is not None:
            self._fetch()
        if self.zeros:
            self.observe_times(0.0, self.zeros)
            self.zeros = 0
        values = self.unsettled
        if not values:
            return
        self._sum += sum(values)
        if len(values) < FEW:
            for value in values:
                self._counts[bisect_left(self.bounds, value)] += 1
        else:
            self._sort(values)
        values.clear()

    def _sort(self, values: list[float]) -> None:
        values.sort()
        below = 0
        for bucket, bound in enumerate(self.bounds):
            upto = bisect_right(values, bound, below)
            self._counts[bucket] += upto - below
            below = upto
            if below == len(values):
                return
        self._counts[-1] += len(values) - below

    @property
    def counts(self) -> list[int]:
        """Observations in each bucket."""
        self.settle()
        return self._counts

    @property
    def sum(self) -> float:
        """Sum of all observations."""
        self.settle()
        return self._sum

    @property
    def count(self) -> int:
        """How many observations there were."""
        return sum(self.counts)


class TransferStats:
    """Reading KV blocks, of `block_size` tokens each, that other servers' prefills made.

    `queried` and `hits` are tokens looked up there and found, when `lookups` sequences start; `loaded` are
    those of transfers that came to their end. `failed` counts transfers.
    """

    __slots__ = (
        "_block_size",
        "bytes",
        "descriptors",
        "failed",
        "hits",
        "loaded",
        "lookups",
        "post_time",
        "queried",
        "time",
    )

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self.lookups = 0
        self.queried = 0
        self.hits = 0
        self.loaded = 0
        self.failed = 0
        self.time = Histogram(TRANSFER_TIME_BOUNDS)
        self.post_time = Histogram(POST_TIME_BOUNDS)
        self.bytes = Histogram(BYTES_BOUNDS)
        self.descriptors = Histogram(DESCRIPTOR_BOUNDS)

    def look_up(self, tokens: int) -> None:
        """Count tokens that another server's prefill has."""
        self.lookups += 1
        self.queried += tokens
        self.hits += tokens

    def miss(self, tokens: int) -> None:
        """Count tokens that are looked up again, in vain, since their transfer failed."""
        self.lookups += 1
        self.queried += tokens

    def succeed(self, seconds: float, tokens: int) -> None:
        """Count a transfer of the blocks of so many tokens."""
        blocks = -(-tokens // self._block_size)
        self.loaded += tokens
        self.time.observe_times(seconds, 1)
        self.post_time.observe_times(0.0, 1)  # to ask for it takes no time here
        self.bytes.observe_times(blocks * self._block_size * KV_BYTES_PER_TOKEN, 1)
        self.descriptors.observe_times(blocks, 1)


class HostStats:
    """What the host's memory has of prompts: tokens `queried` that the device had not, `hits` as `lookups`
    sequences start, and `loaded` by those that reached their first token."""

    __slots__ = ("hits", "load_size", "loaded", "lookups", "queried")

    def __init__(self) -> None:
        self.lookups = 0
        self.queried = 0
        self.hits = 0
        self.loaded = 0
        self.load_size = Histogram(OFFLOAD_BOUNDS)

    def look_up(self, tokens: int, found: int) -> None:
        """Count tokens looked up, and those of them that are there and are loaded."""
        self.lookups += 1
        self.queried += tokens
        self.hits += found
        if found:
            self.load_size.observe_times(found * KV_BYTES_PER_TOKEN, 1)


class BlockTimes:
    """Of KV blocks that were taken for something else: seconds since they had been taken, since they had been
    used, and from one hit to the next."""

    __slots__ = ("idle", "lifetime", "reuse_gap")

    def __init__(self) -> None:
        self.lifetime = Histogram(BLOCK_TIME_BOUNDS)
        self.idle = Histogram(BLOCK_TIME_BOUNDS)
        self.reuse_gap = Histogram(BLOCK_TIME_BOUNDS)

    def count(self, lifetime: float, idle: float, gaps: Sequence[float]) -> None:
        """Count one block."""
        self.lifetime.observe_times(lifetime, 1)
        self.idle.observe_times(idle, 1)
        for gap in gaps:
            self.reuse_gap.observe_times(gap, 1)


Finished: TypeAlias = tuple[float, float, float, float, float, int, int, int, int, bool, int]
"""Of a sequence answered to its end: when it arrived, was started, had its first and last token, and ended;
its prompt tokens, and the cached ones among them; its tokens, and their limit; whether it was the only choice
of its prompt; and how often it was preempted."""


class Stats:
    """All counters of one engine; every attribute is read at scrape; none but the engine writes them,
    apart from what pooling routes tell `count_pooled`."""

    __slots__ = (
        "adapter_changes",
        "adapters_changed_at",
        "below_threshold",
        "block_times",
        "cached_tokens",
        "decode_time",
        "deferred",
        "e2e_latency",
        "faults",
        "finished",
        "generation_tokens",
        "host",
        "inference_time",
        "inter_token_latency",
        "max_num_generation_tokens",
        "params_max_tokens",
        "params_n",
        "pass_lateness",
        "pass_tokens",
        "pool",
        "preemptions",
        "prefill_computed_tokens",
        "prefill_time",
        "prefix_cache_clears",
        "prefix_cache_hits",
        "prefix_cache_lookups",
        "prefix_cache_queries",
        "prompt_tokens",
        "queue_time",
        "records",
        "refused",
        "rejected",
        "request_generation_tokens",
        "request_preemptions",
        "request_prompt_tokens",
        "running",
        "sleep_state",
        "time_per_output_token",
        "time_to_first_token",
        "transfers",
        "waiting",
    )

    def __init__(self, max_model_len: int, block_size: int = 16) -> None:
        tokens = token_bounds(max_model_len)
        self.running = 0
        self.waiting = 0
        #: Of the waiting: passed over when there was a slot, since their adapter could not be had.
        self.deferred = 0
        #: How often a sequence of an adapter was queued or started, or ended, and when the last one was.
        self.adapter_changes = 0
        self.adapters_changed_at = 0.0
        #: Which of SLEEP_STATES it is in; "" is none, as when only scheduling stops.
        self.sleep_state = "awake"
        #: The blocks of the KV cache, where there is one.
        self.pool: Pool | None = None
        #: Sequences whose prompts were looked up, tokens of these, and those of them that were found; and how
        #: often everything was forgotten.
        self.prefix_cache_lookups = 0
        self.prefix_cache_queries = 0
        self.prefix_cache_hits = 0
        self.prefix_cache_clears = 0
        self.preemptions = 0
        #: Whole prompts whose first token was revealed, and what of them was not computed here.
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.transfers = TransferStats(block_size)
        self.block_times = BlockTimes()
        self.host = HostStats()
        self.generation_tokens = 0
        #: Requests, not sequences, that found the queue full.
        self.refused = 0
        #: Requests, not sequences, that would have exceeded a limit, by the limit's name.
        self.rejected = dict.fromkeys(get_args(Limit), 0)
        #: Ended before they began, for having too little of their prompt cached.
        self.below_threshold = 0
        self.finished = dict.fromkeys(FINISH_REASONS, 0)
        #: Requests that failed on purpose.
        self.faults = dict.fromkeys(FAULTS, 0)
        #: Prompt tokens computed and tokens revealed in one pass.
        self.pass_tokens = Histogram(PASS_BOUNDS)
        #: Seconds by which passes came later than they were planned: the simulator's own fault.
        self.pass_lateness = Histogram(LATENESS_BOUNDS)
        self.time_to_first_token = Histogram(TTFT_BOUNDS)
        self.inter_token_latency = Histogram(ITL_BOUNDS)
        #: Finished sequences that are not in the histograms below yet: to note all of them at once is cheap.
        self.records: list[Finished] = []
        fetch = self._read_records
        self.time_per_output_token = Histogram(ITL_BOUNDS, fetch)
        self.e2e_latency = Histogram(LATENCY_BOUNDS, fetch)
        self.queue_time = Histogram(LATENCY_BOUNDS, fetch)
        self.inference_time = Histogram(LATENCY_BOUNDS, fetch)
        self.prefill_time = Histogram(LATENCY_BOUNDS, fetch)
        self.decode_time = Histogram(LATENCY_BOUNDS, fetch)
        self.request_prompt_tokens = Histogram(tokens, fetch)
        self.request_generation_tokens = Histogram(tokens, fetch)
        self.max_num_generation_tokens = Histogram(tokens, fetch)
        self.params_max_tokens = Histogram(tokens, fetch)
        self.params_n = Histogram(N_BOUNDS, fetch)
        self.prefill_computed_tokens = Histogram(tokens, fetch)
        self.request_preemptions = Histogram(PREEMPTION_BOUNDS, fetch)

    @property
    def kv_cache_usage(self) -> float:
        """The part of the KV cache's blocks that sequences hold, 0 to 1."""
        return 0.0 if self.pool is None else self.pool.usage

    def _read_records(self) -> None:
        if not self.records:
            return
        arrived, started, first, last, ended, prompt, cached, tokens, limit, alone, preemptions = zip(
            *self.records, strict=True
        )
        self.records.clear()
        self.e2e_latency.observe_all(map(sub, ended, arrived))
        self.queue_time.observe_all(map(sub, started, arrived))
        self.prefill_time.observe_all(map(sub, first, started))
        self.inference_time.observe_all(map(sub, ended, started))
        decode = list(map(sub, last, first))
        self.decode_time.observe_all(decode)
        self.time_per_output_token.observe_all(
            [time / (count - 1) if count > 1 else 0.0 for time, count in zip(decode, tokens, strict=True)]
        )
        self.request_prompt_tokens.observe_all(prompt)
        self.prefill_computed_tokens.observe_all(map(sub, prompt, cached))
        self.request_preemptions.observe_all(preemptions)
        self.request_generation_tokens.observe_all(tokens)
        self.params_max_tokens.observe_all(filter(None, limit))
        self.params_n.observe_times(1, sum(alone))
        self.max_num_generation_tokens.observe_all(compress(tokens, alone))

    def count_family(self, n: int, longest: int) -> None:
        """Count a prompt that had `n` choices, more than one, of which the longest had so many tokens."""
        self.params_n.observe(n)
        self.max_num_generation_tokens.observe(longest)

    def count_pooled(self, prompts: Sequence[int], seconds: float) -> None:
        """Count prompts, each so many tokens long, of which one request had something other than text made.

        To vLLM they are requests that stop at once: their time is prefill, and they have no tokens.
        """
        tokens = sum(prompts)
        self.prompt_tokens += tokens
        self.pass_tokens.observe(tokens)
        self.finished["stop"] += len(prompts)
        self.time_to_first_token.observe_all([seconds] * len(prompts))
        self.records += [
            (0.0, 0.0, seconds, seconds, seconds, length, 0, 0, 0, True, 0) for length in prompts
        ]
        self.settle()

    def settle(self) -> None:
        """Sort what the histograms keep, where that has become much: memory is bounded without a scrape."""
        if (
            len(self.inter_token_latency.unsettled) > MANY
            or len(self.time_to_first_token.unsettled) > MANY
            or len(self.records) > MANY
        ):
            for name in self.__slots__:
                histogram = getattr(self, name)
                if isinstance(histogram, Histogram):
                    histogram.settle()
