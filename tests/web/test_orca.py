"""The engine's load in a header of the response."""

from __future__ import annotations

import pytest

from llmdsim.engine.kvcache.pool import Pool
from tests.web.clients import CHAT, TEXT, post, reply_of
from tests.web.rig import RankRig

FORMAT = "Endpoint-Load-Metrics-Format: "


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("TEXT", b"TEXT named_metrics.num_requests_waiting=2.0, named_metrics.kv_cache_usage_perc=0.25"),
        ("json", b'JSON {"named_metrics": {"num_requests_waiting": 2.0, "kv_cache_usage_perc": 0.25}}'),
    ],
)
def test_the_load_is_told_as_it_is_when_the_reply_is_sent(path: str, asked: str, told: bytes) -> None:
    rig = RankRig("--time-to-first-token", "1s", "--max-num-seqs", "1")
    client = post(rig, path, FORMAT + asked, max_tokens=1)
    for _ in range(2):
        post(rig, path)
    rig.rank.stats.pool = Pool(4)
    rig.rank.stats.pool.reserve(1)
    rig.clock.advance(1)
    reply = reply_of(client)
    assert reply.status == 200
    assert reply.headers[b"endpoint-load-metrics"] == told


@pytest.mark.parametrize(
    ("metrics", "text", "json"),
    [
        (
            '{"waiting-requests": 30, "kv-cache-usage": "squarewave:0.5:1:1s"}',
            b"TEXT named_metrics.num_requests_waiting=30.0, named_metrics.kv_cache_usage_perc=0.5",
            b'JSON {"named_metrics": {"num_requests_waiting": 30.0, "kv_cache_usage_perc": 0.5}}',
        ),
        (
            '{"kv-cache-usage": 0}',
            b"TEXT named_metrics.kv_cache_usage_perc=0.0",
            b'JSON {"named_metrics": {"kv_cache_usage_perc": 0.0}}',
        ),
        ('{"running-requests": 1}', None, None),
    ],
)
def test_the_load_is_what_is_scripted(metrics: str, text: bytes | None, json: bytes | None) -> None:
    rig = RankRig("--fake-metrics", metrics)
    for asked, told in (("TEXT", text), ("JSON", json)):
        reply = reply_of(post(rig, CHAT, FORMAT + asked, max_tokens=1))
        assert reply.headers.get(b"endpoint-load-metrics") == told


@pytest.mark.parametrize("asked", ["BIN", "", "TEXT, JSON"])
def test_other_formats_are_told_nothing(asked: str) -> None:
    assert b"endpoint-load-metrics" not in reply_of(post(RankRig(), CHAT, FORMAT + asked)).headers


def test_who_does_not_ask_and_streams_are_told_nothing() -> None:
    assert b"endpoint-load-metrics" not in reply_of(post(RankRig(), CHAT)).headers
    assert (
        b"endpoint-load-metrics" not in reply_of(post(RankRig(), CHAT, FORMAT + "TEXT", stream=True)).headers
    )
    assert b"endpoint-load-metrics" not in reply_of(post(RankRig(), CHAT, FORMAT + "TEXT", n=0)).headers
