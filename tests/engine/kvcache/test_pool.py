"""Which block is taken next: vLLM's free queue (v1/core/block_pool.py, kv_cache_utils.py)."""

from __future__ import annotations

import pytest

from llmdsim.engine.kvcache.pool import Block, Pool


def take(pool: Pool, count: int) -> list[Block]:
    return pool.take(count)[0]


def fill(pool: Pool, blocks: list[Block], name: str) -> None:
    for index, block in enumerate(blocks):
        pool.fill(block, (name, index))


def numbers(blocks: list[Block]) -> list[int]:
    return [block.number for block in blocks]


def rest(pool: Pool) -> list[int]:
    """The numbers of all free blocks, which are taken."""
    return numbers(take(pool, pool.free))


def test_blocks_are_numbered_from_1_and_taken_in_that_order() -> None:
    pool = Pool(4)
    assert rest(pool) == [1, 2, 3, 4], "0 is vLLM's null block"
    assert (pool.used, pool.free) == (4, 0)


def test_blocks_without_content_are_taken_again_first_and_the_last_of_them_before_the_others() -> None:
    pool = Pool(6)
    blocks = take(pool, 3)
    take(pool, 1)
    pool.let_go(blocks)
    assert rest(pool) == [3, 2, 1, 5, 6]


def test_of_two_lots_without_content_the_one_let_go_later_is_taken_first() -> None:
    pool = Pool(5)
    first, second = take(pool, 2), take(pool, 2)
    pool.let_go(first)
    pool.let_go(second)
    assert rest(pool) == [4, 3, 2, 1, 5]


def test_a_sequence_is_evicted_from_its_tail_and_its_partial_block_goes_first() -> None:
    pool = Pool(6)
    blocks = take(pool, 6)
    fill(pool, blocks[:5], "a")
    pool.let_go(blocks)
    assert rest(pool) == [6, 5, 4, 3, 2, 1]


def test_blocks_never_taken_go_before_blocks_with_content() -> None:
    pool = Pool(4)
    blocks = take(pool, 2)
    fill(pool, blocks, "a")
    pool.let_go(blocks)
    assert rest(pool) == [3, 4, 2, 1]


def test_what_was_let_go_first_is_evicted_first() -> None:
    pool = Pool(4)
    first, second = take(pool, 2), take(pool, 2)
    fill(pool, first, "a")
    fill(pool, second, "b")
    pool.let_go(second)
    pool.let_go(first)
    assert rest(pool) == [4, 3, 2, 1]


def test_a_block_that_is_held_again_leaves_its_place_in_the_queue() -> None:
    pool = Pool(3)
    blocks = take(pool, 3)
    fill(pool, blocks, "a")
    pool.let_go(blocks)
    found = pool.find(("a", 2))
    assert found is blocks[2]
    pool.hold(found)
    assert (pool.used, found.refs) == (1, 1)
    pool.let_go([found])
    assert rest(pool) == [2, 1, 3]


def test_a_block_is_free_when_its_last_holder_lets_go() -> None:
    pool = Pool(1)
    (block,) = take(pool, 1)
    pool.fill(block, ("a", 0))
    pool.hold(block)
    pool.let_go([block])
    assert (pool.used, pool.free, block.refs) == (1, 0, 1)
    pool.let_go([block])
    assert (pool.used, pool.free, block.refs) == (0, 1, 0)


def test_what_a_taken_block_held_is_told_and_found_no_more() -> None:
    pool = Pool(2)
    blocks = take(pool, 2)
    for block in blocks:
        pool.fill(block, ("a", block.number))
        block.hash = block.number * 11
    pool.let_go(blocks)
    assert pool.find(("a", 2)) is blocks[1], "as long as nobody needs the room"
    assert pool.take(2) == ([blocks[1], blocks[0]], [22, 11])
    assert pool.find(("a", 1)) is pool.find(("a", 2)) is None
    assert [(block.key, block.hash, block.refs) for block in blocks] == [(None, None, 1)] * 2


def test_a_request_may_take_blocks_of_every_kind_at_once() -> None:
    pool = Pool(6)
    worn, filled = take(pool, 1), []
    fill(pool, worn, "a")
    pool.let_go(worn)
    pool.clear()
    first = take(pool, 4)
    assert numbers(first) == [2, 3, 4, 5]
    filled = first[:2]
    fill(pool, filled, "b")
    pool.let_go(filled)
    pool.let_go(first[2:])
    assert numbers(take(pool, 6)) == [5, 4, 6, 1, 3, 2]
    assert pool.find(("b", 0)) is None


def test_blocks_of_equal_content_are_kept_apart_and_the_one_filled_first_is_found() -> None:
    pool = Pool(3)
    blocks = take(pool, 3)
    assert pool.fill(blocks[1], ("a", 0)) is None
    assert pool.fill(blocks[0], ("a", 0)) is blocks[1]
    assert pool.fill(blocks[2], ("a", 0)) is blocks[1]
    assert pool.find(("a", 0)) is blocks[1]
    assert blocks[0].chain == blocks[1].chain == blocks[2].chain


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
def test_with_one_of_equal_blocks_evicted_the_others_are_still_found(order: tuple[int, ...]) -> None:
    pool = Pool(3)
    blocks = take(pool, 3)
    for block in blocks:
        pool.fill(block, ("a", 0))
    for index in order:
        pool.let_go([blocks[index]])
    left = [0, 1, 2]
    for index in order:
        assert pool.find(("a", 0)) is blocks[left[0]]
        assert take(pool, 1) == [blocks[index]]
        left.remove(index)
    assert pool.find(("a", 0)) is None


def test_content_that_was_forgotten_gets_another_chain() -> None:
    pool = Pool(1)
    (block,) = take(pool, 1)
    pool.fill(block, ("a", 0))
    chain = block.chain
    pool.let_go([block])
    (again,) = take(pool, 1)
    pool.fill(again, ("a", 0))
    assert again.chain != chain, "or children of the lost one would be found under the new one"


def test_clearing_forgets_all_content_and_leaves_the_order() -> None:
    pool = Pool(6)
    first, second = take(pool, 2), take(pool, 2)
    fill(pool, first, "a")
    fill(pool, second[:1], "a")  # a twin
    pool.let_go(first)
    pool.let_go(second)
    pool.clear()
    assert pool.find(("a", 0)) is pool.find(("a", 1)) is None
    blocks = take(pool, 4)
    assert numbers(blocks) == [4, 5, 6, 2]
    fill(pool, blocks, "b")
    pool.let_go(blocks)
    pool.clear()
    assert rest(pool) == [1, 3, 2, 6, 5, 4]
