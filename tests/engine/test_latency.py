"""The latency model: formulas, load factor, and how far times vary."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import mean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdsim.config import parse
from llmdsim.engine.latency import Latency, LatencySettings, varied
from tests.engine.rig import Settings

PER_TOKEN = {"prefill_overhead": 0.03, "prefill_time_per_token": 0.00025}
PER_TOKEN_TIME = 0.03 + (100 - 20) * 0.00025


@pytest.mark.parametrize(
    ("calculator", "options", "expected"),
    [
        ("constant", {"time_to_first_token": 0.1, **PER_TOKEN}, 0.1),
        ("constant", PER_TOKEN, 0.0),
        ("per-token", {"time_to_first_token": 0.1, **PER_TOKEN}, PER_TOKEN_TIME),
        ("per-token", {"time_to_first_token": 0.1}, 0.0),
        ("", {"time_to_first_token": 0.1, **PER_TOKEN}, 0.1),
        ("", PER_TOKEN, PER_TOKEN_TIME),
        # A deviation of the constant time is enough to have asked for it.
        ("", {"time_to_first_token_std_dev": 0.01, **PER_TOKEN}, 0.0),
        ("", {}, 0.0),
    ],
)
def test_which_prefill_counts(calculator: str, options: dict[str, float], expected: float) -> None:
    latency = Latency(Settings(latency_calculator=calculator, **options))
    assert latency.prefill(100, 20, 1) == pytest.approx(expected)
    if latency.constant_prefill is not None:
        assert latency.constant_prefill == expected


TRANSFER = {"kv_cache_transfer_time_per_token": 0.000003}


@pytest.mark.parametrize(
    ("calculator", "options", "expected"),
    [
        ("constant", {"kv_cache_transfer_latency": 0.002, **TRANSFER}, 0.002),
        ("constant", TRANSFER, 0.0),
        ("per-token", {"kv_cache_transfer_latency": 0.002, **TRANSFER}, 0.003),
        ("per-token", {"kv_cache_transfer_latency": 0.002}, 0.0),
        ("", {"kv_cache_transfer_latency": 0.002, **TRANSFER}, 0.002),
        ("", TRANSFER, 0.003),
        ("", {"kv_cache_transfer_latency_std_dev": 0.01, **TRANSFER}, 0.0),
        ("", {}, 0.0),
        # A constant prefill does not make the transfer constant, nor a transfer the prefill.
        ("", {"time_to_first_token": 0.1, **TRANSFER}, 0.003),
    ],
)
def test_which_transfer_counts(calculator: str, options: dict[str, float], expected: float) -> None:
    latency = Latency(Settings(latency_calculator=calculator, **options))
    assert latency.transfer(1000) == pytest.approx(expected)


def test_a_constant_transfer_does_not_make_the_prefill_constant() -> None:
    latency = Latency(Settings(kv_cache_transfer_latency=0.002, **PER_TOKEN))
    assert latency.prefill(100, 20, 1) == pytest.approx(PER_TOKEN_TIME)


def test_load_does_not_slow_a_transfer() -> None:
    for options in (TRANSFER, {"kv_cache_transfer_latency": 0.003}):
        latency = Latency(Settings(time_factor_under_load=9.0, max_num_seqs=2, **options))
        assert latency.transfer(1000) == pytest.approx(0.003)


@pytest.mark.parametrize(
    ("mean_option", "deviation_option"),
    [
        ("kv_cache_transfer_latency", "kv_cache_transfer_latency_std_dev"),
        ("kv_cache_transfer_time_per_token", "kv_cache_transfer_time_std_dev"),
    ],
)
def test_a_transfer_varies_by_its_own_deviation(mean_option: str, deviation_option: str) -> None:
    latency = Latency(Settings(**{mean_option: 0.0005, deviation_option: 0.00005}))
    found = [latency.transfer(1) for _ in range(2000)]
    assert mean(found) == pytest.approx(0.0005, rel=0.01)
    assert stdev(found) == pytest.approx(0.00005, rel=0.1)


@pytest.mark.parametrize("deviation", ["prefill_time_std_dev", "kv_cache_transfer_time_std_dev"])
def test_deviations_by_tokens_have_no_bound_but_draws_do(deviation: str) -> None:
    latency = Latency(Settings(prefill_overhead=1.0, kv_cache_transfer_time_per_token=1.0, **{deviation: 50}))
    found = [latency.prefill(1, 0, 1) + latency.transfer(1) for _ in range(200)]
    assert (min(found), max(found)) == pytest.approx((1.3, 2.7))


#: Of each profile with P = 1000 prompt tokens and 200 of them cached, and R = 1 and R = N running.
WORKED = [
    # 100 ms | 30 + 800 * 0.25 = 230 ms | 12 ms | 2 ms | 1000 * 3 us = 3 ms; twice as much at R = 16
    ("8b-h100", 1, 0.100, 0.230, 0.012, 0.002, 0.003),
    ("8b-h100", 16, 0.200, 0.460, 0.024, 0.002, 0.003),
    # load = 1 + 1 * 4 / 15 = 1.2667: 126.67 ms | 291.33 ms | 15.2 ms
    ("8b-h100", 5, 0.1 * 19 / 15, 0.23 * 19 / 15, 0.0152, 0.002, 0.003),
    # 200 ms | 80 + 800 * 0.5 = 480 ms | 25 ms | 2 ms | 1000 * 8 us = 8 ms; three times as much at R = 64
    ("70b-8xh100", 1, 0.200, 0.480, 0.025, 0.002, 0.008),
    ("70b-8xh100", 64, 0.600, 1.440, 0.075, 0.002, 0.008),
    # 110 ms | 20 + 800 * 0.35 = 300 ms | 15 ms | 5 ms | 1000 * 12 us = 12 ms; half as much again at R = 4
    ("3b-l40s", 1, 0.110, 0.300, 0.015, 0.005, 0.012),
    ("3b-l40s", 4, 0.165, 0.450, 0.0225, 0.005, 0.012),
]
PROFILES = Path(__file__).parents[2] / "etc" / "profiles"


@pytest.mark.parametrize(("profile", "running", "first", "prefill", "gap", "moved", "moved_by_token"), WORKED)
def test_the_profiles_by_worked_numbers(
    profile: str,
    running: int,
    first: float,
    prefill: float,
    gap: float,
    moved: float,
    moved_by_token: float,
) -> None:
    config = parse(["--model", "m", "--config", str(PROFILES / f"{profile}.yaml")], {})
    exact = replace(
        config,
        time_to_first_token_std_dev=0.0,
        inter_token_latency_std_dev=0.0,
        prefill_time_std_dev=0.0,
        kv_cache_transfer_latency_std_dev=0.0,
        kv_cache_transfer_time_std_dev=0.0,
    )
    constant = Latency(exact)
    by_token = Latency(replace(exact, latency_calculator="per-token"))
    assert constant.prefill(1000, 200, running) == pytest.approx(first, abs=1e-12)
    assert by_token.prefill(1000, 200, running) == pytest.approx(prefill, abs=1e-12)
    assert constant.gap(running) == by_token.gap(running) == pytest.approx(gap, abs=1e-12)
    assert constant.transfer(1000) == pytest.approx(moved, abs=1e-12)
    assert by_token.transfer(1000) == pytest.approx(moved_by_token, abs=1e-12)


@pytest.mark.parametrize("profile", sorted(path.stem for path in PROFILES.iterdir()))
def test_every_profile_is_worked(profile: str) -> None:
    assert profile in {row[0] for row in WORKED}


@pytest.mark.parametrize("speed", [0.5, 1.0, 10.0])
def test_speed_divides_everything_deviations_too(speed: float) -> None:
    options = {
        "time_to_first_token": 0.1,
        "time_to_first_token_std_dev": 0.03,
        "inter_token_latency": 0.02,
        "inter_token_latency_std_dev": 0.004,
        "kv_cache_transfer_latency": 0.003,
        "kv_cache_transfer_latency_std_dev": 0.0009,
        "time_to_generate_image": 2.0,
        "time_to_generate_image_std_dev": 0.4,
        "time_factor_under_load": 2.0,
    }
    plain, fast = Latency(Settings(**options)), Latency(Settings(**options, speed=speed))
    for _ in range(20):
        assert fast.prefill(7, 0, 3) == plain.prefill(7, 0, 3) / speed
        assert fast.gap(3) == plain.gap(3) / speed
        assert fast.transfer(7) == plain.transfer(7) / speed
        assert fast.image() == plain.image() / speed


def test_speed_divides_what_is_constant() -> None:
    latency = Latency(Settings(time_to_first_token=0.5, inter_token_latency=0.25, speed=4.0))
    assert (latency.constant_prefill, latency.constant_gap) == (0.125, 0.0625)
    latency = Latency(Settings(**PER_TOKEN, speed=4.0))
    assert latency.prefill(100, 20, 1) == pytest.approx(PER_TOKEN_TIME / 4)


def test_only_what_differs_is_a_change() -> None:
    settings = Settings(inter_token_latency=0.02)
    latency = Latency(settings)
    assert not latency.configure(replace(settings, seed=5))
    for name in sorted(vars(LatencySettings).keys() & vars(settings).keys() - {"seed", "max_num_seqs"}):
        changed = "constant" if name == "latency_calculator" else 7.0
        assert latency.configure(replace(settings, **{name: changed})), name  # type: ignore[arg-type]
        assert latency.configure(settings), name
    assert latency.gap(1) == 0.02


SECONDS = st.sampled_from([0.0, 0.001, 0.1])


@given(
    calculator=st.sampled_from(["", "constant", "per-token"]),
    names=st.fixed_dictionaries(
        {
            "time_to_first_token": SECONDS,
            "time_to_first_token_std_dev": SECONDS,
            "prefill_overhead": SECONDS,
            "prefill_time_per_token": SECONDS,
            "prefill_time_std_dev": SECONDS,
            "inter_token_latency": SECONDS,
            "inter_token_latency_std_dev": SECONDS,
            "time_factor_under_load": st.sampled_from([1.0, 2.0]),
        }
    ),
    running=st.integers(1, 5),
    prompt=st.integers(1, 100),
)
def test_what_is_called_constant_is(
    calculator: str, names: dict[str, float], running: int, prompt: int
) -> None:
    latency = Latency(Settings(latency_calculator=calculator, max_num_seqs=5, **names))
    if latency.constant_prefill is not None:
        assert latency.prefill(prompt, 0, running) == latency.constant_prefill
    if latency.constant_gap is not None:
        assert latency.gap(running) == latency.constant_gap


@pytest.mark.parametrize(
    ("factor", "slots", "running", "load"),
    [
        (3.0, 5, 1, 1.0),
        (3.0, 5, 2, 1.5),
        (3.0, 5, 5, 3.0),
        (1.0, 5, 5, 1.0),
        (2.0, 2, 2, 2.0),
        (7.0, 1, 1, 1.0),
    ],
)
def test_the_load_factor(factor: float, slots: int, running: int, load: float) -> None:
    settings = Settings(
        time_factor_under_load=factor,
        max_num_seqs=slots,
        time_to_first_token=0.25,
        inter_token_latency=0.125,
    )
    latency = Latency(settings)
    assert latency.load(running) == load
    assert latency.prefill(1, 0, running) == 0.25 * load
    assert latency.gap(running) == 0.125 * load


def test_the_load_factor_applies_to_overhead_and_tokens() -> None:
    settings = Settings(**PER_TOKEN, time_factor_under_load=2.0, max_num_seqs=2)
    assert Latency(settings).prefill(100, 20, 2) == pytest.approx(2 * PER_TOKEN_TIME)


@given(
    average=st.floats(1e-6, 100.0),
    std_dev=st.floats(0.0, 1000.0),
    seed=st.integers(),
)
def test_a_varied_time_stays_within_seventy_percent(average: float, std_dev: float, seed: int) -> None:
    random = Random(seed)
    for _ in range(20):
        assert 0.3 * average - 1e-12 <= varied(average, std_dev, random) <= 1.7 * average + 1e-12


def test_an_oversize_deviation_reaches_both_bounds() -> None:
    random = Random(1)
    found = {round(varied(1.0, 100.0, random), 9) for _ in range(200)}
    assert min(found) == 0.3
    assert max(found) == 1.7


def test_variation_is_normal_around_the_mean() -> None:
    random = Random(1)
    found = [varied(0.1, 0.01, random) for _ in range(5000)]
    assert mean(found) == pytest.approx(0.1, rel=0.01)
    assert stdev(found) == pytest.approx(0.01, rel=0.05)


@pytest.mark.parametrize(("average", "std_dev"), [(0.1, 0.0), (0.0, 0.1), (0.0, 0.0)])
def test_no_deviation_or_no_time_is_exact(average: float, std_dev: float) -> None:
    assert varied(average, std_dev, Random(1)) == average


@pytest.mark.parametrize(
    ("mean_option", "deviation_option"),
    [
        ("time_to_first_token", "time_to_first_token_std_dev"),
        ("prefill_overhead", "prefill_time_std_dev"),
    ],
)
def test_a_prefill_varies_by_its_own_deviation(mean_option: str, deviation_option: str) -> None:
    latency = Latency(Settings(**{mean_option: 0.1, deviation_option: 0.01}))
    found = [latency.prefill(10, 0, 1) for _ in range(2000)]
    assert mean(found) == pytest.approx(0.1, rel=0.01)
    assert stdev(found) == pytest.approx(0.01, rel=0.1)
    assert latency.gap(1) == 0.0


def test_a_gap_varies_by_its_own_deviation() -> None:
    latency = Latency(
        Settings(inter_token_latency=0.02, inter_token_latency_std_dev=0.002, time_to_first_token_std_dev=0.5)
    )
    found = [latency.gap(1) for _ in range(2000)]
    assert mean(found) == pytest.approx(0.02, rel=0.01)
    assert stdev(found) == pytest.approx(0.002, rel=0.1)


@pytest.mark.parametrize("running", [1, 4])
def test_load_scales_the_mean_and_never_the_deviation(running: int) -> None:
    settings = Settings(
        inter_token_latency=0.02, inter_token_latency_std_dev=0.001, time_factor_under_load=10.0
    )
    found = [Latency(settings).gap(running)]
    latency = Latency(settings)
    found = [latency.gap(running) for _ in range(2000)]
    assert mean(found) == pytest.approx(0.02 * (10.0 if running == 4 else 1.0), rel=0.01)
    assert stdev(found) == pytest.approx(0.001, rel=0.1)


def test_the_bounds_are_those_of_the_loaded_mean() -> None:
    settings = Settings(
        inter_token_latency=0.02, inter_token_latency_std_dev=9.0, time_factor_under_load=10.0
    )
    latency = Latency(settings)
    found = [latency.gap(4) for _ in range(200)]
    assert min(found) == pytest.approx(0.06)
    assert max(found) == pytest.approx(0.34)


def test_fractions_of_a_millisecond_count() -> None:
    latency = Latency(
        Settings(
            time_to_first_token=0.0425,
            inter_token_latency=0.0004,
            inter_token_latency_std_dev=0.00005,
            time_factor_under_load=1.5,
        )
    )
    assert latency.prefill(1, 0, 1) == 0.0425
    found = [latency.gap(4) for _ in range(2000)]
    assert mean(found) == pytest.approx(0.0006, rel=0.01)
    assert stdev(found) == pytest.approx(0.00005, rel=0.1)


@pytest.mark.parametrize(
    ("options", "constant"),
    [
        ({}, True),
        ({"time_to_first_token_std_dev": 0.1, "time_to_first_token": 1.0}, True),
        ({"inter_token_latency_std_dev": 0.001}, False),
        ({"time_factor_under_load": 2.0}, False),
        ({"time_factor_under_load": 2.0, "max_num_seqs": 1}, True),
    ],
)
def test_a_gap_is_called_constant_only_where_it_is(options: dict[str, float], constant: bool) -> None:
    latency = Latency(Settings(inter_token_latency=0.02, **options))  # type: ignore[arg-type]
    assert latency.constant_gap == (0.02 if constant else None)


def test_a_seed_repeats_the_times_and_none_does_not() -> None:
    def gaps(seed: int | None) -> list[float]:
        settings = Settings(inter_token_latency=0.02, inter_token_latency_std_dev=0.004, seed=seed)
        latency = Latency(settings)
        return [latency.gap(1) for _ in range(10)]

    assert gaps(7) == gaps(7)
    assert gaps(7) != gaps(8)
    assert gaps(None) != gaps(None)


def test_the_model_reads_a_real_configuration() -> None:
    flags = (
        "--model m --max-num-seqs 3 --time-factor-under-load 3 --time-to-first-token 100us "
        "--inter-token-latency 12.5ms --prefill-overhead 1s"
    )
    latency = Latency(parse(flags.split(), {}))
    assert latency.prefill(10, 0, 2) == pytest.approx(0.0002)
    assert latency.gap(3) == pytest.approx(0.0375)
