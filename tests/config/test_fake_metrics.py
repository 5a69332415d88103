"""Members of `--fake-metrics`: what they may be, how they may be written, and how they are changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llmdsim.config import (
    ConfigError,
    FakeMetrics,
    MetricFunction,
    parse,
    parse_function,
    read_fake_metrics,
    unknown_members,
    updated,
)

ROOT = Path(__file__).parents[2]
MEMBERS = {field.encode_name for field in msgspec.structs.fields(FakeMetrics)}
COUNTS = {
    *(f"{name}-buckets-values" for name in ("ttft", "tpot", "request-tpot", "e2erl", "queue-time")),
    *(f"{name}-time-buckets-values" for name in ("inf", "prefill", "decode")),
    *("request-prompt-tokens", "request-generation-tokens"),
    *("request-params-max-tokens", "request-max-generation-tokens"),
}
NUMBERS = {"total-prompt-tokens", "total-generation-tokens", "prefix-cache-hits", "prefix-cache-queries"}


def started(**metrics: Any) -> Any:
    flags = ["--model", "m", "--fake-metrics", json.dumps(metrics)]
    return parse(flags, {})


def named(**metrics: Any) -> dict[str, Any]:
    return {name.replace("_", "-"): value for name, value in metrics.items()}


def refusal(metrics: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        started(**metrics)
    message = str(caught.value)
    assert message.startswith("--fake-metrics: ")
    assert message.isprintable()
    return message


def test_the_example_has_every_member() -> None:
    path = ROOT / "etc" / "fake-metrics.yaml"
    given = parse(["--model", "m", "--fake-metrics", str(path)], {}).fake_metrics
    assert given is not None
    assert given.keys() | {"total-generation-tokens"} == MEMBERS
    metrics = read_fake_metrics(given)
    assert metrics.waiting_requests == "ramp:0:40:2m"
    assert metrics.loras is not None
    assert metrics.loras[1].timestamp == 1767225605.5


def test_every_member_has_its_page_entry() -> None:
    page = (ROOT / "docs" / "scripted-metrics.md").read_text()
    assert [name for name in MEMBERS if f"`{name}`" not in page] == []


@pytest.mark.parametrize("name", sorted(COUNTS))
@pytest.mark.parametrize("value", [[-1], [1.5], ["1"], [None], 1, "1", {}, [2**63], [True]])
def test_counts_are_lists_of_whole_numbers(name: str, value: object) -> None:
    assert name in refusal({name: value})


@pytest.mark.parametrize("name", sorted(NUMBERS))
@pytest.mark.parametrize("value", [-1, 1.5, "1", [], 2**64, 1e30])
def test_totals_are_whole_numbers(name: str, value: object) -> None:
    assert name in refusal({name: value})


@pytest.mark.parametrize("name", sorted(COUNTS))
def test_lists_are_bounded(name: str) -> None:
    most = {"ttft-buckets-values": 23, "tpot-buckets-values": 20}.get(name, 128)
    started(**{name: [1] * most})
    assert name in refusal({name: [1] * (most + 1)})


def test_adapters_are_bounded() -> None:
    started(loras=[{}] * 256)
    assert "loras" in refusal({"loras": [{}] * 257})


@pytest.mark.parametrize("name", ["running-requests", "waiting-requests", "kv-cache-usage"])
@pytest.mark.parametrize(
    "value",
    [
        *(
            -1,
            -0.5,
            [],
            {},
            True,
            "",
            "5",
            "ramp",
            "ramp:1:2",
            "ramp:1:2:3s:4",
            "sine:0:1:1s",
        ),
        *(
            "ramp:-1:0:1s",
            "ramp:0:-1:1s",
            "ramp:0:1:0s",
            "ramp:0:1:-1s",
            "ramp:0:1:soon",
            "ramp:0:x:1s",
            "ramp:nan:1:1s",
        ),
        *("ramp:0:inf:1s", "ramp:0:1e301:1s", " ramp:0:1:1s", "RAMP:0:1:1s", "ramp:0:1:", "ramp::1:1s"),
    ],
)
def test_gauges_are_numbers_or_functions(name: str, value: object) -> None:
    assert name in refusal({name: value})


@pytest.mark.parametrize("value", [1.01, 2, "ramp:0:1.01:1s", "squarewave:2:0:1s"])
def test_the_cache_is_full_at_one(value: object) -> None:
    assert "kv-cache-usage" in refusal({"kv-cache-usage": value})
    started(**{"running-requests": value})


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("oscillate:0:10:5s", MetricFunction("oscillate", 0, 10, 5)),
        ("ramp:1.5:.5:1m30s", MetricFunction("ramp", 1.5, 0.5, 90)),
        ("rampreset:1e2:+0:250ms", MetricFunction("rampreset", 100, 0, 0.25)),
        ("squarewave:0:0:1ns", MetricFunction("squarewave", 0, 0, 1e-9)),
    ],
)
def test_functions_are_read(text: str, function: MetricFunction) -> None:
    assert parse_function(text) == function


@pytest.mark.parametrize(
    "metrics",
    [
        {"prefix-cache-hits": 1},
        {"prefix-cache-queries": 1},
        {"prefix-cache-hits": 2, "prefix-cache-queries": 1},
        {"prefix-cache-hits": 0, "prefix-cache-queries": None},
    ],
)
def test_hits_and_queries_go_together(metrics: dict[str, Any]) -> None:
    assert "prefix-cache-hits and prefix-cache-queries" in refusal(metrics)


@pytest.mark.parametrize(
    "reasons", [{"never": 1}, {"stop": -1}, {"stop": 1.5}, {"stop": None}, {"": 1}, [], 1, {"STOP": 1}]
)
def test_reasons_are_known_and_counted(reasons: object) -> None:
    assert "request-success-total" in refusal({"request-success-total": reasons})


def test_reasons_of_both_kinds_are_known() -> None:
    ours = (
        "stop",
        "length",
        "abort",
        "error",
        "repetition",
        "tool_calls",
        "cache_threshold",
        "remote_decode",
    )
    assert started(**{"request-success-total": dict.fromkeys(ours, 0)})


@pytest.mark.parametrize("loras", [1, {}, [1], [[]], ["x"], ["[]"], [{"running": 1}], [{"timestamp": "now"}]])
def test_adapters_are_objects(loras: object) -> None:
    assert "loras" in refusal({"loras": loras})


def test_the_yaml_of_llm_d_inference_sim_is_understood() -> None:
    metrics = read_fake_metrics(
        {
            "totalprompttokens": 5,
            "totalgenerationtokens": 6,
            "loras": ['{"running":"a,b","waiting":"","timestamp":17}', {"waiting": "c"}],
        }
    )
    assert (metrics.total_prompt_tokens, metrics.total_generation_tokens) == (5, 6)
    assert metrics.loras is not None
    assert [(lora.running, lora.waiting, lora.timestamp) for lora in metrics.loras] == [
        ("a,b", "", 17),
        ("", "c", 0),
    ]
    assert "total" in refusal({"totalprompttokens": -1})


def test_a_total_is_written_one_way_after_an_update() -> None:
    config = updated(started(totalprompttokens=5), {"fake-metrics": named(total_prompt_tokens=6)})
    assert config.fake_metrics == {"total-prompt-tokens": 6}
    config = updated(config, {"fake-metrics": {"totalprompttokens": 7}})
    assert config.fake_metrics == {"total-prompt-tokens": 7}


def test_unknown_members_are_kept_and_named() -> None:
    given = {"Running-Requests": 1, "totalprompttokens": 1, "loras": [], "x": 1}
    assert unknown_members(given) == ["Running-Requests", "x"]
    assert started(**given).fake_metrics == given


def test_updates_do_not_pile_up_unknown_members() -> None:
    config = started(Running=1, **{"running-requests": 1})
    for name in ("x", "y", "z"):
        config = updated(config, {"fake-metrics": {name: 2}})
    assert config.fake_metrics == {"running-requests": 1, "z": 2}
    assert updated(config, {"fake-metrics": {}}).fake_metrics == {"running-requests": 1}


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("member", ["running-requests", "kv-cache-usage", "total-prompt-tokens", "unknown"])
def test_numbers_that_are_none_in_json_are_refused(member: str, number: float, tmp_path: Path) -> None:
    """They are no null either, which would take a member off the page."""
    config = started(**{"running-requests": 1})
    for value in (number, [number], {"stop": number}):
        with pytest.raises(ConfigError, match="fake-metrics"):
            updated(config, {"fake-metrics": {member: value}})
    path = tmp_path / "metrics.yaml"
    path.write_text(f"{member}: .{str(number).removeprefix('-')}\n")
    with pytest.raises(ConfigError, match="fake-metrics"):
        parse(["--model", "m", "--fake-metrics", str(path)], {})


@pytest.mark.parametrize("tokens", ["prompt", "generation"])
def test_a_new_list_takes_the_total_away(tokens: str) -> None:
    counts, total = f"request-{tokens}-tokens", f"total-{tokens}-tokens"
    config = started(**{counts: [1], total: 9})
    for changes, after in (
        ({counts: [2]}, {counts: [2]}),
        ({counts: []}, {counts: []}),
        ({counts: [2], total: 3}, {counts: [2], total: 3}),
        ({counts: None}, {counts: [1], total: 9}),
        ({total: 3}, {counts: [1], total: 3}),
        ({counts: [2], total: None}, {counts: [2]}),
        ({}, {counts: [1], total: 9}),
    ):
        assert updated(config, {"fake-metrics": changes}).fake_metrics == after


def test_a_member_is_replaced_as_a_whole() -> None:
    config = started(**{"request-success-total": {"stop": 1, "length": 2}, "kv-cache-usage": "ramp:0:1:1s"})
    after = updated(config, {"fake-metrics": {"request-success-total": {"stop": 3}, "kv-cache-usage": 0.5}})
    assert after.fake_metrics == {"request-success-total": {"stop": 3}, "kv-cache-usage": 0.5}
    assert config.fake_metrics != after.fake_metrics, "the one before is as it was"


def test_an_update_cannot_name_a_file() -> None:
    for text in ("@/etc/passwd", "x.json", '{"running-requests": 1}'):
        with pytest.raises(ConfigError, match="is not a JSON object"):
            updated(started(), {"fake-metrics": text})
