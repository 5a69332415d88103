"""What is given up next, and what is found: vLLM's free queue (v1/core/block_pool.py, kv_cache_utils.py)."""

from __future__ import annotations

import pytest

from llmdsim.engine.kvcache.pool import Block, Pool


def fill(pool: Pool, name: str, blocks: int = 1) -> list[Block]:
    """Blocks reserved and filled, which their hash tells."""
    assert blocks <= pool.free
    pool.reserve(blocks)
    contents = [f"{name}{index}".encode() for index in range(blocks)]
    made = filled(pool, *contents)
    for block, content in zip(made, contents, strict=True):
        block.hash = content
    return made


def filled(pool: Pool, *contents: bytes) -> list[Block]:
    """Blocks that hold these, one after the other."""
    made: list[Block] = []
    for content in contents:
        made.append(pool.fill((made[-1].chain if made else "", content)))
    return made


def evicted(pool: Pool, blocks: int) -> list[str]:
    """What goes for so many more blocks."""
    assert blocks <= pool.free
    hashes = []
    for block in pool.reserve(blocks):
        assert isinstance(block.hash, bytes)
        hashes.append(block.hash.decode())
        block.hash = None
    return hashes


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
    assert pool.admit(blocks[2:], 0) == ()
    assert (pool.used, blocks[2].refs) == (1, 1)
    pool.let_go(blocks[2:], 0)
    assert evicted(pool, 3) == ["a1", "a0", "a2"]


def test_a_block_is_free_when_its_last_holder_lets_go() -> None:
    pool = Pool(1)
    blocks = fill(pool, "a")
    assert pool.admit(blocks, 0) == ()
    pool.let_go(blocks, 0)
    assert (pool.used, pool.free, blocks[0].refs) == (1, 0, 1)
    pool.let_go(blocks, 0)
    assert (pool.used, pool.free, blocks[0].refs) == (0, 1, 0)


def test_what_was_evicted_is_found_no_more_and_its_block_is_filled_anew() -> None:
    pool = Pool(2)
    blocks = fill(pool, "a", 2)
    pool.let_go(blocks, 0)
    key = (blocks[0].chain, b"a1")
    assert pool.cached[key] is blocks[1], "as long as nobody needs the room"
    assert evicted(pool, 1) == ["a1"]
    assert key not in pool.cached
    (block,) = filled(pool, b"b")
    assert (block.number, block.refs, block.key) == (2, 1, ("", b"b"))
    assert sorted(each.number for each in pool.cached.values()) == [1, 2]


def test_blocks_of_equal_content_are_kept_apart_and_the_one_filled_first_is_found() -> None:
    pool = Pool(3)
    pool.reserve(3)
    first, *others = [*filled(pool, b"a"), *filled(pool, b"a"), pool.fill(("", b"a"))]
    for block in others:
        assert block is not first
        assert block.chain == first.chain
    assert pool.cached["", b"a"] is first


def test_what_follows_equal_blocks_is_equal() -> None:
    pool = Pool(4)
    pool.reserve(4)
    one, other = filled(pool, b"a", b"b"), filled(pool, b"a", b"b")
    assert [block.chain for block in one] == [block.chain for block in other]
    assert len(pool.cached) == 2


def test_a_block_may_have_the_chain_of_a_copy() -> None:
    pool = Pool(2)
    pool.reserve(2)
    assert pool.fill(("", b"a", "media"), 77).chain == 77
    (block,) = filled(pool, b"a")
    assert block.chain != 77


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
def test_with_one_of_equal_blocks_evicted_the_others_are_still_found(order: tuple[int, ...]) -> None:
    pool = Pool(3)
    pool.reserve(3)
    blocks = [filled(pool, b"a")[0] for _ in range(3)]
    for index in order:
        pool.let_go([blocks[index]], 0)
    left = [0, 1, 2]
    for index in order:
        assert pool.cached["", b"a"] is blocks[left[0]]
        pool.reserve(1)
        left.remove(index)
    assert pool.cached == {}


def test_content_that_was_forgotten_gets_another_chain() -> None:
    pool = Pool(1)
    (block,) = fill(pool, "a")
    chain = block.chain
    pool.let_go([block], 0)
    assert evicted(pool, 1) == ["a0"]
    (again,) = filled(pool, b"a0")
    assert again.chain != chain, "or children of the lost one would be found under the new one"


def test_clearing_forgets_all_content() -> None:
    pool = Pool(6)
    twins = [*fill(pool, "a", 2), *fill(pool, "a", 1)]
    pool.let_go(twins, 0)
    pool.clear()
    assert pool.cached == {}
    assert (pool.used, pool.free) == (0, 6)
    assert evicted(pool, 6) == []
    numbers = [block.number for block in filled(pool, *[b"%d" % index for index in range(6)])]
    assert sorted(numbers) == [1, 2, 3, 4, 5, 6]
