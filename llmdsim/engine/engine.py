"""The engine: slots, the waiting queue, and the one pass that reveals every token that is due."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from llmdsim.engine.adapters import Adapter
from llmdsim.engine.admission import Admission, AdmissionSettings
from llmdsim.engine.blocks import Blocks
from llmdsim.engine.kvcache import KvCache, Record
from llmdsim.engine.pacing import Pacing
from llmdsim.engine.residency import Residency, ResidencySettings
from llmdsim.engine.sequence import Sequence
from llmdsim.engine.stats import MANY, Stats
from llmdsim.engine.transfers import RemotePrefill
from llmdsim.engine.waiting import Waiting
from llmdsim.reply.ask import Ask
from llmdsim.reply.cut import CutReply
from llmdsim.reply.reply import Reply

#: Seconds that starting sequences may take in one turn; what is left starts in the next.
MOST_WRITING = 5e-3

#: Finish reasons of sequences whose reply was revealed to its end.
COMPLETE = ("stop", "length")


class EngineSettings(AdmissionSettings, ResidencySettings, Protocol):
    """The options it reads."""

    @property
    def scheduling_policy(self) -> str: ...
    @property
    def lora_max_overtakes(self) -> int: ...


class Engine:
    """Runs sequences, as `Admission` takes them in, `Waiting` orders them and `Residency` lets them start.

    `write` makes the reply of a sequence at the moment it is given a slot. Time is passed in, in monotonic
    seconds; `seconds` tells it anew, to see how long writing took. `faults` collects what sinks and `write`
    raised, for the caller to log and clear. Without a `cache` there is no bound to what sequences hold.
    """

    def __init__(
        self,
        settings: EngineSettings,
        pacing: Pacing,
        write: Callable[[Ask], Reply],
        stats: Stats,
        seconds: Callable[[], float],
        cache: KvCache | None = None,
    ) -> None:
        self.stats = stats
        self.cache = cache
        self._blocks = None if cache is None else Blocks(cache, stats)
        #: Whether the last pass revealed anything.
        self._revealing = False
        self.pacing = pacing
        self.residency = Residency(settings)
        self.faults: list[tuple[Sequence, Exception]] = []
        self._admission = Admission(settings, stats)
        self._max_num_seqs = settings.max_num_seqs
        #: How many may run: none while admission is held.
        self._slots = settings.max_num_seqs
        self._write = write
        self._seconds = seconds
        #: How long this turn's starts took: what a client may ask for takes milliseconds to write.
        self._writing = 0.0
        #: Whether some were not started for want of that time.
        self._interrupted = False
        self._by_priority = settings.scheduling_policy == "priority"
        self._waiting = Waiting(self._by_priority, settings.lora_max_overtakes)
        self._running: dict[Sequence, None] = {}
        self._admitting = False
        # Looked at in every pass.
        self._gaps = stats.inter_token_latency.unsettled

    def submit(self, sequences: Collection[Sequence], now: float) -> None:
        """Take all of one request's sequences, to start now or to wait. Reveals nothing.

        Raises QueueFull, and takes none, when they do not all find a slot or a place in the queue, and
        Overloaded when they would exceed a limit.
        """
        waiting = self._waiting.length
        unfinished = self.stats.running + waiting
        if len(sequences) > 1:
            self._admission.take(sequences, unfinished)
        else:
            (sequence,) = sequences
            self._admission.take_one(sequence.prompt_tokens, unfinished)
            if (
                not waiting
                and unfinished < self._slots
                and not self._admitting
                and self._writing < MOST_WRITING
                and sequence.ask.is_easy
                and (sequence.adapter is None or self.residency.can_start(sequence.adapter))
            ):
                # Nearly every request: no queue to go through.
                sequence.arrival = now
                if self._start(sequence, now):
                    return
        for sequence in sequences:
            sequence.arrival = now
            self._waiting.add(sequence)
            if sequence.adapter is not None:
                self._note_adapters(now)
        self._admit(now)

    def abort(self, sequence: Sequence, now: float, reason: str = "abort") -> None:
        """End `sequence` without a word to its sink; its slot or its place in the queue is free at once."""
        if sequence.finish_reason is None:
            self._end(sequence, reason, now)
            self._admit(now)

    def cut_short(self, sequences: Iterable[Sequence], now: float) -> None:
        """End `sequences` as they stand: each sink is told once more, with finish reason `abort`.

        Their replies are complete then, with as many tokens as were revealed.
        """
        admitting, self._admitting = self._admitting, True
        try:
            for sequence in sequences:
                if sequence.finish_reason is None:
                    self._end(sequence, "abort", now)
                    if sequence.reply is None:
                        sequence.scheduled_at = now
                    sequence.reply = CutReply(sequence.reply, sequence.revealed)
                    self._tell(sequence, now)
        finally:
            self._admitting = admitting
        self._admit(now)

    def hold(self, now: float) -> None:
        """Start nothing until `resume`; what runs goes on.

        What comes waits; slots that stay free count as places in the queue.
        """
        self._slots = 0
        self.pacing.thaw(now)

    def freeze(self, now: float) -> None:
        """Start and reveal nothing until `resume`; deadlines move by as long as that takes."""
        self._slots = 0
        self.pacing.freeze(now)

    def resume(self, now: float) -> None:
        """Go on after `hold` or `freeze`."""
        self._slots = self._max_num_seqs
        self.pacing.thaw(now)
        self._admit(now)

    def advance(self, now: float) -> float | None:
        """Reveal every token due at `now`; returns the next deadline, or None when nothing runs."""
        stats = self.stats
        before = stats.prompt_tokens - stats.cached_tokens + stats.generation_tokens
        self.pacing.advance(now, self._reveal, self._count_running)
        done = stats.prompt_tokens - stats.cached_tokens + stats.generation_tokens - before
        if done:
            stats.pass_tokens.observe(done)
        self._revealing = done > 0
        if len(self._gaps) > MANY:
            stats.settle()
        return self.next_deadline()

    def next_deadline(self) -> float | None:
        """The earliest instant at which there is something to do, or None."""
        if self._interrupted and self._waiting and self.stats.running < self._slots:
            return 0.0  # as soon as there is a turn
        return self.pacing.next_deadline()

    def retime(self, now: float) -> None:
        """Latencies have changed: what is not due yet is due by the new ones."""
        self.pacing.retime(now, self.stats.running)

    def turn(self, now: float) -> None:
        """Others have had their turn: start what there was no time for in the last one."""
        self._writing = 0.0
        if self._waiting:
            self._admit(now)

    def check_prompts(self, lengths: list[int]) -> None:
        """Raise Overloaded for prompts of so many tokens, which are done at once and never submitted."""
        self._admission.check_prompts(lengths, self.stats.running + self._waiting.length)

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens of what has been submitted and has had no first token."""
        return self._admission.prefill_tokens

    @property
    def idle(self) -> bool:
        """Nothing runs and nothing waits."""
        return not self._running and not self._waiting

    @property
    def running(self) -> Collection[Sequence]:
        """What holds a slot, in the order in which it was given one."""
        return self._running.keys()

    @property
    def sequences(self) -> list[Sequence]:
        """What runs, and then what waits, in the order of arrival."""
        return [*self._running, *self._waiting]

    @property
    def waiting_adapters(self) -> Iterable[Adapter]:
        """The adapters that sequences wait for, whether others of them run or not."""
        return self._waiting.adapters

    def reset_prefix_cache(self, now: float, preempt: bool = False) -> bool:
        """Forget the blocks of finished sequences; False, and nothing is forgotten, while others are held.

        With `preempt` those that run are sent back to the queue before.
        """
        if self.cache is None:
            return True
        if preempt:
            for sequence in reversed(list(self._running)):
                self._preempt(sequence, now)
        done = self.cache.clear()
        self.stats.prefix_cache_clears += done
        self._admit(now)
        return done

    def announces_before(self, now: float) -> bool:
        """Whether there is something to tell of KV blocks before what is due `now`: steps end that did it."""
        if self.cache is None or not self.cache.records:
            return False
        deadline = self.pacing.next_deadline()
        return deadline is not None and deadline <= now

    @property
    def events_due(self) -> bool:
        """Whether there is something to tell of KV blocks, and the step that did it is over (vLLM)."""
        return self.cache is not None and bool(self.cache.records) and (self._revealing or not self._running)

    def drain_events(self) -> list[Record]:
        """What happened to KV blocks since this was called last."""
        if self.cache is None:
            return []
        records, self.cache.records = self.cache.records, []
        return records

    def _note_adapters(self, now: float) -> None:
        self.stats.adapter_changes += 1
        self.stats.adapters_changed_at = now

    def _count_running(self) -> int:
        return self.stats.running

    def _start(self, sequence: Sequence, now: float) -> bool:
        """Have `sequence` run; it does not if there are too few free blocks for it."""
        if self._blocks is not None and not self._blocks.start(sequence):
            return False
        stats = self.stats
        begins = now
        sequence.running = True
        self._running[sequence] = None
        stats.running += 1
        if sequence.adapter is not None:
            begins = self.residency.take(sequence.adapter, now)
            self._note_adapters(now)
        if sequence.preemptions:
            sequence.resuming = True
            # To be noticed as it goes on.
            sequence.grows_at = sequence.revealed + 1
            self.pacing.begin(sequence, begins, stats.running)
            return True
        sequence.scheduled_at = now
        threshold = sequence.cache_hit_threshold
        if threshold is not None and sequence.cached_tokens < threshold * sequence.prompt_tokens:
            # Another server, which has more of the prompt in its cache, or a prefill elsewhere is to do it.
            self._end(sequence, "cache_threshold", now)
            sequence.reply = CutReply(None, 0)
            self._tell(sequence, now)
            return True
        if sequence.remote_prefill is not None:
            stats.transfers.look_up(sequence.prompt_tokens - sequence.cached_tokens)
        try:
            sequence.reply = self._write(sequence.ask)
            self.pacing.begin(sequence, begins, stats.running)
        except Exception as fault:
            self.faults.append((sequence, fault))
            self._end(sequence, "error", now)
            self._tell(sequence, now)
        return True

    def _preempt(self, sequence: Sequence, now: float) -> None:
        """Send `sequence` back to the queue, before all others, without blocks: it computes them anew."""
        assert self._blocks is not None
        stats = self.stats
        stats.preemptions += 1
        sequence.preemptions += 1
        remote = sequence.remote_prefill
        if remote is not None and not sequence.revealed:
            # What was read is lost, and is computed here.
            remote.lost, remote.fails = True, False
        self.pacing.withdraw(sequence)
        self._blocks.leave(sequence, complete=False)
        self._stop_running(sequence, now)
        self._waiting.add_first(sequence)
        stats.waiting = len(self._waiting)
        stats.deferred = self._waiting.deferred

    def _stop_running(self, sequence: Sequence, now: float) -> None:
        sequence.running = False
        del self._running[sequence]
        self.stats.running -= 1
        if sequence.adapter is not None:
            self.residency.release(sequence.adapter)
            self._note_adapters(now)

    def _grow(self, sequence: Sequence, now: float) -> None:
        """Have blocks for what was revealed, if need be from those that started last (vLLM)."""
        blocks = self._blocks
        assert blocks is not None
        sequence.resuming = False
        while not blocks.grow(sequence):
            if len(self._running) == 1:
                blocks.stop_growing(sequence)
                return
            victim = self._victim()
            self._preempt(victim, now)
            if victim is sequence:
                return

    def _victim(self) -> Sequence:
        """Which one is to make room."""
        if self._by_priority:
            return max(self._running, key=lambda sequence: (sequence.priority, sequence.arrival))
        return next(reversed(self._running))

    def _admit(self, now: float) -> None:
        if self._admitting:
            return  # called by a sink; the loop below goes on when it returns
        stats = self.stats
        waiting = self._waiting
        self._admitting = True
        before = self._seconds()
        try:
            while waiting and stats.running < self._slots:
                self._interrupted = self._writing >= MOST_WRITING
                if self._interrupted:
                    break
                sequence = waiting.pop(self.residency.can_start)
                stats.waiting = len(waiting)
                if sequence is None:
                    break  # all that wait need adapters that have no room yet
                if not self._start(sequence, now):
                    # Nor does anything behind it, or it might wait for ever (vLLM).
                    waiting.add(sequence)
                    break
                after = self._seconds()
                self._writing += after - before
                before = after
        finally:
            stats.waiting = len(waiting)
            stats.deferred = waiting.deferred
            self._admitting = False

    def _reveal(self, sequence: Sequence, tokens: int, now: float) -> None:
        stats = self.stats
        reply = sequence.reply
        assert reply is not None
        if not tokens and sequence.in_tail:
            # What follows the last token is done.
            self._complete(sequence, reply.finish_reason, now)
            return
        revealed = sequence.revealed
        if revealed:
            stats.inter_token_latency.observe(now - sequence.last_token_at)
        else:
            remote = sequence.remote_prefill
            if remote is not None and not remote.lost and not self._transferred(sequence, remote, now):
                return
            sequence.first_token_at = now
            stats.time_to_first_token.observe(now - sequence.arrival)
            self._admission.prefill_tokens -= sequence.prompt_tokens
            stats.prompt_tokens += sequence.prompt_tokens
            if sequence.cached_tokens:
                stats.cached_tokens += sequence.cached_tokens
                stats.host.loaded += sequence.host_tokens
        if tokens > 1:
            # Tokens that leave together have no gap between them.
            stats.inter_token_latency.zeros += tokens - 1
        sequence.last_token_at = now
        stats.generation_tokens += tokens
        sequence.revealed = revealed = revealed + tokens
        if revealed < reply.total or sequence.tail:
            if revealed >= sequence.grows_at:
                self._grow(sequence, now)
            # `_tell`, but at once: this is nearly every token.
            try:
                sequence.sink.reveal(sequence)
            except Exception as fault:
                self._note(sequence, fault, now)
            return
        self._complete(sequence, reply.finish_reason, now)

    def _transferred(self, sequence: Sequence, remote: RemotePrefill, now: float) -> bool:
        """Count a transfer that is over; whether the first token follows at once."""
        stats = self.stats
        tokens = sequence.prompt_tokens - sequence.cached_tokens
        if not remote.fails:
            stats.transfers.succeed(now - remote.began, tokens)
            stats.cached_tokens += tokens
            return True
        stats.transfers.failed += 1
        remote.fails = False
        remote.lost = True
        if remote.recomputes:
            stats.transfers.miss(tokens)
        else:
            self._end(sequence, "error", now)
            self._tell(sequence, now)
            self._admit(now)
        return False

    def _complete(self, sequence: Sequence, reason: str, now: float) -> None:
        """Its reply was revealed to its end, which is stop or length."""
        stats = self.stats
        sequence.finish_reason = reason
        if self._blocks is not None:
            self._blocks.leave(sequence, True)
        self._stop_running(sequence, now)
        stats.finished[reason] += 1
        family = sequence.family
        if family is not None:
            family.leave(sequence)
            if not family.left:
                stats.count_family(family.n, family.longest)
        # All of it is known by now, and must be counted before the reply's last byte leaves.
        records = stats.records
        records.append(
            (
                sequence.arrival,
                sequence.scheduled_at,
                sequence.first_token_at,
                sequence.last_token_at,
                now,
                sequence.prompt_tokens,
                sequence.cached_tokens if sequence.remote_prefill is None else _told_cached(sequence),
                sequence.revealed,
                sequence.ask.max_tokens,
                family is None,
                sequence.preemptions,
            )
        )
        if len(records) > MANY:
            stats.settle()
        self._tell(sequence, now)
        if self._waiting.length:
            self._admit(now)

    def _tell(self, sequence: Sequence, now: float) -> None:
        try:
            sequence.sink.reveal(sequence)
        except Exception as fault:
            self._note(sequence, fault, now)

    def _note(self, sequence: Sequence, fault: Exception, now: float) -> None:
        """A sink failed: its sequence goes no further."""
        self.faults.append((sequence, fault))
        if sequence.finish_reason is None:
            self._end(sequence, "error", now)
            self._admit(now)

    def _end(self, sequence: Sequence, reason: str, now: float) -> None:
        """It goes no further, whatever there is of its reply."""
        stats = self.stats
        sequence.finish_reason = reason
        if not sequence.revealed:
            # Without a first token.
            self._admission.prefill_tokens -= sequence.prompt_tokens
        if self._blocks is not None:
            self._blocks.leave(sequence, complete=False)
        if sequence.running:
            self._stop_running(sequence, now)
            if sequence.reply is not None:
                self.pacing.drop(sequence)
        elif sequence.waiting:
            self._waiting.remove(sequence)
            stats.waiting = len(self._waiting)
            if sequence.adapter is not None:
                self._note_adapters(now)
        if reason == "cache_threshold":
            stats.below_threshold += 1
        else:
            stats.finished[reason] += 1
        if sequence.family is not None:
            sequence.family.leave(sequence)
        stats.settle()  # those that end early leave no record


def _told_cached(sequence: Sequence) -> int:
    """Prompt tokens that were not computed, as vLLM counts them where another server was to prefill.

    Those that this server found cached, if it was told; else all that were read from it.
    """
    remote = sequence.remote_prefill
    assert remote is not None
    if remote.cached is not None:
        return min(remote.cached, sequence.prompt_tokens)
    return sequence.cached_tokens if remote.lost else sequence.prompt_tokens
