"""The queue: order, priorities, adapters that are passed over, and those that leave."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llmdsim.engine.adapters import Adapter, Adapters
from llmdsim.engine.sequence import Sequence
from llmdsim.engine.waiting import Waiting
from tests.engine.rig import Rig, log


def adapters(count: int) -> list[Adapter]:
    known = Adapters()
    return [known.load(f"l{number}", "/", "base") for number in range(1, count + 1)]


def test_a_slot_goes_to_the_first_whose_adapter_can_run() -> None:
    one, two = adapters(2)
    rig = Rig(slots=2, max_loras=1, inter_token_latency=1.0)
    running = rig.add(100, adapter=one)
    blocked = rig.add(adapter=two)
    base = rig.add(100)
    same = rig.add(100, adapter=one)
    assert rig.started == [running, base], "the base model needs no adapter"
    rig.abort(base)
    assert rig.started[2:] == [same]
    assert rig.stats.waiting == 1
    rig.abort(running)
    rig.abort(same)
    assert rig.started[3:] == [blocked]


def test_when_nothing_that_waits_can_start_the_engine_sleeps() -> None:
    one, two = adapters(2)
    rig = Rig(slots=2, max_loras=1, time_to_first_token=8.0)
    rig.add(adapter=one)
    rig.add(adapter=two)
    assert rig.go() == rig.now + 8.0, "not at once, again and again"


def test_the_least_priority_comes_first_and_equals_in_order() -> None:
    rig = Rig(slots=1, scheduling_policy="priority", inter_token_latency=1.0)
    running = rig.add(100)
    late = rig.add(priority=5)
    first = rig.add(priority=-1)
    second = rig.add(priority=-1)
    rig.abort(running)
    rig.drain()
    assert rig.started == [running, first, second, late]


def test_without_that_policy_a_priority_counts_for_nothing() -> None:
    rig = Rig(slots=1, inter_token_latency=1.0)
    running = rig.add(100)
    first, second = rig.add(priority=5), rig.add(priority=-5)
    rig.abort(running)
    rig.drain()
    assert rig.started == [running, first, second]


def test_one_that_comes_back_has_its_old_place() -> None:
    rig = Rig()
    queue = Waiting()
    first, second = rig.make(), rig.make()
    queue.add(first)
    queue.add(second)
    assert queue.pop(lambda _: True) is first
    queue.add(first)
    assert list(queue) == [first, second]


def test_one_that_comes_back_is_passed_over_still() -> None:
    rig = Rig()
    queue = Waiting()
    (one,) = adapters(1)
    first, second = rig.make(adapter=one), rig.make(adapter=one)
    queue.add(first)
    queue.add(second)
    assert queue.pop(lambda _: False) is None
    assert queue.deferred == 2
    assert queue.pop(lambda _: True) is first
    queue.add(first)
    assert queue.deferred == 2
    queue.remove(first)
    queue.remove(second)
    assert queue.deferred == 0


def test_a_line_that_moves_on_may_be_overtaken_as_often_again() -> None:
    rig = Rig()
    queue = Waiting(max_overtakes=2)
    one, two = adapters(2)
    waits = [rig.make(adapter=two) for _ in range(2)]
    for sequence in waits + [rig.make(adapter=one) for _ in range(5)]:
        queue.add(sequence)

    def not_two() -> bool:
        return queue.pop(lambda adapter: adapter is not two) is not None

    assert [not_two(), not_two(), not_two()] == [True, True, False]
    assert queue.pop(lambda _: True) is waits[0]
    assert [not_two(), not_two(), not_two()] == [True, True, False]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 2), st.integers(-1, 1)),
            st.tuples(st.just("remove"), st.integers(0, 200), st.just(0)),
            st.tuples(st.just("pop"), st.integers(0, 3), st.just(0)),
        ),
        max_size=200,
    ),
    st.booleans(),
    st.sampled_from([-1, 0, 1, 3]),
)
def test_it_does_as_a_plain_sorted_list(
    steps: list[tuple[str, int, int]], by_priority: bool, bound: int
) -> None:
    rig = Rig()
    queue = Waiting(by_priority, bound)
    known: list[Adapter | None] = [None, *adapters(2)]
    model: list[tuple[int, int, Sequence]] = []
    overtaken: dict[Adapter | None, int] = {}
    deferred: set[Sequence] = set()
    for serial, (step, number, priority) in enumerate(steps):
        if step == "add":
            sequence = rig.make(adapter=known[number], priority=priority)
            queue.add(sequence)
            model.append((priority if by_priority else 0, serial, sequence))
            model.sort(key=lambda entry: entry[:2])
        elif step == "remove" and model:
            _, _, sequence = model.pop(number % len(model))
            queue.remove(sequence)
            deferred.discard(sequence)
        elif step == "pop":
            blocked = known[number] if number in (1, 2) else None
            rows = [entry[2] for entry in model]
            stuck = [each for each in rows if each.adapter is not None and each.adapter is blocked]
            deferred.update(stuck)
            expected: Sequence | None = None
            for place, each in enumerate(rows):
                if each in stuck:
                    continue
                if stuck and each.adapter is not None and place > rows.index(stuck[0]):
                    if overtaken.get(blocked, 0) == bound:
                        continue
                    overtaken[blocked] = overtaken.get(blocked, 0) + 1
                expected = each
                break
            assert queue.pop(lambda adapter, blocked=blocked: adapter is not blocked) is expected  # type: ignore[misc]
            if expected is not None:
                model = [entry for entry in model if entry[2] is not expected]
                overtaken[expected.adapter] = 0
                deferred.discard(expected)
        for adapter in known:
            if all(entry[2].adapter is not adapter for entry in model):
                overtaken[adapter] = 0
        assert len(queue) == len(model)
        assert list(queue) == [entry[2] for entry in model]
        assert queue.deferred == len(deferred)
        assert set(queue.adapters) == {entry[2].adapter for entry in model} - {None}


def test_those_that_leave_are_forgotten_before_they_come_up() -> None:
    rig = Rig(slots=1, waiting=10_000, time_to_first_token=1.0)
    rig.add()
    for sequence in [rig.add() for _ in range(5000)]:
        rig.abort(sequence)
    assert rig.stats.waiting == 0
    survivor = rig.add()
    for sequence in [rig.add() for _ in range(5000)]:
        rig.abort(sequence)
    line = rig.engine._waiting._lines[None]
    assert len(line.heap) < 200
    rig.drain()
    assert log(survivor).reasons[-1] == "stop"
