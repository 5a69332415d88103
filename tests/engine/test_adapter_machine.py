"""Whatever clients and operators do, slots, queue, memory and gauges of adapters add up, and come to zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from llmdsim.engine.adapters import Adapter, Adapters
from llmdsim.engine.admission import QueueFull
from llmdsim.engine.sequence import Sequence
from llmdsim.metrics import Collector, lora_blocks
from tests.engine.rig import TICK, Rig, log
from tests.metrics.pages import samples

NAMES = ("a", "b", "c", "d")
#: Whom a request is for; the base model and two of the adapters most of all.
TARGETS = (*NAMES, "a", "b", "a", "", "")
LOAD_TIME = 16 * TICK


@dataclass(eq=False)
class Track:
    """One sequence, and what the rules say of it."""

    number: int
    sequence: Sequence
    #: Those of other adapters, that came later, which were started since it was the first to be passed over.
    overtaken: int = 0

    @property
    def adapter(self) -> Adapter | None:
        return self.sequence.adapter


class AdapterMachine(RuleBasedStateMachine):
    @initialize(
        slots=st.integers(1, 5),
        max_loras=st.integers(1, 3),
        more_cpu=st.integers(0, 2),
        bound=st.sampled_from([-1, 0, 1, 3]),
        load_time=st.sampled_from([0.0, LOAD_TIME]),
        ttft=st.sampled_from([0.0, 4 * TICK]),
        by_priority=st.sampled_from([False, False, True]),
    )
    def build(
        self,
        slots: int,
        max_loras: int,
        more_cpu: int,
        bound: int,
        load_time: float,
        ttft: float,
        by_priority: bool,
    ) -> None:
        self.slots, self.max_loras, self.bound = slots, max_loras, bound
        self.max_cpu_loras = max_loras + more_cpu
        self.load_time, self.by_priority = load_time, by_priority
        self.rig = Rig(
            slots,
            20,
            max_loras=max_loras,
            max_cpu_loras=self.max_cpu_loras,
            lora_max_overtakes=bound,
            scheduling_policy="priority" if by_priority else "fcfs",
            lora_load_time=load_time,
            time_to_first_token=ttft,
            inter_token_latency=2 * TICK,
        )
        self.registry = Adapters()
        for name in NAMES[:2]:
            self.load(name)
        self.tracks: dict[Sequence, Track] = {}
        self.rig_write, self.rig.engine._write = self.rig.engine._write, self.write
        self.held = self.frozen = False
        self.page = Collector(
            lora_blocks(self.rig.engine, max_loras, {}, lambda: self.rig.now, lambda: True, as_vllm=False)
        )

    # --- what happens

    @rule(
        model=st.sampled_from(TARGETS),
        choices=st.sampled_from([1, 1, 1, 2, 3]),
        total=st.sampled_from([1, 3, 8]),
        priority=st.integers(-1, 1),
    )
    def submit(self, model: str, choices: int, total: int, priority: int) -> None:
        adapter = self.registry.get(model)
        if model and adapter is None:
            return
        made = [self.rig.make(total, self.told, adapter=adapter, priority=priority) for _ in range(choices)]
        for sequence in made:
            self.tracks[sequence] = Track(len(self.tracks), sequence)
        try:
            self.rig.submit(*made)
        except QueueFull:
            for sequence in made:
                del self.tracks[sequence]

    @rule(pick=st.integers(0, 99))
    def abort(self, pick: int) -> None:
        if self.live:
            self.rig.abort(self.live[pick % len(self.live)].sequence)

    @rule(ticks=st.integers(0, 12))
    def advance(self, ticks: int) -> None:
        self.rig.go(ticks * TICK)

    @rule()
    def advance_to_the_next_deadline(self) -> None:
        deadline = self.rig.pacing.next_deadline()
        if deadline is not None:
            self.rig.now = max(self.rig.now, deadline)
            self.rig.go()

    @rule(name=st.sampled_from(NAMES))
    def load(self, name: str) -> None:
        """For the first time, or in place."""
        self.rig.engine.residency.load(self.registry.load(name, "/", "m"))

    @rule(name=st.sampled_from(NAMES))
    def unload(self, name: str) -> None:
        if self.registry.get(name) is not None:
            self.rig.engine.residency.unload(self.registry.unload(name))

    @rule()
    def hold(self) -> None:
        self.held, self.frozen = True, False
        self.rig.engine.hold(self.rig.now)

    @rule()
    def freeze(self) -> None:
        self.held = self.frozen = True
        self.rig.engine.freeze(self.rig.now)

    @precondition(lambda self: self.held)
    @rule()
    def resume(self) -> None:
        self.held = self.frozen = False
        self.rig.engine.resume(self.rig.now)

    def told(self, sequence: Sequence) -> None:
        assert sequence in self.tracks

    # --- what is seen

    @property
    def live(self) -> list[Track]:
        return [track for track in self.tracks.values() if track.sequence.finish_reason is None]

    @property
    def running(self) -> list[Track]:
        return [track for track in self.live if track.sequence.running]

    @property
    def waiting(self) -> list[Track]:
        """In their order."""
        return sorted((track for track in self.live if track.sequence.waiting), key=self.order)

    def order(self, track: Track) -> tuple[int, int]:
        return (track.sequence.priority if self.by_priority else 0, track.number)

    # --- what holds

    @invariant()
    def gauges_are_right(self) -> None:
        stats = self.rig.stats
        assert (stats.running, stats.waiting) == (len(self.running), len(self.waiting))
        assert stats.running <= self.slots
        assert 0 <= stats.deferred <= sum(track.adapter is not None for track in self.waiting)
        assert self.rig.engine.idle == (not self.live)

    @invariant()
    def no_more_adapters_run_than_there_are_slots(self) -> None:
        running = {track.adapter for track in self.running} - {None}
        residency = self.rig.engine.residency
        assert set(residency.running) == running
        assert len(running) <= self.max_loras
        assert set(self.rig.engine.waiting_adapters) == {track.adapter for track in self.waiting} - {None}

    @invariant()
    def memory_adds_up(self) -> None:
        residency = self.rig.engine.residency
        slots, cpu = residency.slots, residency.loaded_at
        assert set(residency.running) <= set(slots) <= set(cpu)
        assert len(set(slots.values())) == len(slots)
        assert all(1 <= slot <= self.max_loras for slot in slots.values())
        assert len(cpu) <= self.max_cpu_loras
        assert all(adapter.known or adapter in residency.running for adapter in cpu)
        assert all(at <= self.rig.now + self.load_time for at in cpu.values())

    @invariant()
    def nobody_who_may_start_waits_beside_a_free_slot(self) -> None:
        if self.held or self.rig.stats.running == self.slots:
            return
        can_start = self.rig.engine.residency.can_start
        waiting = self.waiting
        able = [track for track in waiting if track.adapter is None or can_start(track.adapter)]
        passed = next((track for track in waiting if track not in able), None)
        for track in able:
            # The bound alone may hold it back.
            assert passed is not None
            assert track.adapter is not None
            assert self.order(passed) < self.order(track)
            assert self.bound != -1
        assert self.rig.stats.deferred >= len(waiting) - len(able)

    def write(self, ask: Any) -> Any:
        """What the engine calls at each start; what is wrong becomes a fault of the engine's."""
        reply = self.rig_write(ask)
        new = self.tracks[self.rig.started[-1]]
        behind = [track for track in self.waiting if self.order(track) < self.order(new)]
        assert all(track.adapter is not new.adapter for track in behind), "order within a line"
        assert all(track.adapter is not None for track in behind), "nothing overtakes the base model"
        if new.adapter is not None and behind:
            behind[0].overtaken += 1
            assert self.bound == -1 or behind[0].overtaken <= self.bound
        return reply

    @invariant()
    def starts_were_in_order_and_overtook_no_more_than_they_may(self) -> None:
        for _, fault in self.rig.engine.faults:
            raise fault

    @invariant()
    def the_page_tells_it(self) -> None:
        running = {track.adapter.name for track in self.running if track.adapter is not None}
        waiting = {track.adapter.name for track in self.waiting if track.adapter is not None} - running
        (info,) = (each for each in samples(self.page) if each.name == "vllm:lora_requests_info")
        assert info.labels == {
            "max_lora": str(self.max_loras),
            "running_lora_adapters": ",".join(sorted(running)),
            "waiting_lora_adapters": ",".join(sorted(waiting)),
        }

    def teardown(self) -> None:
        if not hasattr(self, "page"):
            return
        self.resume()
        self.rig.drain(passes=2000)
        self.starts_were_in_order_and_overtook_no_more_than_they_may()
        self.gauges_are_right()
        self.memory_adds_up()
        self.the_page_tells_it()
        stats, engine = self.rig.stats, self.rig.engine
        assert not self.live
        assert (stats.running, stats.waiting, stats.deferred) == (0, 0, 0)
        assert not engine.residency.running
        assert not list(engine.waiting_adapters)
        for track in self.tracks.values():
            ended = log(track.sequence).reasons[-1:]
            assert ended == ["stop"] or track.sequence.finish_reason == "abort"
        for name in NAMES:
            self.unload(name)
        assert not engine.residency.slots
        assert not engine.residency.loaded_at


AdapterMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestAdapters = AdapterMachine.TestCase
