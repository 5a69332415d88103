"""The order in which sequences of adapters are started: vLLM's rule, and its bound."""

from __future__ import annotations

from collections import Counter

import pytest

from llmdsim.engine.adapters import Adapter, Adapters
from llmdsim.engine.sequence import Sequence
from tests.engine.rig import Rig, log


def adapters(count: int) -> list[Adapter]:
    known = Adapters()
    return [known.load(f"l{number}", "/", "base") for number in range(1, count + 1)]


class Order:
    """Arrivals 62.5 ms apart, one for each digit, which is its adapter's; each runs for a second."""

    def __init__(self, slots: int, max_loras: int, arrivals: str, **more: int) -> None:
        self.rig = Rig(slots, max_loras=max_loras, time_to_first_token=1.0, **more)
        known = dict(zip("12345", adapters(5), strict=True))
        self.number: dict[Sequence, int] = {}
        self.finished: list[int] = []
        for number, digit in enumerate(arrivals):
            self.run_until(self.rig.now + 0.0625)
            made = self.rig.make(then=self.told, adapter=known[digit])
            self.number[made] = number
            self.rig.submit(made)
        self.rig.drain()
        assert self.rig.engine.idle

    def run_until(self, then: float) -> None:
        while (deadline := self.rig.pacing.next_deadline()) is not None and deadline <= then:
            self.rig.now = deadline
            self.rig.engine.advance(deadline)
        self.rig.now = then

    def told(self, sequence: Sequence) -> None:
        assert sequence.finish_reason == "stop"
        self.finished.append(self.number[sequence])

    @property
    def together(self) -> list[set[int]]:
        """Those that finished within half a second of each other."""
        by_number = {number: log(sequence).calls[-1][0] for sequence, number in self.number.items()}
        groups: list[set[int]] = []
        last = 0.0
        for number in self.finished:
            if by_number[number] - last > 0.5:
                groups.append(set())
            last = by_number[number]
            groups[-1].add(number)
        return groups


# --- known sequences of arrivals


def test_vector_one_slot_differs_from_llm_d_inference_sim_it_is_first_come_first_served() -> None:
    """With one slot nothing runs when it is given away, so any adapter can start: vLLM takes the first.

    llm-d-inference-sim prefers an adapter that is loaded: 0 1 5 2 6 3 7 4 8.
    """
    assert Order(1, 1, "112341234").finished == [0, 1, 2, 3, 4, 5, 6, 7, 8]


def test_vector_two_slots_and_one_adapter_at_a_time_holds() -> None:
    assert Order(2, 1, "11234234").together == [{0, 1}, {2, 5}, {3, 6}, {4, 7}]


@pytest.mark.parametrize("slots", [4, 5])
def test_vector_three_adapters_at_a_time_holds(slots: int) -> None:
    finished = Order(slots, 3, "11234512345").finished
    assert finished[:7] == [0, 1, 2, 3, 6, 7, 8]
    assert [set(finished[7:9]), set(finished[9:])] == [{4, 9}, {5, 10}]


def test_vector_five_adapters_at_a_time_differs_from_llm_d_inference_sim_the_fifth_may_start() -> None:
    """When 0 ends, 5 has the fifth adapter and comes first.

    llm-d-inference-sim passes it over for those whose adapter is loaded: 0 1 2 3 4 6 7 8 9 5 10.
    """
    assert Order(5, 5, "11234512345").finished == [*range(11)]


def test_vector_a_thousand_sequences_of_five_adapters_hold_all_slots_with_two() -> None:
    """llm-d-inference-sim tells all five as waiting; two of them run as well."""
    rig = Rig(12, 1000, max_loras=2, time_to_first_token=3.0)
    known = adapters(5)
    for number in range(1000):
        rig.add(adapter=known[number % 5])
    rig.go(2.0)
    assert (rig.stats.running, rig.stats.waiting) == (12, 988)
    assert set(rig.engine.residency.running) == set(known[:2])
    assert set(rig.engine.waiting_adapters) == set(known)
    rig.drain()
    stats = rig.stats
    assert (stats.finished["stop"], stats.running, stats.waiting, stats.deferred) == (1000, 0, 0, 0)
    assert not rig.engine.residency.running
    assert not list(rig.engine.waiting_adapters)


# --- the bound


def stream(rig: Rig, one: Adapter, times: int) -> None:
    """So many sequences of `one`, each of which comes before the one before it has ended."""
    for _ in range(times):
        rig.add(adapter=one)
        rig.go(0.75)


@pytest.mark.parametrize("bound", [0, 1, 3, 16])
def test_no_more_than_the_bound_overtake_one_that_is_passed_over(bound: int) -> None:
    one, two = adapters(2)
    rig = Rig(4, lora_max_overtakes=bound, time_to_first_token=1.0)
    rig.add(adapter=one)
    waits = rig.add(adapter=two)
    stream(rig, one, bound + 20)
    rig.drain()
    assert rig.started.index(waits) == 1 + bound
    assert Counter(log(each).reasons[-1] for each in rig.started) == {"stop": bound + 22}


def test_without_a_bound_one_may_be_overtaken_for_ever_as_in_vllm() -> None:
    one, two = adapters(2)
    rig = Rig(4, time_to_first_token=1.0)
    rig.add(adapter=one)
    waits = rig.add(adapter=two)
    stream(rig, one, 500)
    assert waits.waiting
    rig.drain()
    assert rig.started[-1] is waits


def test_the_bound_does_not_hold_back_the_base_model() -> None:
    one, two = adapters(2)
    rig = Rig(4, lora_max_overtakes=0, time_to_first_token=1.0)
    first = rig.add(adapter=one)
    waits = rig.add(adapter=two)
    later = rig.add(adapter=one)
    base = rig.add()
    assert rig.started == [first, base]
    rig.drain()
    assert rig.started == [first, base, waits, later]


def test_the_base_model_overtakes_nobody() -> None:
    one, two = adapters(2)
    rig = Rig(8, lora_max_overtakes=2, time_to_first_token=1.0)
    rig.add(adapter=one)
    waits = rig.add(adapter=two)
    for adapter in (None, None, None, one, one, one):
        rig.add(adapter=adapter)
    assert [sequence.adapter for sequence in rig.started] == [one, None, None, None, one, one]
    rig.drain()
    assert rig.started[6] is waits


def test_those_that_came_before_it_do_not_overtake_it() -> None:
    one, two = adapters(2)
    rig = Rig(2, lora_max_overtakes=0, time_to_first_token=1.0, inter_token_latency=1.0)
    running = rig.add(adapter=one)
    held = rig.add(9, adapter=one)
    before = rig.add(adapter=one)
    waits = rig.add(adapter=two)
    after = rig.add(adapter=one)
    rig.go(1.0)
    assert rig.started == [running, held, before]
    rig.go(1.0)
    assert (waits.waiting, after.waiting) == (True, True)
    rig.drain()
    assert rig.started[3:] == [waits, after]


def test_each_one_that_is_passed_over_has_the_bound_anew() -> None:
    one, two = adapters(2)
    rig = Rig(4, lora_max_overtakes=2, time_to_first_token=1.0)
    stream(rig, one, 1)
    first = rig.add(adapter=two)
    stream(rig, one, 9)
    rig.drain()
    rig.add(adapter=one)
    second = rig.add(adapter=two)
    stream(rig, one, 9)
    rig.drain()
    assert rig.started.index(first) == 3
    assert rig.started.index(second) == 11 + 1 + 2


# --- what is deferred


def test_those_are_deferred_that_a_free_slot_passed_over() -> None:
    one, two = adapters(2)
    rig = Rig(2, inter_token_latency=1.0)
    stats = rig.stats
    running = rig.add(100, adapter=one)
    rig.add(100, adapter=two)
    assert (stats.waiting, stats.deferred) == (1, 1)
    base = rig.add(100)
    queued = [rig.add(adapter=two), rig.add(adapter=one), rig.add()]
    assert (stats.waiting, stats.deferred) == (4, 1), "nobody looked at them yet"
    rig.abort(base)
    # The slot went to the one of the adapter that runs, and the other had to be passed over for it.
    assert (stats.waiting, stats.deferred) == (3, 2)
    rig.abort(queued[0])
    assert (stats.waiting, stats.deferred) == (2, 1)
    rig.abort(running)
    rig.drain()
    assert (stats.waiting, stats.deferred) == (0, 0)


def test_nothing_is_deferred_for_want_of_a_slot() -> None:
    one, two = adapters(2)
    rig = Rig(1, inter_token_latency=1.0)
    rig.add(100, adapter=one)
    for adapter in (one, two, None):
        rig.add(adapter=adapter)
    assert (rig.stats.waiting, rig.stats.deferred) == (3, 0)
