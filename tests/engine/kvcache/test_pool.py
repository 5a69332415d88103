"""What is given up next, and what is found: vLLM's free queue (v1/core/block_pool.py, kv_cache_utils.py)."""

from __future__ import annotations

import pytest

from llmdsim.engine.kvcache.pool import Block, Pool


def fill(pool: Pool, name: str, blocks: int = 1) -> list[Block]:
    """Blocks reserved and filled, which their hash tells."""
    assert blocks <= pool.free
    pool.reserve(blocks)
    made = []
    for index in range(blocks):
        block, first = pool.fill((name, index))
        block.hash = f"{name}{index}".encode() if first is None else first.hash
        made.append(block)
    return made


def evicted(pool: Pool, blocks: int) -> list[str]:
    """What goes for so many more blocks."""
    assert blocks <= pool.free
    return [hash.decode() for hash in pool.reserve(blocks) if isinstance(hash, bytes)]


def test_free_blocks_without_content_go_before_those_with_it() -> None:
    pool = Pool(6)
    pool.let_go(fill(pool, "a", 3), 0)
    assert evicted(pool, 2) == []
    assert (pool.used, pool.free) == (2, 4)
    pool.let_go([], 1)
    assert evicted(pool, 2) == []
    assert evicted(pool, 1) == ["a2"]


def test_a_sequence_is_evicted_from_its_tail() -> None:
    pool = Pool(6)
    pool.reserve(1)
    pool.let_go(fill(pool, "a", 5), 1)
    assert evicted(pool, 6) == ["a4", "a3", "a2", "a1", "a0"]
    assert (pool.used, pool.free) == (6, 0)


def test_what_was_let_go_first_is_evicted_first() -> None:
    pool = Pool(4)
    first, second = fill(pool, "a", 2), fill(pool, "b", 2)
    pool.let_go(second, 0)
    pool.let_go(first, 0)
    assert evicted(pool, 4) == ["b1", "b0", "a1", "a0"]


def test_a_block_that_is_held_again_leaves_its_place_in_the_queue() -> None:
    pool = Pool(3)
    blocks = fill(pool, "a", 3)
    pool.let_go(blocks, 0)
    pool.hold(blocks[2:])
    assert (pool.used, blocks[2].refs) == (1, 1)
    pool.let_go(blocks[2:], 0)
    assert evicted(pool, 3) == ["a1", "a0", "a2"]


def test_a_block_is_free_when_its_last_holder_lets_go() -> None:
    pool = Pool(1)
    blocks = fill(pool, "a")
    pool.hold(blocks)
    pool.let_go(blocks, 0)
    assert (pool.used, pool.free, blocks[0].refs) == (1, 0, 1)
    pool.let_go(blocks, 0)
    assert (pool.used, pool.free, blocks[0].refs) == (0, 1, 0)


def test_what_was_evicted_is_found_no_more_and_its_block_is_filled_anew() -> None:
    pool = Pool(2)
    blocks = fill(pool, "a", 2)
    pool.let_go(blocks, 0)
    assert pool.cached["a", 1] is blocks[1], "as long as nobody needs the room"
    assert evicted(pool, 1) == ["a1"]
    assert ("a", 1) not in pool.cached
    block, first = pool.fill(("b", 0))
    assert (block.number, block.refs, block.hash, first) == (2, 1, None, None)
    assert sorted(each.number for each in pool.cached.values()) == [1, 2]


def test_blocks_of_equal_content_are_kept_apart_and_the_one_filled_first_is_found() -> None:
    pool = Pool(3)
    pool.reserve(3)
    (first, none), *others = [pool.fill(("a", 0)) for _ in range(3)]
    assert none is None
    for block, found in others:
        assert found is first
        assert block is not first
        assert block.chain == first.chain
    assert pool.cached["a", 0] is first


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
def test_with_one_of_equal_blocks_evicted_the_others_are_still_found(order: tuple[int, ...]) -> None:
    pool = Pool(3)
    pool.reserve(3)
    blocks = [pool.fill(("a", 0))[0] for _ in range(3)]
    for index in order:
        pool.let_go([blocks[index]], 0)
    left = [0, 1, 2]
    for index in order:
        assert pool.cached["a", 0] is blocks[left[0]]
        pool.reserve(1)
        left.remove(index)
    assert pool.cached == {}


def test_content_that_was_forgotten_gets_another_chain() -> None:
    pool = Pool(1)
    (block,) = fill(pool, "a")
    chain = block.chain
    pool.let_go([block], 0)
    assert evicted(pool, 1) == ["a0"]
    again, _ = pool.fill(("a", 0))
    assert again.chain != chain, "or children of the lost one would be found under the new one"


def test_clearing_forgets_all_content() -> None:
    pool = Pool(6)
    twins = [*fill(pool, "a", 2), *fill(pool, "a", 1)]
    pool.let_go(twins, 0)
    pool.clear()
    assert pool.cached == {}
    assert (pool.used, pool.free) == (0, 6)
    assert evicted(pool, 6) == []
    numbers = [pool.fill(("b", index))[0].number for index in range(6)]
    assert sorted(numbers) == [1, 2, 3, 4, 5, 6]
