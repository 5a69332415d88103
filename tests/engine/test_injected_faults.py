"""Which requests fail on purpose: chance with a seed of its own, and the first few of a key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from llmdsim.config import parse
from llmdsim.engine.faults import FAILURE_TYPES, MOST_KEYS, Faults
from llmdsim.engine.stats import Stats


def faults(*flags: str) -> Faults:
    return Faults(parse(["--model", "m", *flags], {}), Stats(1024))


def kinds(drawn: Iterable[Any]) -> list[str | None]:
    return [fault and fault.kind for fault in drawn]


def test_by_default_nothing_fails_by_chance() -> None:
    source = faults()
    assert not source.by_chance
    assert source.draw_failure() is None
    assert source.draw_fault() is None
    assert not faults("--faults", "reset", "--fault-rate", "0").by_chance
    assert faults("--faults", "reset").by_chance
    assert faults("--failure-injection-rate", "1").by_chance


def test_a_rate_of_100_is_always_and_every_type_comes() -> None:
    source = faults("--failure-injection-rate", "100", "--seed", "1")
    drawn = Counter(source.draw_failure() for _ in range(600))
    assert set(drawn) == set(FAILURE_TYPES)
    assert min(drawn.values()) > 60
    source = faults("--failure-injection-rate", "100", "--failure-types", "rate_limit", "server_error")
    assert {source.draw_failure() for _ in range(100)} == {"rate_limit", "server_error"}


def test_rates_are_percentages() -> None:
    source = faults("--failure-injection-rate", "20", "--seed", "1")
    assert 150 < sum(source.draw_failure() is not None for _ in range(1000)) < 250
    source = faults("--faults", "reset", "stall", "--fault-rate", "0.5", "--seed", "1")
    drawn = Counter(kinds(source.draw_fault() for _ in range(20_000)))
    assert 60 < drawn["reset"] + drawn["stall"] < 140
    assert min(drawn.values()) > 25


@pytest.mark.parametrize("flags", [["--failure-injection-rate", "30"], ["--fault-rate", "30"]])
def test_the_same_seed_fails_the_same_requests(flags: list[str]) -> None:
    def drawn(seed: str) -> list[object]:
        source = faults("--faults", "reset", "no-done", *flags, "--seed", seed)
        return [draw for _ in range(200) for draw in (source.draw_failure(), source.draw_fault())]

    assert drawn("7") == drawn("7")
    assert drawn("7") != drawn("8")


def test_without_a_seed_each_start_differs() -> None:
    first, second = (faults("--failure-injection-rate", "50") for _ in range(2))
    assert [first.draw_failure() for _ in range(200)] != [second.draw_failure() for _ in range(200)]


def test_the_first_few_fail_and_later_ones_work() -> None:
    source = faults()
    asked = [source.asked_for("status; times=2; key=a") for _ in range(5)]
    assert kinds(asked) == ["status", "status", None, None, None]
    assert kinds([source.asked_for("status; times=1; key=b")]) == ["status"]
    assert kinds([source.asked_for("status; times=9; key=a")]) == ["status"], "three of nine"
    assert kinds(source.asked_for("reset; times=1") for _ in range(2)) == ["reset", None]
    assert kinds(source.asked_for("reset") for _ in range(3)) == ["reset"] * 3


def test_drawn_faults_work_later_too_and_are_counted_apart() -> None:
    source = faults("--faults", "status; times=2")
    assert kinds([source.asked_for("status; times=2")]) == ["status"]
    assert kinds(source.draw_fault() for _ in range(4)) == ["status", "status", None, None]
    assert kinds([source.asked_for("status; times=2")]) == ["status"]


def test_of_many_keys_the_one_not_asked_for_the_longest_is_forgotten() -> None:
    source = faults()
    source.asked_for("reset; times=1; key=first")
    source.asked_for("reset; times=1; key=second")
    for number in range(MOST_KEYS - 2):
        source.asked_for(f"reset; times=1; key={number}")
    assert source.asked_for("reset; times=1; key=first") is None
    source.asked_for("reset; times=1; key=one more")
    assert source.asked_for("reset; times=1; key=first") is None
    assert source.asked_for("reset; times=1; key=second") is not None


def test_a_change_of_options_counts_from_now_on() -> None:
    source = faults("--faults", "status; times=1", "--seed", "1")
    source.asked_for("reset; times=1; key=a")
    source.draw_fault()
    assert source.draw_fault() is None
    changed = parse(["--model", "m", "--faults", "status; times=1", "--failure-injection-rate", "100"], {})
    source.configure(changed)
    assert source.draw_failure() is not None
    assert source.draw_fault() is None
    assert source.asked_for("reset; times=1; key=a") is None
    source.configure(parse(["--model", "m"], {}))
    assert not source.by_chance


def test_what_is_no_fault_is_refused() -> None:
    with pytest.raises(ValueError, match="not a kind"):
        faults().asked_for("nothing")
