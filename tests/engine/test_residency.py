"""GPU slots and CPU memory of adapters, and how long they take to get there."""

from __future__ import annotations

from llmdsim.engine.adapters import Adapter, Adapters
from llmdsim.engine.residency import Residency
from tests.engine.rig import Rig, Settings, log


class Memory:
    """A residency with adapters `l1`, `l2`, ... of a registry; `now` is 100 unless told."""

    def __init__(self, max_loras: int, max_cpu_loras: int, load_time: float = 0.0, count: int = 6) -> None:
        self.settings = Settings(max_loras=max_loras, max_cpu_loras=max_cpu_loras, lora_load_time=load_time)
        self.residency = Residency(self.settings)
        self.registry = Adapters()
        self.known = [self.registry.load(f"l{number}", "/", "m") for number in range(1, count + 1)]

    def __getitem__(self, number: int) -> Adapter:
        return self.known[number - 1]

    def load(self, *numbers: int) -> None:
        for number in numbers:
            self.residency.load(self[number])

    def take(self, *numbers: int, now: float = 100.0) -> float:
        return [self.residency.take(self[number], now) for number in numbers][-1]

    def release(self, *numbers: int) -> None:
        for number in numbers:
            self.residency.release(self[number])

    def run(self, *numbers: int) -> None:
        for number in numbers:
            self.take(number)
            self.release(number)

    def unload(self, number: int) -> None:
        self.residency.unload(self.registry.unload(f"l{number}"))

    @property
    def slots(self) -> dict[str, int]:
        return {adapter.name: slot for adapter, slot in self.residency.slots.items()}

    @property
    def cpu(self) -> set[str]:
        return {adapter.name for adapter in self.residency.loaded_at}


def test_slots_are_numbered_from_one_and_the_lowest_free_one_is_taken() -> None:
    memory = Memory(3, 3)
    memory.take(1, 2, 3)
    assert memory.slots == {"l1": 1, "l2": 2, "l3": 3}
    memory.unload(1)
    memory.unload(2)
    memory.release(1, 2)
    assert memory.slots == {"l3": 3}
    memory.take(4)
    assert memory.slots == {"l3": 3, "l4": 1}


def test_an_adapter_keeps_its_slot_until_another_needs_it() -> None:
    memory = Memory(2, 4)
    memory.run(1, 2, 1)
    assert memory.slots == {"l1": 1, "l2": 2}
    memory.take(3)
    assert memory.slots == {"l1": 1, "l3": 2}, "l2 was used least recently"
    memory.take(1)
    assert memory.slots == {"l1": 1, "l3": 2}
    assert memory.cpu == {"l1", "l2", "l3"}


def test_a_slot_in_use_is_nobody_elses() -> None:
    memory = Memory(2, 4)
    memory.take(1)
    memory.run(2, 3, 2, 3, 4)
    assert memory.slots == {"l1": 1, "l4": 2}
    memory.take(2)
    assert not memory.residency.can_start(memory[3])
    assert memory.residency.can_start(memory[1])
    memory.load(3)
    assert memory.slots == {"l1": 1, "l2": 2}, "loading takes no slot that is in use"


def test_cpu_memory_keeps_the_most_recently_used() -> None:
    memory = Memory(1, 3)
    memory.load(1, 2, 3)
    memory.run(1)
    memory.load(4)
    assert memory.cpu == {"l1", "l3", "l4"}
    memory.run(3)
    memory.take(5)
    assert memory.cpu == {"l3", "l4", "l5"}


def test_what_runs_is_not_dropped_from_cpu_memory() -> None:
    memory = Memory(2, 2)
    memory.take(1, 2)
    memory.load(3)
    assert memory.cpu == {"l1", "l2"}, "all of it is in use: the new one does not stay"
    assert memory.slots == {"l1": 1, "l2": 2}
    memory.release(1)
    memory.load(3)
    assert memory.cpu == {"l2", "l3"}
    assert memory.slots == {"l3": 1, "l2": 2}


def test_modules_from_the_start_are_resident_as_far_as_there_is_room() -> None:
    memory = Memory(2, 4, load_time=1.0)
    memory.load(1, 2, 3, 4, 5)
    assert memory.cpu == {"l2", "l3", "l4", "l5"}
    assert memory.slots == {"l4": 2, "l5": 1}
    assert memory.take(3) == 100.0
    assert memory.take(1) == 101.0


def test_a_load_is_shared_and_happens_once() -> None:
    memory = Memory(2, 2, load_time=4.0)
    assert memory.take(1) == 104.0
    assert memory.take(1, now=103.0) == 104.0
    assert memory.take(2, now=103.0) == 107.0
    memory.release(1, 1)
    assert memory.take(1, now=103.5) == 104.0, "it goes on without those that began it"
    assert memory.take(1, now=105.0) == 105.0


def test_the_load_time_follows_the_configuration_and_the_speed() -> None:
    memory = Memory(2, 2)
    memory.settings.lora_load_time, memory.settings.speed = 8.0, 4.0
    memory.residency.configure(memory.settings)
    assert memory.take(1) == 102.0


def test_what_is_unloaded_frees_memory_at_once_or_when_its_last_sequence_ends() -> None:
    memory = Memory(2, 2, load_time=1.0)
    memory.load(1, 2)
    memory.take(1, 1)
    memory.unload(2)
    memory.unload(1)
    assert (memory.cpu, memory.slots) == ({"l1"}, {"l1": 1})
    memory.release(1)
    assert memory.cpu == {"l1"}
    memory.release(1)
    assert (memory.cpu, memory.slots) == (set(), {})
    # One that was still queued has to have it loaded again, and it leaves with that one.
    assert memory.take(1) == 101.0
    memory.release(1)
    assert memory.cpu == set()


def test_loading_in_place_is_no_trouble_to_what_runs() -> None:
    memory = Memory(1, 2, load_time=1.0)
    memory.take(1)
    memory.load(1)
    assert memory.take(1, now=100.5) == 101.0
    memory.release(1, 1)
    memory.load(1)
    assert (memory.cpu, memory.slots) == ({"l1"}, {"l1": 1})


# --- in the engine


def test_a_prefill_begins_when_the_adapter_is_loaded() -> None:
    one, two = (Adapters().load(name, "/", "m") for name in ("l1", "l2"))
    rig = Rig(slots=4, max_loras=2, lora_load_time=2.0, time_to_first_token=1.0, inter_token_latency=0.5)
    start = rig.now
    first = rig.add(2, adapter=one)
    rig.go(1.0)
    same = rig.add(adapter=one)
    other = rig.add(adapter=two)
    base = rig.add()
    assert rig.stats.running == 4
    rig.drain()
    times = [[time - start for time in log(each).token_times()] for each in (first, same, other, base)]
    assert times == [[3.0, 3.5], [3.0], [4.0], [2.0]]
    assert rig.stats.time_to_first_token.sum == 3.0 + 2.0 + 3.0 + 1.0
    assert rig.stats.prefill_time.sum == 3.0 + 2.0 + 3.0 + 1.0
    assert rig.stats.queue_time.sum == 0.0


def test_a_sequence_that_leaves_while_its_adapter_loads_frees_its_slot() -> None:
    one, two = (Adapters().load(name, "/", "m") for name in ("l1", "l2"))
    rig = Rig(slots=1, lora_load_time=2.0)
    first = rig.add(adapter=one)
    second = rig.add(adapter=two)
    rig.go(1.0)
    rig.abort(first)
    assert rig.started == [first, second]
    start = rig.now
    rig.drain()
    assert log(second).token_times() == [start + 2.0]
