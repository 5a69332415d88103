"""Where events go: the flags of llm-d-inference-sim, vLLM's JSON, and both."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmdsim.config import Config, ConfigError, parse, rank_config
from llmdsim.config.kv_events import (
    KvEventSettings,
    binds,
    kv_event_settings,
    rank_address,
    why_nothing_is_published,
)


def config(*flags: str, **document: Any) -> Config:
    given = ["--kv-events-config", json.dumps(document)] if document else []
    return parse(["--model", "m", *flags, *given], {})


ON = {"enable_kv_cache_events": True}


def test_with_the_cache_alone_everything_is_as_in_llm_d_inference_sim() -> None:
    assert kv_event_settings(config("--enable-kvcache")) == KvEventSettings(
        enabled=True,
        publishes=True,
        endpoint="tcp://127.0.0.1:5557",
        replay_endpoint="",
        buffer_steps=1024,
        hwm=100_000,
        max_queue_size=100_000,
        topic=None,
    )


def test_without_the_cache_there_are_no_events() -> None:
    assert not kv_event_settings(config()).publishes
    assert not config().enable_kvcache


def test_vllms_json_alone_has_a_cache_and_vllms_defaults() -> None:
    asked = config(**ON)
    assert asked.enable_kvcache
    assert kv_event_settings(asked) == KvEventSettings(
        enabled=True,
        publishes=True,
        endpoint="tcp://*:5557",
        replay_endpoint="",
        buffer_steps=10_000,
        hwm=100_000,
        max_queue_size=100_000,
        topic="",
    )


def test_everything_in_the_json() -> None:
    asked = config(
        **ON,
        publisher="zmq",
        endpoint="tcp://*:6000",
        replay_endpoint="tcp://*:6100",
        buffer_steps=5,
        hwm=6,
        max_queue_size=7,
        topic="kv@a@b",
    )
    assert kv_event_settings(asked) == KvEventSettings(
        True, True, "tcp://*:6000", "tcp://*:6100", 5, 6, 7, "kv@a@b"
    )


def test_flags_say_what_the_json_leaves_out() -> None:
    flags = ("--zmq-endpoint", "tcp://*:6000", "--zmq-hwm", "9", "--kv-events-topic", "t")
    settings = kv_event_settings(config(*flags, "--kv-events-replay-endpoint", "tcp://*:6100", **ON))
    assert (settings.endpoint, settings.replay_endpoint) == ("tcp://*:6000", "tcp://*:6100")
    assert (settings.hwm, settings.topic, settings.buffer_steps) == (9, "t", 10_000)


def test_the_same_twice_is_no_contradiction() -> None:
    asked = config("--zmq-endpoint", "tcp://*:6000", **ON, endpoint="tcp://*:6000")
    assert kv_event_settings(asked).endpoint == "tcp://*:6000"


@pytest.mark.parametrize(
    ("flags", "document", "problem"),
    [
        (
            ["--zmq-endpoint", "tcp://*:6000"],
            {"endpoint": "tcp://*:7000"},
            "--kv-events-config: endpoint is 'tcp://*:7000', but --zmq-endpoint is 'tcp://*:6000'",
        ),
        (["--zmq-hwm", "5"], {"hwm": 6}, "--kv-events-config: hwm is 6, but --zmq-hwm is 5"),
        ([], {"end_point": ""}, "--kv-events-config: 'end_point' is not one of enable_kv_cache_events,"),
        ([], {"hwm": 0}, "--kv-events-config: hwm: 0 is not an integer of at least 1"),
        ([], {"hwm": True}, "--kv-events-config: hwm: True is not an integer"),
        ([], {"buffer_steps": "5"}, "--kv-events-config: buffer_steps: '5' is not an integer"),
        ([], {"endpoint": None}, "--kv-events-config: endpoint: None is not text"),
        (
            [],
            {"enable_kv_cache_events": 1},
            "--kv-events-config: enable_kv_cache_events: 1 is not true or false",
        ),
        (
            [],
            {"publisher": "kafka"},
            "--kv-events-config: publisher: 'kafka' is not one of null, zmq",
        ),
        ([], {"endpoint": "5557"}, "--kv-events-config: endpoint: '5557' is not tcp://HOST:PORT, ipc://PATH"),
        (["--zmq-endpoint", "tcp://a"], {}, "--zmq-endpoint: 'tcp://a' is not tcp://HOST:PORT"),
        (["--zmq-endpoint", "http://a:1"], {}, "--zmq-endpoint: 'http://a:1' is not tcp://HOST:PORT"),
        (["--zmq-endpoint", "tcp://a:b@c:5"], {}, "--zmq-endpoint: 'tcp://a:b@c:5' is not tcp://HOST:PORT"),
        (["--zmq-endpoint", "tcp://::1:5557"], {}, None),
        (["--zmq-endpoint", "tcp://a:70000"], {}, "--zmq-endpoint: 'tcp://a:70000' leads to a port beyond"),
        (
            ["--zmq-endpoint", "tcp://a:65535", "--data-parallel-size", "2"],
            {},
            "--zmq-endpoint: 'tcp://a:65535' leads to a port beyond 65535",
        ),
        (
            ["--zmq-endpoint", "ipc:///tmp/x", "--data-parallel-size", "2"],
            {},
            "--zmq-endpoint: 'ipc:///tmp/x' cannot be shared by ranks",
        ),
        (
            ["--kv-events-replay-endpoint", "ipc:///tmp/x", "--data-parallel-rank", "1"],
            {},
            "--kv-events-replay-endpoint: 'ipc:///tmp/x' cannot be shared by ranks",
        ),
        (["--zmq-endpoint", "ipc:///tmp/x", "--data-parallel-rank", "0"], {}, None),
        (["--zmq-endpoint", "inproc://x", "--data-parallel-size", "2"], {}, None),
        (
            ["--zmq-endpoint", "tcp://a:0"],
            {},
            "--zmq-endpoint: 'tcp://a:0' is connected to, which takes a port",
        ),
        (
            ["--zmq-endpoint", "tcp://*:5557", "--zmq-socket", "connect"],
            {},
            "--zmq-endpoint: 'tcp://*:5557' is every address here, which cannot be connected to",
        ),
        (
            [],
            {"endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5557"},
            "--kv-events-config: replay_endpoint: 'tcp://*:5557' uses a port of --kv-events-config: endpoint "
            "'tcp://*:5557' (1 each)",
        ),
        (
            ["--data-parallel-size", "2", "--kv-events-replay-endpoint", "tcp://*:5558"],
            ON,
            "--kv-events-replay-endpoint: 'tcp://*:5558' uses a port of --kv-events-config: endpoint",
        ),
        (["--kv-events-replay-endpoint", "tcp://*:0", "--zmq-endpoint", "tcp://*:0"], {}, None),
    ],
)
def test_what_cannot_be_is_one_clear_line(
    flags: list[str], document: dict[str, Any], problem: str | None
) -> None:
    if problem is None:
        config(*flags, **document)
        return
    with pytest.raises(ConfigError) as raised:
        config(*flags, **document)
    assert str(raised.value).startswith(problem)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("address", "bound"),
    [
        ("tcp://*:5557", True),
        ("tcp://[::]:5557", True),
        ("tcp://[fd00::1]:5557", True),
        ("ipc:///tmp/x", True),
        ("inproc://x", True),
        ("tcp://127.0.0.1:5557", False),
        ("tcp://0.0.0.0:5557", False),
        ("tcp://listener:5557", False),
    ],
)
def test_vllms_rule_says_who_waits_unless_it_is_said(address: str, bound: bool) -> None:
    assert binds(config(), address) is bound
    assert binds(config("--zmq-socket", "bind"), address)
    assert not binds(config("--zmq-socket", "connect"), address)


@pytest.mark.parametrize(
    ("address", "rank", "shifted"),
    [
        ("tcp://*:5557", 0, "tcp://*:5557"),
        ("tcp://*:5557", 3, "tcp://*:5560"),
        ("tcp://[::]:5557", 1, "tcp://[::]:5558"),
        ("tcp://*:0", 2, "tcp://*:0"),
        ("inproc://cache", 2, "inproc://cache_dp2"),
        ("", 2, ""),
    ],
)
def test_each_rank_has_an_address_of_its_own(address: str, rank: int, shifted: str) -> None:
    assert rank_address(address, rank) == shifted


def test_ranks_are_apart_whether_they_are_started_together_or_alone() -> None:
    flags = ("--zmq-endpoint", "tcp://*:6000", "--kv-events-replay-endpoint", "tcp://*:6100")
    together = kv_event_settings(rank_config(config(*flags, "--data-parallel-size", "2"), 1))
    alone = kv_event_settings(config(*flags, "--data-parallel-rank", "1"))
    for settings in (together, alone):
        assert (settings.endpoint, settings.replay_endpoint) == ("tcp://*:6001", "tcp://*:6101")


@pytest.mark.parametrize(
    ("flags", "document", "expected"),
    [
        ([], {}, None),
        (["--enable-kvcache"], {}, None),
        (["--enable-kvcache", "--zmq-endpoint="], {}, None),
        ([], ON, None),
        ([], {"enable_kv_cache_events": False}, None),
        ([], {"publisher": "zmq"}, "enable_kv_cache_events is not true"),
        (["--enable-kvcache"], {"endpoint": "tcp://*:1"}, "enable_kv_cache_events is not true"),
        ([], {**ON, "publisher": "null"}, 'the publisher is "null"'),
        (["--enable-kvcache=false"], ON, "--kv-events-config: no events are published without --enable-kv"),
        (["--zmq-endpoint", "tcp://*:1"], {}, "--zmq-endpoint: no events are published without --enable-kv"),
        (["--zmq-endpoint="], {}, None),
        (["--enable-kvcache", "--no-enable-prefix-caching", "--zmq-endpoint="], {}, None),
    ],
)
def test_what_publishes_nothing_is_told(
    flags: list[str], document: dict[str, Any], expected: str | None
) -> None:
    asked = config(*flags, **document)
    why = why_nothing_is_published(asked)
    if expected is None:
        assert why is None
    else:
        assert why is not None
        assert expected in why
        assert not kv_event_settings(asked).publishes


@pytest.mark.parametrize(("flags", "document"), [(["--enable-kvcache"], {}), ([], ON)])
def test_without_prefix_caching_nobody_hears_of_blocks(flags: list[str], document: dict[str, Any]) -> None:
    asked = config(*flags, "--no-enable-prefix-caching", **document)
    assert "--enable-prefix-caching is off" in str(why_nothing_is_published(asked))
    # News that all was cleared goes out, as in vLLM.
    assert kv_event_settings(asked).publishes
