"""Operators and clients at random: every call is answered, every request ends once, and nothing is left."""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import Any

import pytest
from twisted.logger import LogLevel, capturedLogs

from llmdsim.web.admin import Admin
from llmdsim.web.router import new_app, routes_of
from tests.web.admin.operator import SLEEPY, begin, call, told
from tests.web.answers import refused
from tests.web.clients import CHAT, TEXT, events, fields, finishes, request
from tests.web.fuzz import rubbish
from tests.web.rig import RankRig
from tests.wire.channel import Client, Reply, read_replies

PACED = ("--time-to-first-token", "20ms", "--inter-token-latency", "5ms", "--max-num-seqs", "3")
FLAGS = (
    *PACED,
    *SLEEPY,
    "--max-waiting-queue-length",
    "4",
    "--fake-metrics",
    "{}",
    "--seed",
    "1",
    "--reasoning-parser",
    "x",
)
#: So small that what runs is preempted.
CACHE = ("--enable-kvcache", "--zmq-endpoint", "", "--block-size", "8", "--kv-cache-size", "7")
RUNS = 60
STEPS = 60


def paths() -> list[str]:
    """Those of the routes, in the order they were added, but for the one that is the end of everything."""
    app = new_app()
    Admin(RankRig().rank.context).mount(app)
    return list(dict.fromkeys(route.rule for route in routes_of(app) if route.rule != "/admin/crash"))


PATHS = paths()

QUERIES = (
    *("",) * 6,
    *("?mode=abort", "?mode=wait", "?mode=keep") * 3,
    *("?level=0", "?level=1&mode=keep", "?level=2&mode=wait", "?level=9", "?level=x"),
    *(
        "?tags=weights",
        "?tags=kv_cache",
        "?tags=weights&tags=kv_cache",
        "?tags=scheduling",
        "?tags=%ff&tags=",
    ),
    *("?clear_cache=0", "?clear_cache=maybe", "?config_format=json", "?config_format=", "?&&=;%", "?\xff"),
    *("?limit=1", "?limit=0&offset=3", "?offset=99999999999999999999"),
    *("?all_ranks=1", "?mode=wait&all_ranks=true", "?all_ranks=1&mode=keep&\xff", "?all_ranks=2"),
)
BODIES: tuple[Any, ...] = (
    {},
    {"request_ids": None},
    {"request_ids": "chatcmpl-0"},
    {"request_ids": ["chatcmpl-1", "cmpl-2-0", "cmpl-3", "chatcmpl-4"]},
    {"request_ids": [1]},
    {"method": "f", "timeout": "1"},
    {"prompt": [1, 2, 3] * 9, "cache_salt": "a"},
    {"messages": [{"role": "user", "content": "a"}], "model": "m"},
    {"inter-token-latency": "1ms"},
    {"inter-token-latency": 5_000_000, "time-to-first-token": "20ms"},
    {"inter-token-latency-std-dev": "1ms"},
    {"failure-types": None, "latency-calculator": "constant"},
    {"fake-metrics": {"running-requests": 1}},
    {"fake-metrics": {"waiting-requests": "oscillate:0:9:50ms", "loras": [], "ttft-buckets-values": [1]}},
    {"kv-cache-usage": "ramp:0:1:1s"},
    {"request-prompt-tokens": [1] * 40, "request-success-total": {}, "loras": [{"running": "\ud800"}]},
    {"total-prompt-tokens": -1},
    [],
    None,
    "x",
    7,
)
TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}},
}
CHATS: tuple[dict[str, Any], ...] = (
    {},
    {"logprobs": True, "top_logprobs": 2, "return_token_ids": True},
    {"tools": [TOOL], "tool_choice": "required", "max_tokens": 40},
    {"response_format": {"type": "json_object"}, "max_tokens": 40, "include_reasoning": True},
    {"stop": ["never said"], "kv_transfer_params": {"do_remote_decode": True}},
)
TEXTS: tuple[dict[str, Any], ...] = (
    {},
    {"logprobs": 2, "echo": True},
    {"prompt": ["a", "b c"], "n": 1, "stop": ["never said"]},
    {"kv_transfer_params": {"do_remote_prefill": True}},
)
RAW = (b"", b"{", b"\xff", b"{}{}", b'{"a":1e999}', b'{"request_ids":["\\ud800"]}', b"[" * 3000, b"\x00")


def operate(rig: RankRig, random: Random) -> list[Client]:
    """One call of an operator; its client if it is to be waited for."""
    path = random.choice(PATHS[:10] if random.random() < 0.7 else PATHS)
    method = random.choice(("GET", "POST", "POST", "POST"))
    draw = random.random()
    body: Any = random.choice(BODIES)
    if draw < 0.1:
        body = random.choice(RAW)
    elif draw < 0.2:
        body = json.dumps(rubbish(random)).encode()
    client = begin(rig, method, path + random.choice(QUERIES), body)
    rig.settle()
    return [client]


def judge(reply: Reply, dies: bool) -> list[str]:
    """The finish reasons of a generation reply; none of one that the engine's death ended."""
    assert reply.complete
    if reply.status != 200:
        assert reply.status in ((429, 500, 503) if dies else (429, 503))
        refused(reply.status, reply.body)
        return []
    if reply.headers[b"content-type"] == b"application/json":
        return [choice["finish_reason"] for choice in json.loads(reply.body)["choices"]]
    frames = events(reply.body)
    assert frames[-1] == "[DONE]"
    if dies and "error" in frames[-2]:
        assert frames[-2]["error"]["code"] == 500
        return []
    found = finishes(frames)
    assert len({index for index, _ in found}) == len(found), "a choice ends twice"
    return [reason for _, reason in found]


def settled(client: Client, method: bytes) -> Reply:
    (reply,) = read_replies(client.received, [method], client.fate != "open")
    return reply


@pytest.mark.parametrize("start", range(0, RUNS, 10))
@pytest.mark.parametrize("more", [(), ("--sleep-serves",), CACHE])
def test_whatever_operators_do_every_request_ends_once(more: tuple[str, ...], start: int) -> None:
    reasons: Counter[str] = Counter()
    for number in range(start, start + 10):
        seed = f"{more} {number}"
        try:
            reasons += run(RankRig(*FLAGS, *more), Random(seed))
        except BaseException:
            print(f"seed {seed!r}")
            raise
    assert set(reasons) <= {"length", "abort", "stop", "tool_calls"}
    assert min(reasons["length"], reasons["abort"]) > 10


@pytest.mark.parametrize("number", range(20))
def test_an_engine_may_die_in_the_middle_of_it(number: int) -> None:
    run(RankRig(*FLAGS), Random(f"dies {number}"), dies=True)


def run(rig: RankRig, random: Random, dies: bool = False) -> Counter[str]:
    """One run; returns how often choices ended for which reason. With `dies` the engine does, half-way."""
    asked: list[tuple[Client, int]] = []
    operators: list[Client] = []
    found: Counter[str] = Counter()
    with capturedLogs() as logged:
        for step in range(STEPS):
            draw = random.random()
            if dies and step == STEPS // 2:
                assert told(rig, "POST", "/admin/crash") == {"status": "crashed"}
                assert rig.rank.engine.idle
            if draw < 0.45:
                path, n = random.choice((CHAT, TEXT)), random.choice((1, 1, 2))
                body = fields(path, n=n, stream=random.random() < 0.5, request_id=str(step))
                body.update(random.choice(CHATS if path == CHAT else TEXTS))
                client = rig.connect().send(request(path, body))
                rig.settle()
                asked.append((client, body["n"] * (2 if isinstance(body.get("prompt"), list) else 1)))
            elif draw < 0.7:
                operators += operate(rig, random)
            elif draw < 0.75 and asked:
                client, _ = asked.pop(random.randrange(len(asked)))
                client.rst()
                rig.settle()
            else:
                rig.clock.advance(random.choice((0, 0.001, 0.005, 0.02, 0.1)))
            engine, stats = rig.rank.engine, rig.rank.stats
            assert stats.running <= 3
            assert stats.running + stats.waiting == len(engine.sequences) <= 7
        if not dies:
            call(rig, "POST", "/admin/config", {"time-factor-under-load": 1.0})
            call(rig, "POST", "/wake_up")
            call(rig, "POST", "/resume")
        for _ in range(1000):
            rig.clock.advance(0.01)
    bad = [event for event in logged if event["log_level"] in (LogLevel.error, LogLevel.critical)]
    assert [event["log_namespace"] for event in bad] == ["llmdsim.web.admin.crash"] * dies
    assert rig.rank.engine.idle
    cache = rig.rank.engine.cache
    assert cache is None or not cache.pool.used
    assert (rig.rank.stats.running, rig.rank.stats.waiting, rig.rank.engine.faults) == (0, 0, [])
    assert rig.clock.getDelayedCalls() == []
    for client, n in asked:
        reasons = judge(settled(client, b"POST"), dies)
        assert len(reasons) in (0, n)
        found.update(reasons)
    for client in operators:
        reply = settled(client, b"POST")
        assert reply.complete
        died = reply.status == 500 or (reply.status == 502 and b"rank 0 answered 500" in reply.body)
        assert reply.status < 500 or (dies and died), reply
        if reply.status >= 400:
            refused(reply.status, reply.body)
    return found
