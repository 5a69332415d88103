"""The cache does what a slow one does, and those who listen know what can be found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from llmdsim.engine.kvcache import BlockHash, Cleared, Content, Record, Removed, Stored
from llmdsim.engine.kvcache.pool import Block
from llmdsim.engine.kvcache.records import CPU, GPU
from llmdsim.tokenization.prompt import MediaSpan
from tests.engine.kvcache.reference import Prefix, Reference
from tests.engine.kvcache.rig import Cache, Table, cache, table

CONTENTS = (
    Content(),
    Content(adapter=("a", "/a"), lora_id=1),
    Content(adapter=("a", "/b"), lora_id=2),
    Content(salt="s"),
    Content(adapter=("a", "/a"), lora_id=1, salt="s"),
    Content(media=[MediaSpan("i", 1, 3), MediaSpan("j", 5, 1)]),
    Content(media=[MediaSpan("i", 1, 3), MediaSpan("k", 5, 9)]),
)

#: Prompts share their beginnings, and two letters make equal ones likely.
letters = st.lists(st.integers(1, 2), max_size=3)
contents = st.sampled_from([0, 0, 0, *range(len(CONTENTS))]).map(CONTENTS.__getitem__)


@dataclass(eq=False)
class Running:
    """A sequence that has blocks, here and in the reference, where they have other numbers."""

    table: Table
    numbers: list[int] = field(default_factory=list)
    stored: int = 0


class Listener:
    """What a router knows: how many blocks of each hash there are on each medium."""

    def __init__(self) -> None:
        self.media: dict[str, Counter[BlockHash]] = {GPU: Counter(), CPU: Counter()}

    def hear(self, record: Record) -> None:
        if isinstance(record, Stored):
            assert record.hashes
            assert len(record.tokens) == len(record.hashes) * record.block_size
            blocks = self.media[record.medium]
            assert record.parent is None or blocks[record.parent], "a child without its parent"
            blocks.update(record.hashes)
        elif isinstance(record, Removed):
            blocks = self.media[record.medium]
            assert blocks[record.hash], "a removal of what nobody announced"
            blocks[record.hash] -= 1
        else:
            assert isinstance(record, Cleared)
            for blocks in self.media.values():
                blocks.clear()

    def known(self, medium: str) -> set[BlockHash]:
        return {*(+self.media[medium])}


class CacheMachine(RuleBasedStateMachine):
    @initialize(
        blocks=st.sampled_from([4, 8, 12, 2, 1]),
        size=st.sampled_from([2, 1, 3]),
        host=st.sampled_from([0, 0, 5, 20, 2]),
    )
    def build(self, blocks: int, size: int, host: int) -> None:
        self.cache: Cache = cache(blocks, size, host=host)
        #: The reference's numbers of blocks that were filled.
        self.numbers: dict[Block, int] = {}
        self.reference = Reference(blocks, size, host)
        self.listener = Listener()
        self.running: list[Running] = []
        self.preempted: list[Table] = []
        #: All that was ever stored, to be looked for.
        self.seen: dict[Prefix, tuple[list[int], Content]] = {}

    # --- what sequences do

    @rule(
        begin=st.sampled_from([5, 2, 9, 0]),
        tokens=letters,
        content=contents,
        reads=st.sampled_from([1, 1, 1, 0]),
        waits=st.sampled_from([0, 0, 1]),
    )
    def start(self, begin: int, tokens: list[int], content: Content, reads: int, waits: int) -> None:
        new = table([1] * begin + tokens, content, bool(reads))
        if self.admit(new) and not waits:
            self.store(self.running[-1], 0)

    @rule(begin=st.sampled_from([5, 2, 9]), tokens=letters, content=contents)
    def start_and_end(self, begin: int, tokens: list[int], content: Content) -> None:
        new = table([1] * begin + tokens, content)
        if self.admit(new):
            self.store(self.running[-1], 0)
            self.release(len(self.running) - 1, False)

    @precondition(lambda self: self.preempted)
    @rule(which=st.integers(0, 9))
    def resume(self, which: int) -> None:
        table = self.preempted.pop(which % len(self.preempted))
        if not self.admit(table):
            self.preempted.append(table)

    def numbered(self, blocks: Iterable[Block]) -> list[int]:
        return [self.numbers[block] for block in blocks]

    def admit(self, table: Table) -> bool:
        expected = self.reference.find(table.tokens, table.content) if table.reads else []
        found = self.cache.look_up(table)
        assert self.numbered(found) == expected
        hosted = self.reference.hosted(table.tokens, table.content, len(expected)) if table.reads else 0
        assert self.cache.look_up_host(table, found) == hosted
        numbers = self.reference.admit(table.tokens, expected)
        admitted = self.cache.take_in(table, found)
        assert admitted == (numbers is not None)
        if numbers is None:
            assert not len(table)
            return False
        self.running.append(Running(table, numbers, len(expected)))
        assert len(table.blocks) == len(expected)
        return True

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 9), all_but=st.integers(0, 7))
    def compute(self, which: int, all_but: int) -> None:
        running = self.running[which % len(self.running)]
        assert self.cache.extend(running.table, max(len(running.table.tokens) - all_but, 0)), "it has them"
        self.store(running, all_but)

    def store(self, running: Running, all_but: int) -> None:
        table = running.table
        computed = max(len(table.tokens) - all_but, 0)
        self.cache.keep(table, computed)
        stop = computed // self.reference.size
        self.reference.store(running.numbers, table.tokens, table.content, running.stored, stop)
        running.stored = max(running.stored, stop)
        assert len(table.blocks) == running.stored
        self.numbers.update(zip(table.blocks, running.numbers, strict=False))
        for blocks in range(1, running.stored + 1):
            prefix = self.reference.prefix(table.tokens, table.content, blocks)
            self.seen[prefix] = ([*table.tokens[: blocks * self.reference.size], 0], table.content)

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 9), tokens=letters.filter(bool), all_but=st.sampled_from([1, 1, 3]))
    def generate(self, which: int, tokens: list[int], all_but: int) -> None:
        running = self.running[which % len(self.running)]
        table, reference = running.table, self.reference
        total = len(table.tokens) + len(tokens)
        missing = -(-total // reference.size) - len(running.numbers)
        extended = self.cache.extend(table, total)
        assert extended == (missing <= len(reference.free))
        if extended:
            running.numbers += reference.take(missing)
            table.tokens.extend(tokens)
            self.store(running, all_but)

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 9), returns=st.booleans())
    def release(self, which: int, returns: bool) -> None:
        running = self.running.pop(which % len(self.running))
        self.cache.release(running.table)
        self.reference.release(running.numbers)
        assert not len(running.table)
        if returns:
            self.preempted.append(running.table)

    @precondition(lambda self: self.seen)
    @rule(really=st.sampled_from([0, 0, 0, 0, 0, 1]))
    def clear(self, really: int) -> None:
        held = any(running.numbers for running in self.running)
        if held or really:
            assert self.cache.clear() == self.reference.clear() == (not held)

    # --- what holds

    @invariant()
    def blocks_and_references_are_right(self) -> None:
        held: Counter[int] = Counter()
        for running in self.running:
            assert self.numbered(running.table.blocks) == running.numbers[: running.stored]
            assert len(running.table) == len(running.numbers)
            held.update(running.numbers)
            for block in running.table.blocks:
                assert block.refs == self.reference.refs[self.numbers[block]]
        assert held == Counter({number: refs for number, refs in self.reference.refs.items() if refs})
        pool = self.cache.pool
        assert pool.used == len(held) == pool.total - len(self.reference.free)
        assert pool.free == len(self.reference.free)
        assert sorted(self.numbered(pool.blocks())) == sorted(self.reference.held)
        assert pool.usage == len(held) / pool.total

    @invariant()
    def every_store_and_removal_is_told_once(self) -> None:
        told, self.cache.records = self.cache.records, []
        expected, self.reference.records = self.reference.records, []
        assert told == expected
        for record in told:
            self.listener.hear(record)

    @invariant()
    def listeners_know_exactly_what_can_be_found(self) -> None:
        findable = {*self.reference.held.values()}
        assert all(prefix[:-1] in findable for prefix in findable if prefix[1:]), "a child without its parent"
        assert self.listener.known(GPU) == {*map(self.reference.hash, findable)}
        copies = self.reference.copies
        assert all(prefix[:-1] in copies for prefix in copies if prefix[1:]), "a child without its parent"
        assert self.listener.media[CPU] == Counter(map(self.reference.hash, copies)), "each of them once"
        assert self.cache.host is None or len(self.cache.host) == len(copies) <= self.reference.host
        for prefix, (tokens, content) in self.seen.items():
            found = self.cache.look_up(table(tokens, content))
            assert self.numbered(found) == self.reference.find(tokens, content)
            assert (len(found) == len(prefix)) == (prefix in findable)
            hosted = self.cache.look_up_host(table(tokens, content), [])
            assert (hosted == len(prefix)) == (prefix in copies)

    def teardown(self) -> None:
        if not hasattr(self, "cache"):
            return
        while self.running:
            self.release(0, False)
            self.blocks_and_references_are_right()
        assert self.cache.pool.used == 0
        assert self.cache.clear()
        # Every block is there, once.
        total = self.cache.pool.total
        last = table(range(total * self.cache.block_size))
        assert self.cache.take_in(last, [])
        self.cache.keep(last, len(last.tokens))
        assert sorted(block.number for block in last.blocks) == [*range(1, total + 1)]


CacheMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestCache = CacheMachine.TestCase
