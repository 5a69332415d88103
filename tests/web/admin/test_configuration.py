"""The configuration at run time: what may change, how values are written, and that it takes effect."""

from __future__ import annotations

from typing import Any

import pytest

from tests.web.admin.operator import call, told
from tests.web.clients import CHAT, TEXT, events, post, reply_of
from tests.web.rig import RankRig

CONFIG, FAKE = "/admin/config", "/fake_metrics"


def refused(rig: RankRig, path: str, body: Any) -> str:
    """The message of a 400 that changed nothing."""
    before = told(rig, "GET", CONFIG)
    reply = call(rig, "POST", path, body)
    assert (reply.status, reply.error["error"]["type"]) == (400, "BadRequestError")
    assert told(rig, "GET", CONFIG) == before
    return str(reply.error["error"]["message"])


def test_an_update_answers_with_the_whole_configuration() -> None:
    rig = RankRig("--seed", str(2**63 - 1))
    before = told(rig, "GET", CONFIG)
    after = told(rig, "POST", CONFIG, {"time-to-first-token": "250ms", "failure-injection-rate": 7})
    assert after == {**before, "time-to-first-token": "250ms", "failure-injection-rate": 7}
    assert told(rig, "GET", CONFIG) == after
    assert after["seed"] == 2**63 - 1  # not rounded


@pytest.mark.parametrize("body", [{}, b"null", b" null ", {"time-to-first-token": None}])
def test_nothing_may_change(body: Any) -> None:
    rig = RankRig("--time-to-first-token", "1s")
    before = told(rig, "GET", CONFIG)
    assert told(rig, "POST", CONFIG, body) == before


@pytest.mark.parametrize("stream", [False, True])
def test_new_latencies_count_for_what_is_not_due_yet(stream: bool) -> None:
    rig = RankRig("--time-to-first-token", "1s", "--inter-token-latency", "1s")
    running = post(rig, TEXT, stream=stream)
    rig.clock.advance(1)
    told(rig, "POST", CONFIG, {"inter-token-latency": "10s", "time-to-first-token": "3s"})
    rig.clock.advance(1)
    assert rig.rank.stats.generation_tokens == 1
    rig.clock.advance(8)
    assert rig.rank.stats.generation_tokens == 1
    rig.clock.advance(1)
    assert rig.rank.stats.generation_tokens == 2  # 10 seconds after the first
    told(rig, "POST", CONFIG, {"inter-token-latency": "2s"})
    rig.clock.advance(2)
    assert rig.rank.stats.generation_tokens == 3
    running.rst()
    post(rig, TEXT)
    rig.clock.advance(2)
    assert rig.rank.stats.generation_tokens == 3
    rig.clock.advance(1)
    assert rig.rank.stats.generation_tokens == 4


def test_a_stream_that_would_take_for_ever_ends_at_once() -> None:
    rig = RankRig("--inter-token-latency", "1h")
    running = post(rig, TEXT, stream=True)
    rig.clock.advance(60)
    assert rig.rank.stats.generation_tokens == 1
    told(rig, "POST", CONFIG, {"inter-token-latency": "0s"})
    rig.clock.advance(0)
    assert events(reply_of(running).body)[-1] == "[DONE]"


def test_speed_may_change_and_is_told() -> None:
    rig = RankRig("--time-to-first-token", "10s", "--speed", "2")
    assert "llmdsim:speed 2.0\n" in page_of(rig)
    post(rig, TEXT)
    rig.clock.advance(0.5)
    assert told(rig, "POST", CONFIG, {"speed": 10})["speed"] == 10.0
    assert "llmdsim:speed 10.0\n" in page_of(rig)
    rig.clock.advance(0.5)
    assert rig.rank.stats.generation_tokens == 5


def page_of(rig: RankRig) -> str:
    return call(rig, "GET", "/metrics").body.decode()


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("port", "changing it takes a restart"),
        ("model", "changing it takes a restart"),
        ("seed", "changing it takes a restart"),
        ("api-key", "changing it takes a restart"),
        ("max-num-seqs", "changing it takes a restart"),
        ("Time-To-First-Token", "did you mean time-to-first-token?"),
        ("time_to_first_token", "did you mean time-to-first-token?"),
        ("x", "there is no such option"),
        ("", "there is no such option"),
    ],
)
def test_other_keys_are_refused_by_name_and_told_why(key: str, why: str) -> None:
    message = refused(RankRig(), CONFIG, {"time-to-first-token": "1s", key: 1})
    assert message.endswith(f"{key!r} is not admin-configurable: {why}")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("time-to-first-token", "5"),
        ("time-to-first-token", "soon"),
        ("time-to-first-token", "-1s"),
        ("time-to-first-token", -1),
        ("time-to-first-token", 1.5),
        ("time-to-first-token", True),
        ("time-to-first-token", []),
        ("time-to-first-token", 10**30),
        ("inter-token-latency-std-dev", "1s"),
        ("time-factor-under-load", 0.5),
        ("time-factor-under-load", "2"),
        ("time-factor-under-load", 1e308),
        ("time-factor-under-load", 10**400),
        ("failure-injection-rate", 101),
        ("failure-injection-rate", 1.0),
        ("failure-injection-rate", "5"),
        ("failure-injection-rate", 10**30),
        ("failure-injection-rate", False),
        ("failure-types", "rate_limit"),
        ("failure-types", ["rate_limit", "earthquake"]),
        ("failure-types", [None]),
        ("latency-calculator", "fast"),
        ("latency-calculator", 1),
        ("fake-metrics", {"running-requests": 1}),
    ],
)
def test_a_wrong_value_is_refused_by_name_and_nothing_changes(key: str, value: object) -> None:
    assert key in refused(RankRig(), CONFIG, {"prefill-overhead": "1s", key: value})


@pytest.mark.parametrize("body", [b"", b"[]", b"1", b'"x"', b"{", b"[" * 5000, b'{"a":' * 5000])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    assert call(RankRig(), "POST", CONFIG, body).status == 400


@pytest.mark.parametrize("path", [CONFIG, FAKE])
def test_a_long_body_is_refused(path: str) -> None:
    assert call(RankRig(), "POST", path, {"x": "a" * (1 << 17)}).status == 413


def test_a_spread_is_checked_against_the_mean_that_comes_with_it() -> None:
    rig = RankRig()
    after = told(rig, "POST", CONFIG, {"inter-token-latency-std-dev": "3ms", "inter-token-latency": "10ms"})
    assert after["inter-token-latency-std-dev"] == "3ms"
    assert "30 %" in refused(rig, CONFIG, {"inter-token-latency": "5ms"})


@pytest.mark.parametrize(
    ("value", "shown"), [(5, "5ns"), (2_500_000, "2.5ms"), ("0", "0s"), ("1h2m3.5s", "1h2m3.5s")]
)
def test_durations_are_text_or_nanoseconds(value: object, shown: str) -> None:
    assert told(RankRig(), "POST", CONFIG, {"prefill-overhead": value})["prefill-overhead"] == shown


def test_a_list_is_replaced_and_null_empties_it() -> None:
    rig = RankRig()
    types = ["rate_limit", "server_error"]
    assert told(rig, "POST", CONFIG, {"failure-types": types})["failure-types"] == types
    assert told(rig, "POST", CONFIG, {"failure-types": types[1:]})["failure-types"] == types[1:]
    assert told(rig, "POST", CONFIG, {"failure-types": None})["failure-types"] == []


def test_fake_metrics_are_changed_member_by_member() -> None:
    rig = RankRig("--fake-metrics", '{"running-requests":1,"waiting-requests":"ramp:0:5:10s"}')
    after = told(rig, "POST", CONFIG, {"fake-metrics": {"waiting-requests": 2, "running-requests": None}})
    assert after["fake-metrics"] == {"running-requests": 1, "waiting-requests": 2}
    reply = call(rig, "POST", FAKE, {"kv-cache-usage": 0.5, "unheard-of": 1})
    assert (reply.status, reply.body) == (204, b"")
    known = told(rig, "GET", CONFIG)["fake-metrics"]
    assert known == {"running-requests": 1, "waiting-requests": 2, "kv-cache-usage": 0.5, "unheard-of": 1}
    # null changes nothing, here and there.
    assert call(rig, "POST", FAKE, b"null").status == 400
    assert told(rig, "POST", CONFIG, {"fake-metrics": None})["fake-metrics"] == known
    # What looks like other settings is none.
    assert call(rig, "POST", FAKE, b'{"waiting-requests":2},"failure-injection-rate":100').status == 400
    call(rig, "POST", FAKE, {"failure-injection-rate": 100})
    assert told(rig, "GET", CONFIG)["failure-injection-rate"] == 0


@pytest.mark.parametrize(
    "metrics",
    [
        {"running-requests": -1},
        {"running-requests": "ramp:1:2"},
        {"kv-cache-usage": 1.5},
        {"kv-cache-usage": "ramp:0:2:1s"},
        {"ttft-buckets-values": [1] * 24},
        {"total-prompt-tokens": -1},
        {"request-success-total": {"never": 1}},
        {"prefix-cache-hits": 2, "prefix-cache-queries": 1},
    ],
)
def test_wrong_fake_metrics_are_refused(metrics: dict[str, Any]) -> None:
    rig = RankRig("--fake-metrics", "{}")
    assert next(iter(metrics)) in refused(rig, FAKE, metrics)


def test_who_listens_is_told_of_each_change_once() -> None:
    rig = RankRig()
    rates: list[int] = []
    rig.rank.context.on_config.append(lambda config: rates.append(config.failure_injection_rate))
    told(rig, "POST", CONFIG, {"failure-injection-rate": 3})
    refused(rig, CONFIG, {"failure-injection-rate": 300})
    assert rates == [3]
    assert rig.rank.context.config.failure_injection_rate == 3


def test_generation_goes_on_through_an_update() -> None:
    rig = RankRig("--time-to-first-token", "1s")
    client = post(rig, CHAT)
    told(rig, "POST", CONFIG, {"latency-calculator": "constant"})
    rig.clock.advance(1)
    assert client.received.startswith(b"HTTP/1.1 200")


def statuses(rig: RankRig, number: int) -> list[int]:
    return [post(rig, TEXT).replies("POST")[0].status for _ in range(number)]


def test_failures_begin_and_end_at_run_time() -> None:
    rig = RankRig()
    told(rig, "POST", CONFIG, {"failure-injection-rate": 100, "failure-types": ["rate_limit"]})
    assert statuses(rig, 3) == [429] * 3
    told(rig, "POST", CONFIG, {"failure-injection-rate": 0})
    assert statuses(rig, 3) == [200] * 3


def test_a_change_of_something_else_leaves_faults_that_wear_off_alone() -> None:
    rig = RankRig()
    told(rig, "POST", CONFIG, {"faults": ["status; code=500; times=2"]})
    assert statuses(rig, 1) == [500]
    told(rig, "POST", CONFIG, {"time-factor-under-load": 2})
    assert statuses(rig, 2) == [500, 200]
