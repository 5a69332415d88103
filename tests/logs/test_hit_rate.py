"""Hit rates are those of the most recent requests."""

from __future__ import annotations

from llmdsim.logs.hit_rate import RECENT, HitRate, Lookups


def rate_of(*groups: Lookups) -> float | None:
    rate = HitRate()
    for group in groups:
        rate.add(group)
    return rate.percent


def test_where_nothing_was_looked_up_there_is_none() -> None:
    assert rate_of() is None
    assert rate_of(Lookups(0, 0, 0)) is None
    assert rate_of(Lookups(1, 0, 0)) == 0


def test_tokens_count_not_requests() -> None:
    assert rate_of(Lookups(1, 10, 10), Lookups(1, 90, 0)) == 10


def test_old_groups_are_left_out() -> None:
    old, new = Lookups(1, 100, 100), Lookups(RECENT - 1, 100, 0)
    assert rate_of(old, new) == 50
    assert rate_of(old, new, Lookups(0, 0, 0)) == 50
    assert rate_of(old, new, Lookups(1, 100, 100)) == 50
    assert rate_of(old, new, Lookups(2, 100, 100)) == 100


def test_the_latest_group_counts_however_large_it_is() -> None:
    assert rate_of(Lookups(1, 100, 100), Lookups(5 * RECENT, 100, 20)) == 20


def test_it_forgets() -> None:
    rate = HitRate()
    rate.add(Lookups(RECENT, 1, 1))
    rate.clear()
    assert rate.percent is None
    rate.add(Lookups(1, 2, 1))
    rate.add(Lookups(RECENT - 1, 2, 1))
    assert rate.percent == 50


def test_groups_are_what_came_to_those_before() -> None:
    assert Lookups(5, 50, 7).since(Lookups(2, 20, 7)) == Lookups(3, 30, 0)
