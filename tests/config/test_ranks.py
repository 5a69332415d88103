"""Which ranks there are, and what each is configured as."""

from dataclasses import replace

import pytest

from llmdsim.config import ConfigError, parse, rank_config, rank_numbers, updated, validate
from llmdsim.config.ranks import rank_seed


def config(*flags: str):  # type: ignore[no-untyped-def]
    return parse(["--model", "m", *flags], {})


@pytest.mark.parametrize(
    ("flags", "numbers"),
    [
        ((), [0]),
        (("-dp", "3"), [0, 1, 2]),
        (("-dpn", "0"), [0]),
        (("-dpn", "5"), [5]),
        (("-dp", "8", "-dpn", "5"), [5]),
        (("-dp", "6", "-dpn", "5"), [5]),
    ],
)
def test_the_ranks_are_those_of_the_size_or_the_one_named(flags: tuple[str, ...], numbers: list[int]) -> None:
    assert list(rank_numbers(config(*flags))) == numbers


def test_a_server_without_ranks_is_configured_as_it_is() -> None:
    given = config("--seed", "7")
    assert rank_config(given, 0) is given


def test_each_rank_has_the_next_port_and_its_share_of_the_endpoints() -> None:
    listen = [flag for name in "abcd" for flag in ("--listen", f"unix:{name}")]
    given = config(
        "-dp",
        "2",
        "--port",
        "9000",
        "--grpc-port",
        "50051",
        "--admin-listen",
        "tcp:1",
        "--admin-listen",
        "tcp:2",
        *listen,
    )
    first, second = (rank_config(given, number) for number in range(2))
    assert (first.port, second.port) == (9000, 9001)
    assert (first.grpc_port, second.grpc_port) == (50051, 50052)
    assert (first.listen, second.listen) == (("unix:a", "unix:c"), ("unix:b", "unix:d"))
    assert (first.admin_listen, second.admin_listen) == (("tcp:1",), ("tcp:2",))
    assert (first.data_parallel_rank, second.data_parallel_rank) == (0, 1)


def test_a_rank_by_itself_keeps_the_port_and_the_endpoints() -> None:
    given = config("-dp", "4", "-dpn", "2", "--port", "9000", "--listen", "unix:a")
    assert rank_config(given, 2) == replace(given, seed=None)


@pytest.mark.parametrize("flag", ["--listen", "--admin-listen"])
def test_endpoints_that_do_not_divide_are_refused(flag: str) -> None:
    with pytest.raises(ConfigError, match=f"{flag}: 1 endpoints cannot be shared out evenly to 2 ranks"):
        config("-dp", "2", flag, "unix:a")
    config("-dp", "2", "-dpn", "1", flag, "unix:a")


def test_a_rank_is_configured_as_one_that_is_started_by_itself() -> None:
    together = rank_config(config("-dp", "3", "--seed", "5", "--port", "9000"), 2)
    alone = rank_config(config("-dp", "3", "-dpn", "2", "--seed", "5", "--port", "9002"), 2)
    assert replace(together, given=frozenset()) == replace(alone, given=frozenset())


def test_rank_0_keeps_the_seed_and_no_two_others_share_one() -> None:
    assert rank_seed(5, 0) == 5
    seeds = [rank_seed(seed, rank) for seed in range(-3, 300) for rank in range(8)]
    assert len(set(seeds)) == len(seeds)
    assert [rank_seed(None, rank) for rank in range(8)] == [None] * 8
    # The same in every version and process.
    assert rank_seed(5, 1) == 278825288268728


def test_what_may_change_can_be_changed_at_the_last_port_too() -> None:
    given = config("-dp", "2", "--port", "65534")
    validate(given)
    assert updated(rank_config(given, 1), {"time-to-first-token": "1s"}).time_to_first_token == 1
