"""Whatever clients, sinks and time do, slots, queue and counters stay right."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from llmdsim.engine.admission import Overloaded, QueueFull
from llmdsim.engine.sequence import Family, Sequence
from llmdsim.engine.stats import Histogram
from llmdsim.engine.transfers import RemotePrefill
from tests.engine.rig import TICK, Rig, log

#: What a sink does when told, beside noting it.
ACTIONS = ("raise", "submit", "abort itself", "abort another", "abort itself and raise")


@dataclass
class Plan:
    """What one sequence will do: `deeds` maps the number of a sink's call to an action.

    `remote` is what becomes of its prefill elsewhere, if there was one: read, computed here, or lost.
    """

    total: int
    reason: str
    unwritable: bool
    deeds: dict[int, str]
    remote: str = ""


@dataclass(eq=False)
class Track:
    """One accepted sequence, as seen from outside."""

    number: int
    plan: Plan
    sequence: Sequence
    family: list[Track]
    aborted: bool = False
    raised: bool = False
    last_calls: int = 0

    @property
    def waits_for_a_token(self) -> bool:
        return not self.ended and not self.sequence.revealed

    @property
    def ended(self) -> bool:
        return self.aborted or self.raised or self.last_calls > 0


#: Sampled, not drawn from ranges: small numbers alone would leave the queue empty and the sinks idle.
plans = st.builds(
    Plan,
    total=st.sampled_from([4, 6, 3, 2, 1, 0]),
    reason=st.sampled_from(["stop", "length"]),
    unwritable=st.sampled_from([False] * 7 + [True]),
    deeds=st.one_of(st.just({}), st.dictionaries(st.integers(1, 4), st.sampled_from(ACTIONS), min_size=1)),
    remote=st.sampled_from(["", "", "", "read", "computed", "lost"]),
)
busy_plans = st.builds(
    Plan,
    total=st.sampled_from([5, 3]),
    reason=st.just("stop"),
    unwritable=st.just(False),
    deeds=st.builds(lambda call, action: {call: action}, st.integers(1, 3), st.sampled_from(ACTIONS)),
)


@dataclass
class Expected:
    """What must have been counted."""

    finished: Counter[str] = field(default_factory=Counter)
    faults: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    read_tokens: int = 0


class EngineMachine(RuleBasedStateMachine):
    accepted = Bundle("accepted")

    @initialize(
        slots=st.integers(1, 4),
        limit=st.integers(0, 5),
        max_reqs=st.sampled_from([None, None, 4, 0]),
        max_tokens=st.sampled_from([None, None, 11, 5]),
        ttft=st.sampled_from([0.0, TICK, 8 * TICK]),
        itl=st.sampled_from([0.0, TICK, 3 * TICK]),
        std_dev=st.sampled_from([0.0, TICK]),
        factor=st.sampled_from([1.0, 2.5]),
    )
    def build(
        self,
        slots: int,
        limit: int,
        max_reqs: int | None,
        max_tokens: int | None,
        ttft: float,
        itl: float,
        std_dev: float,
        factor: float,
    ) -> None:
        self.slots = slots
        self.limit = limit
        self.max_reqs = inf if max_reqs is None else max_reqs
        self.max_tokens = inf if max_tokens is None else max_tokens
        self.rig = Rig(
            slots,
            limit,
            max_num_queued_reqs=max_reqs,
            max_num_queued_tokens=max_tokens,
            time_to_first_token=ttft,
            inter_token_latency=itl,
            inter_token_latency_std_dev=std_dev,
            kv_cache_transfer_latency=2 * TICK,
            time_factor_under_load=factor,
        )
        self.tracks: dict[Sequence, Track] = {}
        self.expected = Expected()
        self.seen: list[float] = []
        #: Why requests were refused, and why they ought to have been.
        self.refusals: list[tuple[str, str]] = []
        self.held = self.frozen = False

    # --- what happens

    @rule(target=accepted, made=st.lists(plans, min_size=1, max_size=4))
    def submit(self, made: list[Plan]) -> object:
        return multiple(*self.offer(made))

    @rule(target=accepted, made=st.lists(busy_plans, min_size=2, max_size=4))
    def submit_much(self, made: list[Plan]) -> object:
        return self.submit(made)

    @rule(track=accepted)
    def abort(self, track: Track) -> None:
        self.abort_one(track)

    @rule(track=consumes(accepted))
    def disconnect(self, track: Track) -> None:
        for each in track.family:
            self.abort_one(each)

    @rule(ticks=st.integers(0, 20))
    def advance(self, ticks: int) -> None:
        tokens = self.rig.stats.generation_tokens
        deadline = self.rig.go(ticks * TICK)
        assert (deadline is None) == (self.rig.stats.running == 0 or self.frozen)
        assert not self.frozen or self.rig.stats.generation_tokens == tokens

    @rule()
    def advance_to_the_next_deadline(self) -> None:
        deadline = self.rig.pacing.next_deadline()
        if deadline is not None:
            self.advance_to(deadline)

    @rule(every=st.sampled_from([3, 2, 2, 2, 1]))
    def cut_short(self, every: int) -> None:
        live = [track for track in self.tracks.values() if not track.ended][::every]
        # A sink may abort a sibling before its turn: no matter, an abort is an abort.
        self.rig.engine.cut_short([track.sequence for track in live], self.rig.now)
        assert all(track.ended and track.sequence.finish_reason == "abort" for track in live)

    @rule(
        ttft=st.sampled_from([0.0, TICK, 60.0]),
        itl=st.sampled_from([0.0, TICK, 60.0]),
        transfer=st.sampled_from([0.0, 4 * TICK]),
    )
    def change_latencies(self, ttft: float, itl: float, transfer: float) -> None:
        self.rig.change(time_to_first_token=ttft, inter_token_latency=itl, kv_cache_transfer_latency=transfer)

    @rule()
    def hold(self) -> None:
        self.held, self.frozen = True, False
        self.rig.engine.hold(self.rig.now)

    @rule()
    def freeze(self) -> None:
        self.held = self.frozen = True
        self.rig.engine.freeze(self.rig.now)

    @rule()
    def resume(self) -> None:
        self.held = self.frozen = False
        self.rig.engine.resume(self.rig.now)

    def advance_to(self, deadline: float) -> None:
        self.rig.now = max(self.rig.now, deadline)
        self.rig.engine.advance(self.rig.now)

    # --- what clients and sinks do

    def offer(self, made: list[Plan]) -> list[Track]:
        """Submit one request; returns no tracks when it is refused."""
        rig = self.rig
        family = Family(len(made))
        tracks: list[Track] = []
        for index, plan in enumerate(made):
            fault = KeyError() if plan.unwritable else None
            sequence = rig.make(
                plan.total, self.told, index=index, family=family, finish_reason=plan.reason, fault=fault
            )
            if plan.remote:
                fails = plan.remote != "read"
                sequence.remote_prefill = RemotePrefill(None, fails, plan.remote == "computed")
            tracks.append(Track(len(self.tracks), plan, sequence, tracks))
            self.tracks[sequence] = tracks[-1]
        before = (rig.stats.running, rig.stats.waiting, dict(rig.stats.finished), len(rig.started))
        refusal = self.refusal(len(made), tracks)
        try:
            rig.submit(*[track.sequence for track in tracks])
        except (QueueFull, Overloaded) as reason:
            self.refusals.append((getattr(reason, "limit", "full"), refusal))
            after = (rig.stats.running, rig.stats.waiting, dict(rig.stats.finished), len(rig.started))
            assert after == before
            for track in tracks:
                assert not log(track.sequence).calls
                del self.tracks[track.sequence]
            self.expected.refused[refusal] += 1
            return []
        assert not refusal
        return tracks

    def refusal(self, new: int, tracks: list[Track]) -> str:
        """Why so many sequences would be refused, if they would."""
        live = [track for track in self.tracks.values() if not track.ended and track not in tracks]
        if len(live) + new > self.max_reqs:
            return "max_num_queued_reqs"
        if sum(track.sequence.prompt_tokens for track in live if track.waits_for_a_token) >= self.max_tokens:
            return "max_num_queued_tokens"
        return "full" if len(live) + new > self.slots + self.limit else ""

    def abort_one(self, track: Track) -> None:
        if not track.ended:
            self.expected.finished["abort"] += 1
            track.aborted = True
        self.rig.abort(track.sequence)

    def told(self, sequence: Sequence) -> None:
        """The sink of every sequence."""
        track = self.tracks[sequence]
        plan = track.plan
        calls = log(sequence).calls
        assert not track.ended, "told after the end"
        assert self.rig.stats.running <= self.slots
        reason = sequence.finish_reason
        if reason is not None:
            track.last_calls += 1
            self.expected.finished[reason] += 1
            if reason == "error":
                assert plan.unwritable or plan.remote == "lost"
                self.expected.faults += plan.unwritable
            elif reason != "abort":
                assert sequence.revealed == plan.total
                assert reason == plan.reason
                if plan.remote == "read":
                    self.expected.read_tokens += sequence.prompt_tokens
        else:
            assert calls[-1][1] > (calls[-2][1] if len(calls) > 1 else 0)
            assert sequence.revealed < plan.total
        self.act(track, plan.deeds.get(len(calls), ""))

    def act(self, track: Track, deed: str) -> None:
        if deed == "submit":
            self.offer([Plan(2, "stop", False, {}), Plan(1, "length", False, {})])
        elif deed == "abort another":
            others = [each for each in self.tracks.values() if each is not track and not each.ended]
            if others:
                self.abort_one(others[track.number % len(others)])
        elif deed.startswith("abort itself"):
            self.abort_one(track)
        if deed.endswith("raise"):
            self.expected.faults += 1
            if not track.ended:
                track.raised = True
                self.expected.finished["error"] += 1
            raise ValueError

    # --- what holds

    @invariant()
    def gauges_are_right(self) -> None:
        stats = self.rig.stats
        started = set(self.rig.started)
        live = [track for track in self.tracks.values() if not track.ended]
        assert stats.running == sum(track.sequence in started for track in live)
        assert stats.waiting == sum(track.sequence not in started for track in live)
        assert stats.running <= self.slots
        assert stats.running + stats.waiting <= self.slots + self.limit
        assert not stats.waiting or stats.running == self.slots or self.held, (
            "somebody waits beside a free slot"
        )
        assert self.rig.engine.idle == (not live)
        backlog = [track.sequence.prompt_tokens for track in live if track.waits_for_a_token]
        assert self.rig.engine.prefill_tokens == sum(backlog)

    @invariant()
    def starts_are_in_the_order_of_arrival(self) -> None:
        numbers = [self.tracks[sequence].number for sequence in self.rig.started]
        assert numbers == sorted(set(numbers))

    @invariant()
    def counters_are_right(self) -> None:
        stats = self.rig.stats
        assert {reason: n for reason, n in stats.finished.items() if n} == dict(self.expected.finished)
        assert len(self.rig.engine.faults) == self.expected.faults
        assert stats.generation_tokens == sum(track.sequence.revealed for track in self.tracks.values())
        good = stats.finished["stop"] + stats.finished["length"]
        assert stats.e2e_latency.count == stats.request_generation_tokens.count == good
        computed = stats.prefill_computed_tokens.sum
        assert computed == stats.request_prompt_tokens.sum - self.expected.read_tokens
        assert stats.request_preemptions.count == good
        assert stats.cached_tokens == stats.transfers.loaded
        computed = stats.prompt_tokens - stats.cached_tokens
        assert stats.pass_tokens.sum == computed + stats.generation_tokens
        refused = {"full": stats.refused, **stats.rejected}
        assert {reason: n for reason, n in refused.items() if n} == dict(self.expected.refused)
        assert all(told == expected for told, expected in self.refusals)

    @invariant()
    def counters_never_go_back(self) -> None:
        stats = self.rig.stats
        now = [stats.prompt_tokens, stats.generation_tokens, stats.refused, *stats.finished.values()]
        now += stats.rejected.values()
        for name in stats.__slots__:
            counted = getattr(stats, name)
            if isinstance(counted, Histogram):
                now += [*accumulate(counted.counts), counted.sum]
        assert all(later >= earlier for later, earlier in zip(now, self.seen or now, strict=True))
        self.seen = now

    def teardown(self) -> None:
        if not hasattr(self, "rig"):
            return
        self.resume()
        self.rig.drain(passes=2000)
        self.gauges_are_right()
        self.counters_are_right()
        self.starts_are_in_the_order_of_arrival()
        stats = self.rig.stats
        assert (stats.running, stats.waiting) == (0, 0)
        assert self.rig.engine.idle
        assert self.rig.engine.prefill_tokens == 0
        assert sum(stats.finished.values()) == len(self.tracks)
        for track in self.tracks.values():
            # One last call each, but for those whom nobody listens to any more.
            assert track.last_calls == (0 if track.aborted or track.raised else 1)
            revealed = track.sequence.revealed
            assert (
                revealed == track.plan.total
                or track.aborted
                or track.raised
                or track.plan.unwritable
                or track.plan.remote == "lost"
                or (track.sequence.finish_reason == "abort")
            )


EngineMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestEngine = EngineMachine.TestCase
