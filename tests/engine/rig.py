"""An engine whose time the test moves, replies that say nothing, and sinks that note what they were told."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from llmdsim.engine.adapters import Adapter
from llmdsim.engine.engine import Engine
from llmdsim.engine.kvcache import KvCache
from llmdsim.engine.latency import Latency
from llmdsim.engine.pacing import PerRequestPacing
from llmdsim.engine.sequence import Family, Sequence
from llmdsim.engine.stats import Stats
from llmdsim.reply.plan import Plan
from llmdsim.reply.reply import TEXT_ONLY

#: Times of tests are multiples of this, which floats add without error.
TICK = 1 / 1024


@dataclass
class Settings:
    """Options of `Config`, durations in seconds."""

    latency_calculator: str = ""
    time_to_first_token: float = 0.0
    time_to_first_token_std_dev: float = 0.0
    inter_token_latency: float = 0.0
    inter_token_latency_std_dev: float = 0.0
    prefill_overhead: float = 0.0
    prefill_time_per_token: float = 0.0
    prefill_time_std_dev: float = 0.0
    kv_cache_transfer_latency: float = 0.0
    kv_cache_transfer_latency_std_dev: float = 0.0
    kv_cache_transfer_time_per_token: float = 0.0
    kv_cache_transfer_time_std_dev: float = 0.0
    kv_offloading_time_per_token: float = 0.0
    time_factor_under_load: float = 1.0
    time_to_generate_image: float = 0.0
    time_to_generate_image_std_dev: float = 0.0
    max_num_seqs: int = 4
    max_waiting_queue_length: int = 100
    max_num_queued_reqs: int | None = None
    max_num_queued_tokens: int | None = None
    scheduling_policy: str = "fcfs"
    lora_max_overtakes: int = -1
    max_loras: int = 1
    max_cpu_loras: int = 0
    lora_load_time: float = 0.0
    speed: float = 1.0
    seed: int | None = 1


@dataclass(eq=False)
class Ask:
    """What the engine reads of an ask, and what the rig's writer makes of it."""

    total: int = 1
    finish_reason: str = "stop"
    prompt: Any = range(5)
    max_tokens: int = 16
    fault: Exception | None = None
    plan: Plan | None = None
    #: Seconds that writing takes.
    takes: float = 0.0

    @property
    def is_easy(self) -> bool:
        return self.plan is None


class Reply:
    """A reply of `total` tokens of no text."""

    parts = TEXT_ONLY

    def __init__(self, total: int, finish_reason: str) -> None:
        self.total = total
        self.finish_reason = finish_reason
        self.stop_reason = None

    def ids(self, start: int, stop: int) -> list[int]:
        return list(range(1_000_000 + start, 1_000_000 + min(stop, self.total)))

    def packed(self, start: int, stop: int) -> bytes:
        return array("I", self.ids(start, stop)).tobytes()


@dataclass(eq=False)
class Log:
    """A sink: what it was told, and what it does when told (`then`, after noting it)."""

    rig: Rig
    then: Callable[[Sequence], None] | None = None
    calls: list[tuple[float, int, str | None]] = field(default_factory=list)
    failed: list[Sequence] = field(default_factory=list)

    def fail(self, sequence: Sequence) -> None:
        self.failed.append(sequence)

    def reveal(self, sequence: Sequence) -> None:
        self.calls.append((self.rig.now, sequence.revealed, sequence.finish_reason))
        if self.then is not None:
            self.then(sequence)

    @property
    def tokens(self) -> list[int]:
        """Tokens revealed at each call."""
        return [revealed for _, revealed, _ in self.calls]

    @property
    def reasons(self) -> list[str | None]:
        """The finish reason at each call."""
        return [reason for _, _, reason in self.calls]

    def token_times(self) -> list[float]:
        """When each token was revealed."""
        times: list[float] = []
        for now, revealed, _ in self.calls:
            times += [now] * (revealed - len(times))
        return times


class Rig:
    """An engine, and `now`, which only the test moves. `more` are fields of `Settings`."""

    def __init__(self, slots: int = 2, waiting: int = 100, **more: object) -> None:
        self.now = 4096.0  # not 0, which is what a time nobody set would be
        self.started: list[Sequence] = []
        self.settings = Settings(  # type: ignore[arg-type]
            max_num_seqs=slots, max_waiting_queue_length=waiting, **more
        )
        self.settings.max_cpu_loras = self.settings.max_cpu_loras or self.settings.max_loras
        self.latency = Latency(self.settings)
        self.pacing = PerRequestPacing(self.latency)
        self.stats = Stats(max_model_len=4096)
        self.engine = Engine(self.settings, self.pacing, self._write, self.stats, lambda: self.now)
        self._by_ask: dict[Ask, Sequence] = {}

    def use_cache(self, cache: KvCache) -> None:
        """Begin anew, with KV blocks."""
        self.engine = Engine(self.settings, self.pacing, self._write, self.stats, lambda: self.now, cache)

    def _write(self, ask: Ask) -> Reply:
        assert self.stats.running <= self.settings.max_num_seqs
        self.started.append(self._by_ask.pop(ask))
        self.now += ask.takes
        if ask.fault is not None:
            raise ask.fault
        return Reply(ask.total, ask.finish_reason)

    def make(
        self,
        total: int = 1,
        then: Callable[[Sequence], None] | None = None,
        *,
        index: int = 0,
        family: Family | None = None,
        adapter: Adapter | None = None,
        priority: int = 0,
        **ask: object,
    ) -> Sequence:
        """A sequence with a `Log` as its sink."""
        made = Ask(total, **ask)  # type: ignore[arg-type]
        sequence = Sequence(  # type: ignore[arg-type]
            made, Log(self, then), index, family, adapter=adapter, priority=priority
        )
        self._by_ask[made] = sequence
        return sequence

    def submit(self, *sequences: Sequence) -> None:
        self.engine.submit(sequences, self.now)

    def add(self, total: int = 1, then: Callable[[Sequence], None] | None = None, **more: object) -> Sequence:
        """Make one sequence and submit it."""
        sequence = self.make(total, then, **more)  # type: ignore[arg-type]
        self.submit(sequence)
        return sequence

    def abort(self, sequence: Sequence) -> None:
        self.engine.abort(sequence, self.now)

    def change(self, **latency: object) -> float | None:
        """Change latencies, as `POST /admin/config` does; returns the next deadline."""
        self.settings = replace(self.settings, **latency)  # type: ignore[arg-type]
        if self.latency.configure(self.settings):
            self.engine.retime(self.now)
        return self.engine.next_deadline()

    def go(self, seconds: float = 0.0) -> float | None:
        """Let `seconds` pass, then make one pass; returns the next deadline."""
        self.now += seconds
        return self.engine.advance(self.now)

    def drain(self, passes: int = 10_000) -> None:
        """Make passes, each at its deadline, until nothing runs."""
        for _ in range(passes):
            deadline = self.pacing.next_deadline()
            if deadline is None:
                return
            self.now = max(self.now, deadline)
            self.engine.advance(self.now)
        raise AssertionError("the engine does not come to an end")


def log(sequence: Sequence) -> Log:
    """The sink the rig gave `sequence`."""
    assert isinstance(sequence.sink, Log)
    return sequence.sink
