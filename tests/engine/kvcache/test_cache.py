"""What is found, what is stored, and what does not fit (vLLM's kv_cache_manager.py)."""

from __future__ import annotations

from llmdsim.engine.kvcache import Content
from llmdsim.engine.kvcache.pool import Block
from llmdsim.tokenization.prompt import MediaSpan
from tests.engine.kvcache.rig import Cache, cache, generate, hit, numbered, run, start, table

PROMPT = range(100, 112)  # three blocks


def state(cache: Cache) -> object:
    """Everything that a request which does not fit must not change."""
    pool = cache.pool
    return (
        [(block.number, block.refs) for block in pool._idle if isinstance(block, Block)],
        pool._blank,
        pool.used,
        {key: block.refs for key, block in pool.cached.items()},
    )


def test_a_prompt_takes_blocks_for_all_its_tokens_and_the_last_may_be_partial() -> None:
    kv = cache(10)
    running = start(kv, range(9))
    assert (numbered(running.blocks), running.room) == ([1, 2], 1)
    assert kv.pool.usage == 0.3


def test_an_empty_prompt_takes_nothing() -> None:
    kv = cache(1)
    assert start(kv, []).blocks == []
    assert kv.pool.usage == 0.0


def test_a_prompt_is_found_while_it_runs_and_when_it_is_over() -> None:
    kv = cache()
    first = start(kv, PROMPT)
    assert hit(kv, [*PROMPT, 1]) == [1, 2, 3]
    kv.release(first)
    assert len(first) == 0
    assert hit(kv, [*PROMPT, 1]) == [1, 2, 3]
    assert kv.pool.usage == 0.0


def test_what_was_not_computed_is_not_found() -> None:
    kv = cache()
    first = table(PROMPT)
    assert kv.take_in(first, [])
    assert hit(kv, [*PROMPT, 1]) == []
    kv.keep(first, 7)
    assert hit(kv, [*PROMPT, 1]) == [1], "two blocks are begun, one is full"
    kv.keep(first, 12)
    assert hit(kv, [*PROMPT, 1]) == [1, 2, 3]


def test_the_last_token_is_always_computed() -> None:
    kv = cache()
    run(kv, PROMPT)
    assert hit(kv, PROMPT) == [1, 2], "the last block is computed anew, though it is there"
    assert hit(kv, PROMPT[:9]) == [1, 2]
    assert hit(kv, PROMPT[:8]) == [1]
    assert hit(kv, PROMPT[:4]) == hit(kv, PROMPT[:1]) == hit(kv, []) == []


def test_a_prefix_ends_at_the_first_block_that_is_missing() -> None:
    kv = cache()
    run(kv, PROMPT)
    assert hit(kv, [*PROMPT[:4], 0, *PROMPT[5:], 1]) == [1]
    assert hit(kv, [0, *PROMPT[1:], 1]) == [], "blocks 2 and 3 are of another prompt now"
    assert hit(kv, [*PROMPT[4:], 1]) == [], "nor are they found elsewhere in a prompt"


def test_blocks_that_are_found_are_shared() -> None:
    kv = cache()
    first = start(kv, PROMPT)
    second = start(kv, [*PROMPT, 1, 2])
    assert (numbered(second.blocks), second.room) == ([1, 2, 3], 1)
    assert [block.refs for block in second.blocks] == [2, 2, 2]
    assert kv.pool.used == 4
    kv.release(first)
    assert kv.pool.used == 4
    kv.release(second)
    assert kv.pool.used == 0


def test_generated_tokens_fill_blocks_but_the_last_token_is_never_computed() -> None:
    kv = cache()
    running = start(kv, range(6))
    assert generate(kv, running, [6, 7])
    assert hit(kv, range(9)) == [1], "the second block has its four tokens, of which three are computed"
    assert generate(kv, running, [8])
    assert hit(kv, range(9)) == [1, 2]
    kv.release(running)
    assert hit(kv, range(20)) == [1, 2], "as the next turn of a conversation finds"


def test_what_runs_gets_another_block_only_when_it_needs_one() -> None:
    kv = cache(3)
    running = start(kv, range(7))
    assert generate(kv, running, [7])
    assert len(running) == 2
    assert generate(kv, running, [8])
    assert len(running) == 3


def test_blocks_for_fewer_tokens_are_there_already() -> None:
    kv = cache(3)
    running = start(kv, range(9))
    assert kv.extend(running, 4)
    assert (len(running), kv.pool.used) == (3, 3)


def test_a_full_pool_extends_nothing_and_changes_nothing() -> None:
    kv = cache(3)
    running = start(kv, range(4))
    other = start(kv, range(50, 54))
    before = state(kv)
    assert not kv.extend(running, 12)
    assert state(kv) == before
    assert len(running) == 1
    kv.release(other)
    assert kv.extend(running, 12)
    assert (len(running), kv.pool.used) == (3, 3)


def test_a_prompt_that_does_not_fit_changes_nothing() -> None:
    kv = cache(4)
    run(kv, PROMPT)
    start(kv, [1, 2])
    new = table([*PROMPT, *range(5)])
    found = kv.look_up(new)
    assert numbered(found) == [1, 2, 3]
    before = state(kv), [*kv.records]
    assert not kv.take_in(new, found), "two blocks are missing, and what it shares is all that is free"
    assert (state(kv), kv.records) == before
    assert len(new) == 0


def test_blocks_that_are_found_free_count_as_taken_and_those_in_use_do_not() -> None:
    kv = cache(4)
    running = start(kv, PROMPT)
    new = table([*PROMPT, 1])
    assert kv.take_in(new, kv.look_up(new))
    assert kv.pool.free == 0
    kv.release(new)
    kv.release(running)
    start(kv, [1, 2])
    assert not kv.take_in(table(range(200, 216)), [])
    assert kv.take_in(table(range(200, 212)), [])


def test_the_oldest_content_goes_first_and_a_hit_makes_it_young() -> None:
    kv = cache(6)
    run(kv, PROMPT)
    run(kv, range(200, 212))
    run(kv, [*PROMPT[:9]])  # two blocks are found, and one of one token is taken: the tail of the first
    assert hit(kv, [*PROMPT, 1]) == [1, 2]
    start(kv, range(300, 309))
    assert hit(kv, [*PROMPT, 1]) == [1, 2]
    assert hit(kv, range(200, 213)) == [4], "evicted from the tail"


def test_a_found_prefix_is_not_evicted_for_the_rest_of_its_own_prompt() -> None:
    kv = cache(4)
    run(kv, PROMPT)
    running = start(kv, [*PROMPT[:8], *range(7)])
    assert (numbered(running.blocks), running.room) == ([1, 2, 3], 1)
    assert hit(kv, [*PROMPT, 1]) == [1, 2]


def test_equal_prompts_that_start_together_are_not_merged() -> None:
    kv = cache()
    first, second = table(PROMPT), table(PROMPT)
    assert kv.take_in(first, kv.look_up(first))
    assert kv.take_in(second, kv.look_up(second))
    kv.keep(first, 12)
    kv.keep(second, 12)
    assert (numbered(first.blocks), numbered(second.blocks)) == ([1, 2, 3], [4, 5, 6])
    assert hit(kv, [*PROMPT, 1]) == [1, 2, 3]
    kv.release(first)
    start(kv, range(1000, 1388))  # all other blocks
    assert hit(kv, [*PROMPT, 1]) == [4, 5, 6]


def test_what_follows_an_equal_block_is_found_after_either() -> None:
    kv = cache(8)
    first, second = table(PROMPT), table([*PROMPT, 1, 2, 3, 4])
    for each in (first, second):
        assert kv.take_in(each, [])
        kv.keep(each, len(each.tokens))
    kv.release(first)
    assert hit(kv, [*second.tokens, 5]) == [1, 2, 3, 7]
    start(kv, range(200, 216))
    assert hit(kv, [*second.tokens, 5]) == [4, 5, 6, 7]


def test_a_prompt_whose_log_probabilities_are_wanted_reads_nothing_and_stores_all_the_same() -> None:
    kv = cache()
    run(kv, PROMPT)
    assert hit(kv, [*PROMPT, 1], reads=False) == []
    new = start(kv, [*PROMPT, 1, 2, 3, 4], reads=False)
    assert numbered(new.blocks) == [4, 5, 6, 7]
    assert hit(kv, [*PROMPT, 1, 2, 3, 4, 5]) == [1, 2, 3, 7]


def test_adapters_salts_and_media_keep_prompts_apart() -> None:
    contents = [
        Content(),
        Content(adapter=("a", "/a")),
        Content(adapter=("a", "/b")),
        Content(adapter=("b", "/a")),
        Content(salt="s"),
        Content(salt="t"),
        Content(adapter=("a", "/a"), salt="s"),
        Content(media=[MediaSpan("i", 1, 2)]),
        Content(media=[MediaSpan("j", 1, 2)]),
        Content(media=[MediaSpan("i", 2, 2)]),
        Content(media=[MediaSpan("i", 1, 2)], salt="s"),
    ]
    kv = cache()
    numbers = [run(kv, PROMPT[:8], content) for content in contents]
    assert len({*map(tuple, numbers)}) == len(contents)
    for content, expected in zip(contents, numbers, strict=True):
        assert hit(kv, [*PROMPT[:8], 1], content) == expected


def test_media_matter_from_the_block_on_in_which_they_begin() -> None:
    kv = cache()
    run(kv, [*PROMPT, 1], Content(media=[MediaSpan("i", 6, 4)]))
    assert hit(kv, [*PROMPT, 1]) == [1]
    assert hit(kv, [*PROMPT, 1], Content(media=[MediaSpan("j", 6, 4)])) == [1]
    assert hit(kv, [*PROMPT, 1], Content(media=[MediaSpan("i", 6, 1)])) == [1, 2], "the third has none of it"
    assert hit(kv, [*PROMPT, 1], Content(media=[MediaSpan("i", 6, 4)])) == [1, 2, 3]


def test_without_sharing_nothing_is_found_or_told() -> None:
    kv = cache(4, shares=False)
    first = start(kv, PROMPT)
    assert (first.blocks, first.room, kv.records) == ([], 3, [])
    assert hit(kv, [*PROMPT, 1]) == []
    kv.release(first)
    assert kv.pool.free == 4


def test_nothing_is_cleared_while_a_block_is_held() -> None:
    kv = cache()
    running = start(kv, PROMPT)
    assert not kv.clear()
    assert hit(kv, [*PROMPT, 1]) == [1, 2, 3]
    kv.release(running)
    assert kv.clear()
    assert hit(kv, [*PROMPT, 1]) == []


def test_a_preempted_sequence_finds_what_it_computed() -> None:
    kv = cache(5)
    running = start(kv, range(6))
    assert generate(kv, running, [6, 7, 8])
    kv.release(running)
    found = kv.look_up(running)
    assert numbered(found) == [1, 2]
    assert kv.take_in(running, found)
    assert (len(running.blocks), running.room) == (2, 1)
    kv.keep(running, len(running.tokens))
    assert (len(running.blocks), running.room) == (2, 1)


def test_other_sizes_of_blocks() -> None:
    for size in (1, 8, 128):
        kv = cache(50, size)
        tokens = range(5 * size)
        assert run(kv, tokens) == [1, 2, 3, 4, 5]
        assert hit(kv, tokens) == [1, 2, 3, 4]
        assert hit(kv, [*tokens[: 3 * size], 1 << 31, *tokens]) == [1, 2, 3]


def test_a_table_of_a_sequence_that_never_began_may_be_released() -> None:
    kv = cache(2)
    kv.release(table(PROMPT))
    assert kv.pool.free == 2
