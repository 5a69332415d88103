"""Copies in the host's memory: what is kept there, what is found there, and what is told of them."""

from __future__ import annotations

from array import array

from llmdsim.engine.kvcache import Cleared, Content, Removed, Stored
from llmdsim.engine.kvcache.records import CPU
from tests.engine.kvcache import rig
from tests.engine.kvcache.rig import SIZE, Cache, generate, run, start, table, told

PROMPT = range(100, 112)
OTHER = range(200, 212)


def cache(blocks: int, host: int, events: bool = False) -> Cache:
    return rig.cache(blocks, events=events, host=host)


def found(kv: Cache, tokens: list[int] | range, content: Content = Content()) -> tuple[int, int]:  # noqa: B008
    """Blocks found, and those that the host has after them."""
    new = table(tokens, content)
    here = kv.look_up(new)
    return len(here), kv.look_up_host(new, here)


def test_what_was_evicted_is_found_in_the_host() -> None:
    kv = cache(3, 10)
    run(kv, PROMPT)
    assert found(kv, [*PROMPT, 1]) == (3, 0)
    run(kv, OTHER[:8])
    assert found(kv, [*PROMPT, 1]) == (1, 2), "the host goes on where the device ends"
    run(kv, OTHER)
    assert found(kv, [*PROMPT, 1]) == (0, 3)
    assert found(kv, PROMPT) == (0, 2), "all but the last token"
    assert found(kv, [*PROMPT[:4], 0, *PROMPT[5:], 1]) == (0, 1)


def test_what_comes_back_is_the_same_content_again() -> None:
    kv = cache(4, 10)
    run(kv, [*PROMPT, 1, 2, 3, 4])
    run(kv, range(300, 316))
    run(kv, PROMPT[:8])
    assert found(kv, [*PROMPT, 1, 2, 3, 4, 5]) == (2, 2), "what follows it in the host still does"


def test_the_least_recently_used_copy_is_given_up_and_a_prompts_end_before_its_beginning() -> None:
    kv = cache(3, 5)
    run(kv, PROMPT)
    run(kv, OTHER)
    run(kv, range(300, 312))
    assert [found(kv, [*each, 1]) for each in (PROMPT, OTHER)] == [(0, 0), (0, 2)]
    run(kv, [*OTHER[:8], 1])
    run(kv, range(400, 408))
    assert found(kv, [*OTHER, 1]) == (1, 1), "it was used again"
    assert found(kv, range(300, 313)) == (0, 1)


def test_a_prompt_longer_than_the_host_has_its_beginning_there() -> None:
    kv = cache(4, 2)
    run(kv, [*PROMPT, 1, 2, 3, 4])
    run(kv, range(300, 308))
    run(kv, range(300, 316))
    assert len(kv.host or ()) == 2


def test_generated_blocks_are_copied_too() -> None:
    kv = cache(4, 10)
    running = start(kv, range(6))
    generate(kv, running, [6, 7, 8])
    kv.release(running)
    run(kv, range(300, 316))
    assert found(kv, [*range(9)]) == (0, 2)


def test_adapters_and_salts_are_kept_apart() -> None:
    kv = cache(3, 10)
    run(kv, PROMPT, Content(salt="s"))
    run(kv, OTHER)
    assert found(kv, [*PROMPT, 1]) == (0, 0)
    assert found(kv, [*PROMPT, 1], Content(salt="s")) == (0, 3)


def test_a_prompt_that_is_not_looked_up_is_not_looked_for_in_the_host() -> None:
    kv = cache(3, 10)
    run(kv, PROMPT)
    run(kv, OTHER)
    assert kv.look_up_host(table([*PROMPT, 1], reads=False), []) == 0


def test_r72_each_medium_is_told_for_itself() -> None:
    kv = cache(3, 4, events=True)
    run(kv, PROMPT)
    here, there = told(kv)
    assert isinstance(here, Stored)
    assert there == here._replace(medium=CPU)
    run(kv, OTHER[:8])
    _, second, third = here.hashes
    removed, stored = [Removed(third), Removed(second)], here.hashes
    other = told(kv)
    assert other[:2] == removed
    assert isinstance(other[2], Stored)
    assert other[3:] == [Removed(stored[2], CPU), other[2]._replace(medium=CPU)]
    run(kv, PROMPT)
    gone, back, out, again = told(kv)[-4:]
    assert (gone, back) == (
        Removed(other[2].hashes[0]),
        Stored(stored[1:], stored[0], array("I", PROMPT[4:]), SIZE),
    )
    assert out == Removed(other[2].hashes[1], CPU)
    assert again == Stored(stored[2:], stored[1], array("I", PROMPT[8:]), SIZE, medium=CPU)


def test_clearing_forgets_the_copies_as_well() -> None:
    kv = cache(3, 10, events=True)
    run(kv, PROMPT)
    told(kv)
    assert kv.clear()
    assert told(kv) == [Cleared()], "for every medium"
    assert found(kv, [*PROMPT, 1]) == (0, 0)
