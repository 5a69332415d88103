"""Blocks that are promised are found, and given up, as if they had been there from the start."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from llmdsim.engine.kvcache import Content
from llmdsim.engine.kvcache.cache import MOST_PROMISES
from llmdsim.tokenization.prompt import MediaSpan
from tests.engine.kvcache.reference import Reference
from tests.engine.kvcache.rig import SIZE, Cache, Table, cache, end, hit, start, table

CONTENTS = (
    Content(),
    Content(),
    Content(salt="s"),
    Content(media=[MediaSpan("i", 1, 3)]),
)

letters = st.lists(st.integers(1, 2), max_size=4)
contents = st.sampled_from(CONTENTS)


@dataclass(eq=False)
class Running:
    table: Table
    numbers: list[int]
    stored: int


class PromisingMachine(RuleBasedStateMachine):
    """Against a reference that promises nothing: what is found, and in the end what is given up when."""

    @initialize(blocks=st.sampled_from([8, 12, 4, 30]), size=st.sampled_from([2, 1, 3]))
    def build(self, blocks: int, size: int) -> None:
        self.cache = cache(blocks, size, events=False)
        self.reference = Reference(blocks, size, 0)
        self.running: list[Running] = []
        self.promised = 0
        self.seen: list[tuple[list[int], Content]] = []

    def admit(self, new: Table) -> Running | None:
        expected = self.reference.find(new.tokens, new.content) if new.reads else []
        found = self.cache.look_up(new)
        assert len(found) == len(expected)
        numbers = self.reference.admit(new.tokens, expected)
        assert self.cache.take_in(new, found) == (numbers is not None)
        if numbers is None:
            return None
        self.running.append(Running(new, numbers, len(expected)))
        return self.running[-1]

    def store(self, running: Running, computed: int) -> None:
        self.cache.keep(running.table, computed)
        self.store_there(running, computed)

    def store_there(self, running: Running, computed: int) -> None:
        tokens, content = running.table.tokens, running.table.content
        stop = computed // self.reference.size
        self.reference.store(running.numbers, tokens, content, running.stored, stop)
        running.stored = max(running.stored, stop)
        self.seen.append(([*tokens, 0], content))

    @rule(
        begin=st.sampled_from([5, 2, 9, 0]),
        tokens=letters,
        content=contents,
        reads=st.sampled_from([1, 1, 1, 0]),
    )
    def start(self, begin: int, tokens: list[int], content: Content, reads: int) -> None:
        self.begin(table([1] * begin + tokens, content, bool(reads)))

    def begin(self, new: Table) -> bool:
        running = self.admit(new)
        if running is not None:
            self.store(running, len(new.tokens))
        return running is not None

    @rule(
        begin=st.sampled_from([5, 2, 9, 0]),
        tokens=letters,
        says=letters.filter(bool),
        content=contents,
        reads=st.sampled_from([1, 1, 1, 0]),
    )
    def come_and_go(
        self, begin: int, tokens: list[int], says: list[int], content: Content, reads: int
    ) -> None:
        if self.begin(table([1] * begin + tokens, content, bool(reads))):
            self.finish(len(self.running) - 1, says)

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 9), says=letters.filter(bool))
    def finish(self, which: int, says: list[int]) -> None:
        running = self.running[which % len(self.running)]
        new = running.table
        had, used = (list(new.blocks), new.room), self.cache.pool.used
        if end(self.cache, new, says):
            self.promised += 1
            self.running.remove(running)
            missing = -(-(len(new.tokens) - 1) // self.reference.size) - len(running.numbers)
            assert missing <= len(self.reference.free)
            running.numbers += self.reference.take(max(missing, 0))
            self.store_there(running, len(new.tokens) - 1)
            self.reference.release(running.numbers)
            assert not len(new)
        else:
            assert ((new.blocks, new.room), self.cache.pool.used) == (had, used), "nothing happens"
            self.generate(which, says)

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 9), says=letters.filter(bool))
    def generate(self, which: int, says: list[int]) -> None:
        running = self.running[which % len(self.running)]
        new = running.table
        missing = -(-(len(new.tokens) + len(says)) // self.reference.size) - len(running.numbers)
        assert self.cache.extend(new, len(new.tokens) + len(says)) == (missing <= len(self.reference.free))
        if missing <= len(self.reference.free):
            running.numbers += self.reference.take(missing)
            new.tokens.extend(says)
            self.store(running, len(new.tokens) - 1)

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 9))
    def release(self, which: int) -> None:
        running = self.running.pop(which % len(self.running))
        self.cache.release(running.table)
        self.reference.release(running.numbers)

    @precondition(lambda self: self.seen)
    @rule(which=st.integers(0, 99))
    def look(self, which: int) -> None:
        tokens, content = self.seen[which % len(self.seen)]
        assert len(self.cache.look_up(table(tokens, content))) == len(self.reference.find(tokens, content))

    @rule(really=st.sampled_from([0, 0, 0, 0, 0, 0, 0, 1]))
    def clear(self, really: int) -> None:
        if really and not self.running:
            assert self.cache.clear()
            assert self.reference.clear()

    @rule()
    def look_at_all(self) -> None:
        for _ in self.cache.keep_promises():
            pass
        assert not self.cache.pool.promised
        assert len(self.cache.pool.blocks()) == len(self.reference.held)

    @invariant()
    def counts_are_right(self) -> None:
        pool = self.cache.pool
        assert pool.free == len(self.reference.free)
        assert pool.findable == len(self.reference.held)

    def teardown(self) -> None:
        if not hasattr(self, "cache"):
            return
        while self.running:
            self.release(0)
        # One block after the other is given up, by both the same.
        for _ in range(self.cache.pool.total):
            self.cache.pool.reserve(1)
            self.reference.take(1)
            self.counts_are_right()
            for which in range(0, len(self.seen), 3):
                self.look(which)
        assert not self.cache.pool.promised
        assert not self.cache.pool.cached


PromisingMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestPromises = PromisingMachine.TestCase


def come_and_go(kv: Cache, prompt: list[int], says: list[int]) -> bool:
    """Whether the blocks of a sequence that ends at once were promised."""
    new = start(kv, prompt)
    promised = end(kv, new, says)
    if not promised:
        kv.release(new)
    return promised


def test_what_is_promised_is_made_when_somebody_looks_behind_its_chain() -> None:
    kv = cache(events=False)
    assert come_and_go(kv, [1] * SIZE, [2] * 9)
    assert kv.pool.findable == 3
    assert len(kv.pool.blocks()) == 1
    assert hit(kv, [1] * SIZE + [9]) == [1], "which is not behind it"
    assert len(kv.pool.blocks()) == 1
    assert len(hit(kv, [*[1] * SIZE, *[2] * 8, 9])) == 3
    assert len(kv.pool.blocks()) == kv.pool.findable == 3


def test_only_the_sequence_that_was_given_blocks_last_is_done_with_by_a_promise() -> None:
    kv = cache(events=False)
    first, second = start(kv, [1] * SIZE), start(kv, [2] * SIZE)
    assert not end(kv, first, [1] * 9), "what the second one fills may have to come before"
    kv.release(first)
    assert end(kv, second, [1] * 9)
    third = start(kv, [3] * SIZE)
    fourth = start(kv, [4] * SIZE)
    kv.release(fourth)
    assert not end(kv, third, [1] * 9)


def test_a_promise_that_another_one_is_behind_is_kept_after_that() -> None:
    kv = cache(events=False)
    long = start(kv, [1] * 2 * SIZE)
    kv.release(long)
    # Behind the second block, and then behind the first, the second block once more.
    assert come_and_go(kv, [1] * 2 * SIZE + [9], [9] * SIZE)
    assert come_and_go(kv, [1] * SIZE + [1], [*[1] * (SIZE - 1), *[9] * (SIZE + 1)])
    found = kv.look_up(table([*[1] * 2 * SIZE, *[9] * SIZE, 0]))
    assert len(found) == 3
    assert found[2].promise is not None
    assert found[2].promise.left == 1, "the one that was promised first"


def test_a_chain_has_so_many_promises_and_no_more() -> None:
    kv = cache(4 * MOST_PROMISES, events=False)
    prompt = [1] * SIZE
    for number in range(MOST_PROMISES):
        assert come_and_go(kv, prompt, [number] * 5)
    assert not come_and_go(kv, prompt, [7] * 5)


def test_nothing_is_promised_to_somebody_who_listens_or_with_copies_or_lives_to_be_counted() -> None:
    for kv in (cache(), cache(events=False, host=20), cache(events=False, shares=False)):
        assert not come_and_go(kv, [1] * SIZE, [2] * 9)
        assert kv.pool.findable == len(kv.pool.blocks())
