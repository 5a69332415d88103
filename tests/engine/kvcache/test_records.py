"""What is told of blocks (vLLM's block_pool.py): every store, every removal, in their order."""

from __future__ import annotations

from array import array

from llmdsim.engine.kvcache import BlockHash, Cleared, Content, Removed, Stored
from llmdsim.tokenization.prompt import MediaSpan
from tests.engine.kvcache.rig import SIZE, SpelledOut, cache, generate, run, start, table, told

PROMPT = range(100, 112)


def hashes(tokens: list[int] | range, content: Content = Content()) -> list[BlockHash]:  # noqa: B008
    """Those of the blocks that the tokens fill."""
    hasher = SpelledOut()
    parent = hasher.root(content.adapter[0] if content.adapter else None)
    made: list[BlockHash] = []
    for at in range(0, len(tokens) - SIZE + 1, SIZE):
        part = array("I", tokens[at : at + SIZE])
        parent = hasher.block(parent, part, content.extra(at, at + SIZE))
        made.append(parent)
    return made


def test_blocks_stored_together_are_told_together() -> None:
    kv = cache()
    start(kv, [*PROMPT, 1])
    assert told(kv) == [Stored(hashes(PROMPT), None, array("I", PROMPT), SIZE)]


def test_the_parent_is_the_block_directly_before() -> None:
    kv = cache()
    run(kv, PROMPT)
    told(kv)
    longer = [*PROMPT, *range(8)]
    start(kv, longer)
    made = hashes(longer)
    assert told(kv) == [Stored(made[3:], made[2], array("I", range(8)), SIZE)]


def test_a_prompt_that_is_found_whole_tells_nothing_and_its_last_block_is_told_again() -> None:
    kv = cache()
    run(kv, [*PROMPT, 1])
    told(kv)
    run(kv, [*PROMPT, 1])
    assert told(kv) == []
    run(kv, PROMPT)
    made = hashes(PROMPT)
    assert told(kv) == [Stored(made[2:], made[1], array("I", PROMPT[8:]), SIZE)], "it was computed anew"


def test_generated_blocks_are_told_as_they_fill() -> None:
    kv = cache()
    running = start(kv, range(6))
    told(kv)
    generate(kv, running, [6, 7])
    assert told(kv) == []
    generate(kv, running, [8])
    made = hashes(range(8))
    assert told(kv) == [Stored(made[1:], made[0], array("I", range(4, 8)), SIZE)]


def test_every_evicted_block_is_told_before_what_takes_its_place() -> None:
    kv = cache(3)
    run(kv, PROMPT)
    told(kv)
    run(kv, range(8))
    first, second, third = hashes(PROMPT)
    assert told(kv) == [
        Removed(third),
        Removed(second),
        Stored(hashes(range(8)), None, array("I", range(8)), SIZE),
    ]
    run(kv, range(50, 54))
    assert told(kv) == [Removed(first), Stored(hashes(range(50, 54)), None, array("I", range(50, 54)), SIZE)]


def test_blocks_of_equal_content_are_each_told() -> None:
    kv = cache(4)
    first, second = table(PROMPT[:8]), table(PROMPT[:8])
    for each in (first, second):
        assert kv.take_in(each, [])
    for each in (first, second):
        kv.keep(each, 8)
        kv.release(each)
    stored = Stored(hashes(PROMPT[:8]), None, array("I", PROMPT[:8]), SIZE)
    assert told(kv) == [stored, stored]
    run(kv, range(16))
    one, two = stored.hashes
    assert told(kv)[:-1] == [Removed(two), Removed(one), Removed(two), Removed(one)]


def test_partial_blocks_are_never_told() -> None:
    kv = cache(1)
    run(kv, [1, 2, 3])
    run(kv, [4])
    assert told(kv) == []


def test_clearing_is_told_once_and_removes_nothing_one_by_one() -> None:
    kv = cache(3)
    running = start(kv, PROMPT)
    told(kv)
    assert not kv.clear()
    assert told(kv) == []
    kv.release(running)
    assert kv.clear()
    assert told(kv) == [Cleared()]
    run(kv, [1, 2, 3])
    assert told(kv) == []


def test_clearing_is_told_without_sharing_too() -> None:
    kv = cache(3, shares=False)
    assert kv.clear()
    assert told(kv) == [Cleared()]


def test_without_a_hasher_nothing_is_told() -> None:
    kv = cache(3, events=False)
    run(kv, PROMPT)
    run(kv, range(8))
    assert kv.clear()
    assert told(kv) == []


def test_adapter_salt_and_media_are_told() -> None:
    content = Content(("ad", "/ad"), 3, "salt", [MediaSpan("i", 2, 5), MediaSpan("j", 7, 3)])
    kv = cache()
    start(kv, PROMPT, content)
    keys = [("ad", ("i", 2), "salt"), ("ad", ("i", -2), ("j", 3)), ("ad", ("j", -1))]
    assert told(kv) == [Stored(hashes(PROMPT, content), None, array("I", PROMPT), SIZE, 3, "ad", keys)]


def test_a_salt_is_told_of_the_first_block_only() -> None:
    kv = cache()
    start(kv, PROMPT[:8], Content(salt="s"))
    (stored,) = told(kv)
    assert isinstance(stored, Stored)
    assert stored.extra_keys == [("s",), None]
