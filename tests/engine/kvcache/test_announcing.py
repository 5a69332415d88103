"""Blocks are told of while somebody listens, and those of before when something is built on them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llmdsim.engine.kvcache import BlockHash, Cleared, Removed, Stored
from tests.engine.kvcache.rig import SIZE, Cache, Table, cache, end, generate, run, start, table, told

PROMPT = range(100, 112)


def tokens_of(record: object) -> list[int]:
    assert isinstance(record, Stored)
    return record.tokens.tolist()


def quiet(blocks: int = 100) -> Cache:
    kv = cache(blocks)
    kv.announces = False
    return kv


def test_nothing_is_told_while_nobody_listens_and_that_something_was_missed_is_known() -> None:
    kv = quiet(4)
    assert not kv.missed
    run(kv, PROMPT)
    run(kv, range(16))
    assert kv.missed
    kv.missed = False
    assert kv.clear()
    assert kv.missed
    assert told(kv) == []


def test_blocks_of_before_are_told_when_something_is_built_on_them() -> None:
    kv = quiet()
    run(kv, PROMPT)
    kv.announces = True
    run(kv, [*PROMPT, 1])
    assert told(kv) == [], "it stored nothing"
    running = start(kv, [*PROMPT, 1, 2])
    assert generate(kv, running, [3, 4, 5])
    (record,) = told(kv)
    assert isinstance(record, Stored)
    assert record.parent is None
    assert tokens_of(record) == [*PROMPT, 1, 2, 3, 4]
    assert len(record.hashes) == 4
    assert generate(kv, running, [6, 7, 8, 9])
    (record,) = told(kv)
    assert tokens_of(record) == [5, 6, 7, 8]


def test_the_removal_of_what_was_never_told_is_not_told() -> None:
    kv = quiet(3)
    run(kv, PROMPT)
    kv.announces = True
    run(kv, range(12))
    (record,) = told(kv)
    assert tokens_of(record) == list(range(12))
    kv.announces = False
    run(kv, PROMPT)
    assert [type(record) for record in told(kv)] == [Removed] * 3, "what was told is taken back in any case"


#: Beginnings and ends of prompts, of which some are equal.
prompts = st.tuples(st.integers(0, 2), st.integers(0, 12), st.lists(st.integers(0, 1), max_size=5))


@given(st.lists(st.one_of(prompts, st.booleans(), st.just("clear"), st.just("end")), max_size=40))
def test_whoever_listens_on_and_off_knows_only_what_is_there(steps: list[object]) -> None:
    kv = cache(6)
    running: list[Table] = []
    known: dict[BlockHash, int] = {}
    for step in steps:
        if isinstance(step, bool):
            kv.announces = step
        elif step == "clear":
            kv.clear()
        elif step == "end":
            if running:
                kv.release(running.pop(0))
        else:
            assert isinstance(step, tuple)
            first, length, last = step
            new = table([*range(first, first + length), *last])
            if kv.take_in(new, kv.look_up(new)):
                kv.keep(new, len(new.tokens))
                if not end(kv, new, [1, *last, 2, 3]):
                    running.append(new)
        for record in told(kv):
            if isinstance(record, Stored):
                assert len(record.tokens) == SIZE * len(record.hashes)
                assert record.parent is None or known.get(record.parent)
                for name in record.hashes:
                    known[name] = known.get(name, 0) + 1
            elif isinstance(record, Removed):
                assert known[record.hash] > 0
                known[record.hash] -= 1
            else:
                assert isinstance(record, Cleared)
                known.clear()
        if not kv.announces and not kv.pool.cached:
            known.clear()  # it was cleared, and nobody was told
        for _ in kv.keep_promises() if len(steps) % 2 else ():
            pass
        findable = {block.hash for block in kv.pool.blocks() if block.hash is not None}
        assert {name for name, count in known.items() if count} == findable
