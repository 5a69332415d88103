"""Sleep: what it stops, what metrics tell, and what wakes which part."""

from __future__ import annotations

import json

import pytest

from tests.web.admin.operator import PACED, SLEEPY, answer, begin, call, told
from tests.web.clients import CHAT, TEXT, events, fields, finishes, post, reply_of
from tests.web.rig import RankRig

STATES = ("awake", "weights_offloaded", "discard_all")


def gauge(rig: RankRig) -> tuple[int, ...]:
    """The three series, in the order of STATES."""
    page = call(rig, "GET", "/metrics").body.decode()
    lines = [line for line in page.splitlines() if line.startswith("vllm:engine_sleep_state{")]
    found = {state: line for line in lines for state in STATES if f'sleep_state="{state}"' in line}
    return tuple(int(float(found[state].rpartition(" ")[2])) for state in STATES)


@pytest.mark.parametrize("flags", [(), SLEEPY[:1], SLEEPY[1:]])
def test_sleep_has_no_effect_unless_enabled(flags: tuple[str, ...]) -> None:
    rig = RankRig(*flags)
    assert told(rig, "POST", "/sleep?level=2") == {"status": "awake", "level": 2}
    assert told(rig, "GET", "/is_sleeping") == {"is_sleeping": False}
    assert told(rig, "POST", "/wake_up") == {"status": "awake", "tags": None}
    assert call(rig, "POST", CHAT, fields(CHAT)).status == 200
    assert gauge(rig) == (1, 0, 0)


@pytest.mark.parametrize(("level", "shown"), [(0, (0, 0, 0)), (1, (0, 1, 0)), (2, (0, 0, 1))])
def test_the_level_is_answered_and_measured(level: int, shown: tuple[int, ...]) -> None:
    rig = RankRig(*SLEEPY)
    assert call(rig, "POST", f"/sleep?level={level}").body == b'{"status":"sleeping","level":%d}' % level
    assert told(rig, "GET", "/is_sleeping") == {"is_sleeping": True}
    assert told(rig, "GET", "/is_paused") == {"is_paused": True}
    assert gauge(rig) == shown
    assert call(rig, "POST", "/wake_up").body == b'{"status":"awake","tags":null}'
    assert told(rig, "GET", "/is_sleeping") == {"is_sleeping": False}
    assert gauge(rig) == (1, 0, 0)


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("stream", [False, True])
def test_generation_is_refused_while_asleep(path: str, stream: bool) -> None:
    rig = RankRig(*SLEEPY)
    rig.rank.context.ready = True
    told(rig, "POST", "/sleep")
    reply = call(rig, "POST", path, fields(path, stream=stream))
    assert (reply.status, reply.error["error"]["type"]) == (503, "ServiceUnavailableError")
    assert "/wake_up" in reply.error["error"]["message"]
    assert [call(rig, "GET", probe).status for probe in ("/health", "/ready", "/v1/models")] == [
        200,
        503,
        200,
    ]
    told(rig, "POST", "/wake_up")
    assert call(rig, "POST", path, fields(path, stream=stream)).status == 200
    assert call(rig, "GET", "/ready").status == 200


def test_sleep_serves_keeps_serving() -> None:
    rig = RankRig(*SLEEPY, "--sleep-serves", *PACED)
    running = post(rig, CHAT)
    rig.clock.advance(1)
    assert told(rig, "POST", "/sleep") == {"status": "sleeping", "level": 1}
    assert told(rig, "GET", "/is_sleeping") == {"is_sleeping": True}
    assert told(rig, "GET", "/is_paused") == {"is_paused": False}
    assert gauge(rig) == (0, 1, 0)
    another = post(rig, CHAT)
    rig.clock.pump([1.0] * 6)
    for client in (running, another):
        assert json.loads(reply_of(client).body)["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(("level", "found"), [(0, 16), (1, 0), (2, 0)])
def test_sleep_that_serves_forgets_what_is_cached(level: int, found: int) -> None:
    cache = ("--enable-kvcache", "--block-size", "8", "--zmq-endpoint", "")
    rig = RankRig(*SLEEPY, "--sleep-serves", *cache, *PACED)

    def cached() -> int:
        client = post(rig, TEXT, prompt=[*range(20)], max_tokens=1)
        rig.clock.pump([1.0] * 3)
        usage = json.loads(reply_of(client).body)["usage"]
        return int(usage["prompt_tokens_details"]["cached_tokens"])

    assert (cached(), cached()) == (0, 16)
    running = post(rig, TEXT, prompt=[*range(100, 120)], max_tokens=3)
    rig.clock.pump([1.0] * 2)
    told(rig, "POST", f"/sleep?level={level}")
    assert cached() == found
    rig.clock.pump([1.0] * 6)
    assert json.loads(reply_of(running).body)["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("calls", "states"),
    [
        (["tags=weights", "tags=kv_cache"], ["sleeping", "awake"]),
        (["tags=kv_cache", "tags=weights"], ["sleeping", "awake"]),
        # The peer looks at the first tag alone.
        (["tags=weights&tags=kv_cache"], ["awake"]),
        (["tags=scheduling"], ["sleeping"]),
        (["tags=scheduling&tags=weights", "tags=scheduling&tags=kv_cache"], ["sleeping", "awake"]),
        (["tags=weights&tags=weights", "tags=weights", "tags=kv_cache"], ["sleeping", "sleeping", "awake"]),
        (["tags=weights&tags=nothing", "tags=kv_cache"], ["sleeping", "sleeping"]),
        (["tags="], ["sleeping"]),
        (["other=1"], ["awake"]),
    ],
)
def test_the_last_part_that_comes_back_wakes_it(calls: list[str], states: list[str]) -> None:
    rig = RankRig(*SLEEPY)
    told(rig, "POST", "/sleep")
    found = []
    for query in calls:
        body = told(rig, "POST", f"/wake_up?{query}")
        assert list(body) == ["status", "tags"]
        found.append(body["status"])
        asleep = body["status"] == "sleeping"
        assert told(rig, "GET", "/is_sleeping") == {"is_sleeping": asleep}
        assert call(rig, "POST", CHAT, fields(CHAT)).status == (503 if asleep else 200)
        assert gauge(rig) == ((0, 1, 0) if asleep else (1, 0, 0))
    assert found == states


def test_the_tags_are_told_as_they_came() -> None:
    rig = RankRig(*SLEEPY)
    told(rig, "POST", "/sleep?level=0")
    body = told(rig, "POST", "/wake_up?tags=scheduling&tags=%C3%A9&tags=")
    assert body == {"status": "awake", "tags": ["scheduling", "é", ""]}


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("level=3", "query.level"),
        ("level=-1", "query.level"),
        ("level=", "query.level"),
        ("level=1.5", "query.level"),
        ("level=one", "query.level"),
        ("mode=nap", "query.mode"),
        ("mode=", "query.mode"),
    ],
)
def test_a_bad_query_is_refused_and_nothing_happens(query: str, param: str) -> None:
    rig = RankRig(*SLEEPY)
    reply = call(rig, "POST", f"/sleep?{query}")
    error = reply.error["error"]
    assert (reply.status, error["type"], error["param"]) == (400, "Bad Request", param)
    assert told(rig, "GET", "/is_sleeping") == {"is_sleeping": False}


def test_of_one_parameter_twice_the_last_counts() -> None:
    rig = RankRig(*SLEEPY)
    assert told(rig, "POST", "/sleep?level=7&level=2&more=1") == {"status": "sleeping", "level": 2}


def test_too_many_parameters_are_refused() -> None:
    reply = call(RankRig(*SLEEPY), "POST", "/wake_up?" + "tags=a&" * 1001)
    assert reply.status == 400


@pytest.mark.parametrize("stream", [False, True])
def test_what_runs_is_cut_short(stream: bool) -> None:
    rig = RankRig(*SLEEPY, *PACED)
    client = post(rig, CHAT, stream=stream)
    rig.clock.advance(1)
    told(rig, "POST", "/sleep")
    reply = reply_of(client)
    assert reply.complete
    if stream:
        assert finishes(events(reply.body)) == [(0, "abort")]
    else:
        assert json.loads(reply.body)["choices"][0]["finish_reason"] == "abort"
    assert rig.rank.engine.idle


def test_with_keep_what_runs_goes_on_when_it_wakes() -> None:
    rig = RankRig(*SLEEPY, *PACED)
    client = post(rig, CHAT)
    rig.clock.advance(1)
    told(rig, "POST", "/sleep?mode=keep")
    rig.clock.advance(1000)
    assert (rig.rank.stats.running, rig.rank.stats.generation_tokens) == (1, 1)
    assert call(rig, "POST", CHAT, fields(CHAT)).status == 503
    told(rig, "POST", "/wake_up")
    rig.clock.pump([1.0] * 4)
    assert json.loads(reply_of(client).body)["choices"][0]["finish_reason"] == "length"


def test_with_wait_the_answer_comes_when_what_ran_is_done() -> None:
    rig = RankRig(*SLEEPY, *PACED)
    running = post(rig, CHAT)
    rig.clock.advance(1)
    sleeping = begin(rig, "POST", "/sleep?mode=wait")
    assert call(rig, "POST", CHAT, fields(CHAT)).status == 503
    rig.clock.pump([0.5] * 7)
    assert sleeping.received == b""
    rig.clock.pump([0.5] * 2)
    assert json.loads(answer(sleeping).body) == {"status": "sleeping", "level": 1}
    assert json.loads(reply_of(running).body)["choices"][0]["finish_reason"] == "length"
    assert rig.clock.getDelayedCalls() == []


def test_to_resume_wakes_nobody() -> None:
    rig = RankRig(*SLEEPY, *PACED)
    client = post(rig, CHAT)
    told(rig, "POST", "/sleep?mode=keep")
    told(rig, "POST", "/pause?mode=keep")
    told(rig, "POST", "/resume")
    assert call(rig, "POST", CHAT, fields(CHAT)).status == 503
    rig.clock.pump([1.0] * 9)
    assert client.received == b""
    told(rig, "POST", "/pause?mode=keep")
    told(rig, "POST", "/wake_up")  # ends the pause too
    rig.clock.pump([1.0] * 5)
    assert reply_of(client).status == 200
