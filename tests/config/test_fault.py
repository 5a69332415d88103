"""How one fault is written."""

from __future__ import annotations

import re

import pytest

from llmdsim.config import ConfigError, parse
from llmdsim.config.fault import KINDS, Fault, parse_fault
from llmdsim.config.fault_text import LONGEST_TEXT


def test_everything_a_fault_may_say() -> None:
    assert parse_fault(" Stall ;after=3; FOR = 250ms;times=2 ; key= mine ;") == Fault(
        kind="stall", after=3, seconds=0.25, code=500, retry_after=None, times=2, key="mine"
    )
    fault = parse_fault("status; code=429; retry-after=7")
    assert (fault.code, fault.retry_after, fault.times) == (429, 7, None)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_needs_nothing_but_its_name(kind: str) -> None:
    fault = parse_fault(kind)
    within = kind in ("truncate", "garble", "slow-body")
    assert fault.after == (0 if within else None)
    assert fault.code == (503 if kind == "status" else 500)
    assert fault.times is None
    assert (fault.seconds > 0) == (kind in ("stall", "slow-headers", "slow-body", "hang"))


def test_a_bare_number_of_time_is_seconds() -> None:
    assert parse_fault("hang; for=3").seconds == 3.0
    assert parse_fault("hang; for=1h").seconds == 3600.0
    assert parse_fault("stall; for=0").seconds == 0.0


def test_without_a_key_requests_are_counted_by_the_text() -> None:
    assert parse_fault("reset; times=1").key == "reset; times=1"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "'' is not a kind of fault; there are reset, stall, truncate"),
        ("explode", "'explode' is not a kind of fault"),
        ("reset, stall", "'reset, stall' is not a kind of fault"),
        ("reset; for=1s", "'for=1s' is not one of after=, times=, key=, which reset may have"),
        ("no-done; after=1", "'after=1' is not one of times=, key=, which no-done may have"),
        ("reset; after", "'after' is not one of after=,"),
        ("reset; after=1; after=2", "after is given twice"),
        ("reset; after=", "after= is not an integer from 0 to 1000000000"),
        ("reset; after=-1", "after=-1 is not an integer from 0"),
        ("reset; after=1.5", "after=1.5 is not an integer"),
        ("reset; after=\u0663", "is not an integer"),
        ("reset; after=99999999999", "is not an integer"),
        ("status; code=200", "code=200 is not an integer from 400 to 599"),
        ("status; code=600", "code=600 is not an integer from 400 to 599"),
        ("error; retry-after=86401", "retry-after=86401 is not an integer from 0 to 86400"),
        ("reset; times=0", "times=0 is not an integer from 1 to 1000000"),
        ("stall; for=soon", "for=soon is not a duration of at most 1h0m0s"),
        ("stall; for=-1s", "for=-1s is not a duration"),
        ("hang; for=3601s", "for=3601s is not a duration"),
        ("reset" + ";" * LONGEST_TEXT, "a fault is at most 200 characters long"),
    ],
)
def test_what_is_wrong_is_told(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        parse_fault(text)


def test_options_are_refused_at_start() -> None:
    config = parse(["--model", "m", "--faults", "reset; after=3", "no-done", "--fault-rate", "0.5"], {})
    assert (config.faults, config.fault_rate) == (("reset; after=3", "no-done"), 0.5)
    with pytest.raises(ConfigError, match=r"^--faults: 'explode' is not a kind of fault"):
        parse(["--model", "m", "--faults", "reset", "explode"], {})
    with pytest.raises(ConfigError, match="--fault-rate"):
        parse(["--model", "m", "--fault-rate", "101"], {})
